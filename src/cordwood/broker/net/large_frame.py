"""Frames that do not fit the receive buffer: received in parts, into buffers that are reused.

Fresh memory of this size comes from the kernel, which hands it out page by page, zeroed, and takes
it back each time. For a produce of 256 KiB that costs as much as checking and writing it.
"""

from collections.abc import Callable
from typing import Final

from cordwood.broker.net.memory_budget import MemoryBudget
from cordwood.quantities import KIB, MIB

_KEPT_BYTES_MAX: Final = 8 * MIB  # by one loop
_SMALLEST: Final = 256 * KIB
_LARGEST: Final = 2 * MIB  # larger buffers are rare, and are freed at once


class FramePool:
    """Buffers for large frames. Belongs to one loop.

    A buffer has the requested size rounded up to a power of two.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with arbitrary content."""
        if size > _LARGEST:
            # Untouched pages of a fresh buffer cost nothing: memory grows with what arrives.
            return bytearray(size)
        room = max(_SMALLEST, 1 << (size - 1).bit_length())
        kept = self._kept.get(room)
        if not kept:
            return bytearray(room)
        self._kept_bytes -= room
        return kept.pop()

    def give_back(self, buffer: bytearray) -> None:
        """Nothing refers to the buffer's content any more."""
        room = len(buffer)
        if room > _LARGEST or self._kept_bytes + room > _KEPT_BYTES_MAX:
            return
        self._kept.setdefault(room, []).append(buffer)
        self._kept_bytes += room


class LargeFrame:
    """One frame while it is received. Belongs to its connection.

    It holds `size` bytes of the memory budget from `is_granted` until `release`, and receives
    nothing before it is granted.
    """

    __slots__ = ("_buffer", "_memory", "filled", "is_granted", "size", "view")

    def __init__(self, size: int, first: memoryview, pool: FramePool, memory: MemoryBudget) -> None:
        self.size = size
        self._memory = memory
        self._buffer = pool.take(size)
        self.view = memoryview(self._buffer)[:size]
        self.view[: len(first)] = first
        self.filled = len(first)
        self.is_granted = False

    @property
    def is_whole(self) -> bool:
        return self.filled == self.size

    def request_memory(self, when_granted: Callable[[], None]) -> None:
        """Take the memory now, or have `when_granted` called, by any thread, when it is taken."""
        self.is_granted = self._memory.take(self.size, when_granted)

    def release(self) -> None:
        """Give the memory back to the budget."""
        self._memory.give_back(self.size)

    def recycle(self, pool: FramePool) -> None:
        """Give the buffer back. Nothing may refer to its content any more."""
        pool.give_back(self._buffer)
