"""Interrupts that reach the programs of tests, however the tests were started."""

from __future__ import annotations

import signal
import threading


def hear_interrupts() -> None:
    """Let SIGINT interrupt this process and those that it starts, if it is ignored.

    A shell starts what it runs in the background with SIGINT ignored, and programs inherit that:
    a test that interrupts one would wait for its end in vain.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
