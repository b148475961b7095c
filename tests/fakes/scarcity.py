"""A system that has no descriptor or no thread left to give, for the thread that asks for that."""

import errno
import os
import threading

import pytest


def refuse_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the descriptor that tells of syncs in the kernel."""
    give, mine = os.eventfd, threading.current_thread()

    def refuse(*arguments: int) -> int:
        if threading.current_thread() is not mine:
            return give(*arguments)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", refuse)


def refuse_threads(monkeypatch: pytest.MonkeyPatch, *, given: int = 0) -> None:
    """Refuse to start a thread, after as many as are `given`."""
    start, mine, left = threading.Thread.start, threading.current_thread(), [given]

    def refuse(thread: threading.Thread) -> None:
        if threading.current_thread() is mine:
            if not left[0]:
                raise RuntimeError("can't start new thread")
            left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
