"""Buffers for large frames, which are reused.

Fresh memory of this size comes from the kernel, which hands it out page by page, zeroed, and takes
it back each time. For a produce of 256 KiB that costs as much as checking and writing it. So the
buffers of ordinary sizes are kept while they are used again and again, and freed soon after. A
fresh buffer is mapped: until bytes arrive, it costs nothing.
"""

import mmap
from typing import Final

from cordwood.fresh_pages import fresh_pages
from cordwood.quantities import KIB, MIB

_KEPT_BYTES_MAX: Final = 8 * MIB  # by one loop
_SMALLEST: Final = 256 * KIB
_LARGEST: Final = 2 * MIB  # larger buffers are rare, and are freed at once


class FramePool:
    """Buffers for large frames. Belongs to one loop.

    A buffer has the requested size rounded up to a power of two. The one that came back last is
    taken first, so those at the beginning of a list are there in vain if it never gets so short:
    `_idle` is the shortest length of each list since the last `trim`.

    Buffers also come from other loops: a connection brings its first frame with it when it moves.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[mmap.mmap]] = {}
        self._idle: dict[int, int] = {}
        self._kept_bytes = 0

    def keeps(self, size: int) -> bool:
        """Whether `take` would return a buffer that was used before."""
        return bool(self._kept.get(_room(size)))

    def take(self, size: int) -> mmap.mmap:
        """A buffer of at least `size` bytes, with arbitrary content."""
        room = _room(size)
        kept = self._kept.get(room)
        if not kept:
            return fresh_pages(room)
        self._kept_bytes -= room
        found = kept.pop()
        self._idle[room] = min(self._idle.get(room, 0), len(kept))
        return found

    def give_back(self, buffer: mmap.mmap) -> None:
        """Nothing refers to the buffer's content any more."""
        room = len(buffer)
        if room > _LARGEST or self._kept_bytes + room > _KEPT_BYTES_MAX:
            return
        self._kept.setdefault(room, []).append(buffer)
        self._kept_bytes += room

    def trim(self) -> None:
        """Free the buffers that were not needed since the last call."""
        for room, kept in self._kept.items():
            idle = self._idle.get(room, 0)
            del kept[:idle]
            self._kept_bytes -= idle * room
            self._idle[room] = len(kept)

    @property
    def kept_bytes(self) -> int:
        """The size of all buffers that are kept. Any thread may ask."""
        return self._kept_bytes


def _room(size: int) -> int:
    return size if size > _LARGEST else max(_SMALLEST, 1 << (size - 1).bit_length())
