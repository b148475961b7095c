"""SIGTERM and SIGINT for a process that has something to finish."""

import os
import signal
from types import FrameType


class StopSignals:
    """The first signal asks for an end in order, the second is one. For the main thread.

    A pipe and not an event: a handler may run at any point of the main thread, also while that
    holds an event's lock.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._reader, self._writer = os.pipe()

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self) -> None:
        """Return once a signal came; `reason` is its name."""
        os.read(self._reader, 1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.reason:
            # Not through the logger: the signal may have come while its lock was held.
            os.write(2, f"cordwood: a second {name}, ended without a clean stop\n".encode())
            os._exit(128 + number)
        self.reason = name
        os.write(self._writer, b"\0")
