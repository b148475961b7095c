"""Where the batches of a segment end, in bytes and in offsets."""

from typing import Protocol

from cordwood.quantities import Offset


class Extent(Protocol):
    """What a segment and its readers ask. It is kept by the writer, or measured beside one.

    size            bytes of whole batches in the log file
    next_offset     where the batch after the last one begins; for a sealed segment the offset
                    known when it was opened, which may be the base of the segment after it
    """

    @property
    def size(self) -> int: ...

    @property
    def next_offset(self) -> Offset: ...


class SegmentExtent:
    """An extent that is known. Owned by its segment; the segment's writer alone changes it."""

    __slots__ = ("next_offset", "size")

    def __init__(self, size: int, next_offset: Offset) -> None:
        self.size = size
        self.next_offset = next_offset
