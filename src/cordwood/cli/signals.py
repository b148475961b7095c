"""SIGINT and SIGTERM: interrupting a command between two steps, and stopping a broker."""

import _thread
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_FINALIZER: Final = "__del__"
_AGAIN_S: Final = 0.001


def interrupt_surely() -> None:
    """Let Ctrl-C interrupt this program wherever it arrives. Main thread only.

    Python runs its own handler inside `__del__` methods too, and drops what they raise: the program
    would print "Exception ignored" and go on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; inside a finalizer, send the signal again a moment later."""
    while frame is not None:
        if frame.f_code.co_name == _FINALIZER:
            _thread.start_new_thread(_send_again, (number,))
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)


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
        raise_interrupt(number, frame)


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
