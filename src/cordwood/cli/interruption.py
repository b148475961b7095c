"""Being interrupted between two steps, and not in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """SIGINT and SIGTERM raise KeyboardInterrupt, but while `held` they wait until it is over.

    A second one does not wait. For the main thread; in others nothing changes.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """While the block runs, signals are handled like this."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done in the block is done whole, unless someone insists."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_held and not self._is_pending:
            self._is_pending = True
            return
        raise KeyboardInterrupt
