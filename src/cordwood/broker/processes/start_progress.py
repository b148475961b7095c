"""A worker that starts tells the keeper whenever it has come further.

    until the store is open   files are read: recovery may take long, and reads all the time
    until it is ready         partitions are hosted, and their roles begin

Nothing is told if nothing moves, so a start that hangs is silent. The thread ends when the worker
is ready: then the keeper asks.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from cordwood.broker.cluster.control.local_control import KeeperNews

PROGRESS_S: Final = 2.0


class StartProgress:
    """Owned by the worker. `watch` may be called by any thread."""

    def __init__(self, news: KeeperNews) -> None:
        self._news = news
        self._steps: Callable[[], int] = lambda: 0

    def start(self) -> None:
        threading.Thread(target=self._tell, name="cordwood-starting", daemon=True).start()

    def watch(self, steps: Callable[[], int]) -> None:
        """From here on, the start moves if `steps` changes. It is called by another thread."""
        self._steps = steps

    def _tell(self) -> None:
        known: tuple[Callable[[], int], int] | None = None
        with contextlib.suppress(OSError):  # the keeper is gone: others notice
            while not self._news.has_become_ready.wait(PROGRESS_S):
                steps = self._steps
                found = (steps, steps())
                if found != known:
                    known = found
                    self._news.progresses()
