"""The threads of a test, apart from those of the process."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class OwnThreads:
    """The threads that a test starts while the block runs, and those that these start.

    The process has others, which come and go at any time: of a broker that all tests share, of
    clients that end. The test that enters owns it; any thread may start threads.
    """

    def __init__(self) -> None:
        self._family: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._family = {threading.current_thread()}
        self._start = start = threading.Thread.start

        def note(thread: threading.Thread) -> None:
            with self._lock:
                if threading.current_thread() in self._family:
                    self._family.add(thread)
            start(thread)

        threading.Thread.start = note  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        threading.Thread.start = self._start  # type: ignore[method-assign]

    @property
    def names(self) -> list[str]:
        """The names of those that run now, but for the thread that asks."""
        with self._lock:
            return sorted(
                thread.name
                for thread in self._family
                if thread.is_alive() and thread is not threading.current_thread()
            )
