"""A frame that does not fit the receive buffer: it arrives in parts, into memory that is lent."""

import mmap
from collections.abc import Callable
from typing import Final

from cordwood.broker.net.memory.frame_pool import FramePool
from cordwood.broker.net.memory.memory_budget import FrameMemory, MemoryBudget
from cordwood.quantities import KIB

# Memory is lent in shares of at least so much. It holds what was received before the first one.
_SHARE: Final = 256 * KIB
# If others wait for memory, a frame that arrives more slowly is given up: at this rate, an
# ordinary batch of 1 MiB takes 16 seconds.
_RATE_MIN: Final = 64 * KIB
_RATE_WINDOW_S: Final = 5.0


class LargeFrame:
    """One frame while it is received. Belongs to its connection.

    Its memory grows with what arrives: it holds at most one share, or as much as has arrived,
    ahead of its bytes. It receives nothing while it waits for memory (`is_granted`).
    """

    __slots__ = (
        "_buffer",
        "_checked_bytes",
        "_checked_s",
        "_first",
        "_held",
        "_memory",
        "_pool",
        "filled",
        "is_granted",
        "size",
        "view",
    )

    def __init__(
        self, size: int, first: memoryview, pool: FramePool, memory: MemoryBudget, now_s: float
    ) -> None:
        self.size = size
        self.filled = len(first)
        self.is_granted = False
        self.view = memoryview(b"")  # until the first share is granted
        self._first = first
        self._pool = pool
        self._memory = memory
        self._held = FrameMemory(size)
        self._buffer: mmap.mmap | None = None
        self._checked_s = now_s
        self._checked_bytes = 0

    @property
    def is_whole(self) -> bool:
        return self.filled == self.size

    @property
    def needs_memory(self) -> bool:
        """Whether the memory that it has is full, and more bytes are to come."""
        return self.filled == self._held.held < self.size

    @property
    def free_view(self) -> memoryview:
        """Where the next bytes are received."""
        return self.view[self.filled : self._held.held]

    def request_memory(self, when_granted: Callable[[], None]) -> None:
        """Take the next share now, or have `when_granted` called, by any thread, when it is lent.

        Then `grant` must be called in the loop.
        """
        held = self._held
        share = max(_SHARE, held.held)
        if not held.held and self._pool.keeps(self.size):
            share = self.size  # a buffer that was used before has all its pages
        self.is_granted = False
        if self._memory.take(held, min(share, held.rest), when_granted):
            self._use_share()
        elif self._buffer is None:
            self._first = memoryview(bytes(self._first))  # the receive buffer is used again

    def grant(self, now_s: float) -> None:
        """The share is lent. The time that it took is not the client's fault."""
        self._checked_s, self._checked_bytes = now_s, self.filled
        self._use_share()

    def _use_share(self) -> None:
        self.is_granted = True
        if self._buffer is None:
            self._buffer = self._pool.take(self.size)
            self.view = memoryview(self._buffer)[: self.size]
            self.view[: self.filled] = self._first
            self._first = memoryview(b"")

    def is_too_slow(self, now_s: float) -> bool:
        """Whether it holds memory that others wait for, and hardly arrives. Asked repeatedly."""
        window_s = now_s - self._checked_s
        if window_s < _RATE_WINDOW_S:
            return False
        arrived = self.filled - self._checked_bytes
        self._checked_s, self._checked_bytes = now_s, self.filled
        return self._memory.is_short and arrived < window_s * _RATE_MIN

    def release(self) -> None:
        """Give the memory back to the budget. Safe to repeat."""
        self._memory.give_back(self._held)

    def recycle(self, pool: FramePool) -> None:
        """Give the buffer to a pool. Nothing may refer to its content any more."""
        if self._buffer is not None:
            pool.give_back(self._buffer)
