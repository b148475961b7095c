"""What must happen from time to time whether or not anyone appends.

every second       unlink what was deleted, roll segments that are old enough, `flush.ms`
every minute       sync indexes and write the recovery points, so that a crash costs little
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from varve.clock import Clock
from varve.log.log_directory import LogDirectory

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
CHECKPOINT_S: Final = 60.0


def run_due_work(directories: list[LogDirectory]) -> None:
    """One tick: everything that is due now except checkpoints."""
    for directory in directories:
        directory.delete_due()
        for log in list(directory.logs.values()):
            log.roll_if_due()
            log.flush_if_due()


class Housekeeping:
    """Runs the due work of a store on a thread of its own until stopped."""

    def __init__(
        self, name: str, directories: Callable[[], list[LogDirectory]], clock: Clock
    ) -> None:
        self._directories = directories
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"varve-housekeeping {name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last_checkpoint_s = self._clock.monotonic()
        while not self._stop.wait(TICK_S):
            try:
                run_due_work(self._directories())
                if self._clock.monotonic() - last_checkpoint_s >= CHECKPOINT_S:
                    last_checkpoint_s = self._clock.monotonic()
                    for directory in self._directories():
                        directory.checkpoint()
            except Exception:
                # Nothing here may end the thread: the next tick tries again.
                logger.exception("housekeeping failed, it goes on in %s s", TICK_S)
