"""Looks every minute, and on request, whether certificates have been replaced."""

import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final, Protocol

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0


class Watched(Protocol):
    """The TLS of a listener, or of connections that the broker opens."""

    @property
    def name(self) -> str: ...

    def reload(self, *, is_forced: bool = False) -> bool:
        """Use the files as they are now, if they have changed. Returns whether they are used."""
        ...


class CertificateWatch:
    """One thread. `start` and `stop` are for the broker's owner, `look_now` for any thread.

    Requests come through a queue that may be filled from a signal handler, which can run while its
    thread holds any lock.
    """

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched
        self._requests: SimpleQueue[bool] = SimpleQueue()  # False: stop
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._watched:
            self._thread = threading.Thread(
                target=self._run, name="cordwood-certificates", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Safe to repeat."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._requests.put(False)
            thread.join()

    def look_now(self) -> None:
        """Load all certificates again, soon, whether or not their files seem to have changed."""
        self._requests.put(True)

    def _run(self) -> None:
        while True:
            try:
                is_forced = self._requests.get(timeout=INTERVAL_S)
                if not is_forced:
                    return
            except Empty:
                is_forced = False
            for each in self._watched:
                try:
                    each.reload(is_forced=is_forced)
                except Exception:
                    logger.exception("%s: cannot look for a new certificate", each.name)
