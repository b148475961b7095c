"""Rounds of markers, and moments in which none is under way: they take turns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MarkerTurns:
    """A round lasts from the first marker to the end of its syncs. Any thread may call it.

    Several rounds may be under way. A moment of stillness waits for them, and no round begins
    before it is over.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rounds = 0
        self._still = 0  # moments that are wanted, or under way

    def begin(self, *, wait: bool = True) -> bool:
        """Begin a round; without `wait` False if it has to be tried again in a moment."""
        with self._condition:
            while self._still:
                if not wait:
                    return False
                self._condition.wait()
            self._rounds += 1
        return True

    def end(self) -> None:
        with self._condition:
            self._rounds -= 1
            assert self._rounds >= 0
            if not self._rounds:
                self._condition.notify_all()

    @contextmanager
    def round(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile no round is under way. For a short moment."""
        is_wanted = False
        try:
            with self._condition:
                self._still += 1
                is_wanted = True
                while self._rounds:
                    self._condition.wait()
            yield
        finally:
            if is_wanted:
                with self._condition:
                    self._still -= 1
                    self._condition.notify_all()
