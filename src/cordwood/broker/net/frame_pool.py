"""Buffers for large frames, used again and again.

Fresh memory of this size comes from the kernel, which gives it page by page, zeroed, and takes it
back each time: for a produce of 256 KiB that costs as much as checking and writing it.
"""

from typing import Final

from cordwood.quantities import KIB, MIB

_KEPT_BYTES_MAX: Final = 8 * MIB  # by one loop
_SMALLEST: Final = 256 * KIB
_LARGEST: Final = 2 * MIB  # what is larger is rare, and goes back at once


class FramePool:
    """Belongs to one loop. A buffer has the size asked for, or the next power of two."""

    def __init__(self) -> None:
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with anything in it."""
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
        """Nobody looks at it any longer."""
        room = len(buffer)
        if room > _LARGEST or self._kept_bytes + room > _KEPT_BYTES_MAX:
            return
        self._kept.setdefault(room, []).append(buffer)
        self._kept_bytes += room
