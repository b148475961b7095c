"""The memory that requests may hold while they are received: one limit for all connections."""

from collections import deque
from collections.abc import Callable
from threading import Lock


class MemoryBudget:
    """Bytes that are lent out and given back. A request that finds too few left waits in a queue.

    Invariant: ``0 <= lent <= limit``, except that a single request may exceed the limit when
    nothing else is lent, because it could never be served otherwise. Any thread may use it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lent = 0
        self._lock = Lock()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def lent(self) -> int:
        return self._lent

    def take(self, size: int, when_granted: Callable[[], None]) -> bool:
        """True: `size` bytes are lent. False: `when_granted` is called when they are."""
        with self._lock:
            if not self._waiting and self._fits(size):
                self._lent += size
                return True
            self._waiting.append((size, when_granted))
            return False

    def give_back(self, size: int) -> None:
        granted: list[Callable[[], None]] = []
        with self._lock:
            self._lent -= size
            assert self._lent >= 0, self._lent
            while self._waiting and self._fits(self._waiting[0][0]):
                wanted, when_granted = self._waiting.popleft()
                self._lent += wanted
                granted.append(when_granted)
        for when_granted in granted:
            when_granted()

    def _fits(self, size: int) -> bool:
        return self._lent == 0 or self._lent + size <= self._limit
