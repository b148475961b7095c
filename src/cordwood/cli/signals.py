"""SIGINT and SIGTERM: interrupting a command between two steps, and stopping a broker."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A signal raises KeyboardInterrupt; while `held`, it waits until the block has ended.

    A second signal does not wait. Works in the main thread; has no effect in others.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals this way while the block runs."""
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
        """Let the block finish before a first signal takes effect."""
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


class StopSignals:
    """The first signal requests a clean stop, the second ends the process. Main thread only.

    It uses a pipe, not an event: a handler may run at any point of the main thread, even while
    that thread holds the event's lock.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._reader, self._writer = os.pipe()

    def install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def wait(self) -> None:
        """Return after the first signal; `reason` is its name."""
        os.read(self._reader, 1)

    def request(self, reason: str) -> None:
        """Stop as after a signal, for another reason. Any thread may call it."""
        if not self.reason:
            self.reason = reason
            os.write(self._writer, b"\0")

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.reason:
            # Not through the logger: the signal may have come while its lock was held.
            os.write(2, f"cordwood: second {name}, ended without a clean stop\n".encode())
            os._exit(128 + number)
        self.reason = name
        os.write(self._writer, b"\0")
