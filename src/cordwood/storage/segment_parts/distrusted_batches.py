"""Batches that may not be on the disk although a sync succeeded.

A sync that failed, under the last owner or unnoticed, may have left pages that read well and count
as clean. Syncing them again would prove nothing, so they are written again first.
"""

from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.quantities import MIB, Offset
from cordwood.storage.files import File, write_all
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

_PIECE_BYTES: Final = 1 * MIB


class DistrustedBatches:
    """The batches of one segment that the next sync writes again. For the log's writer alone.

    start   the offset from which on they are distrusted; None: all of them are trusted
    """

    __slots__ = ("start",)

    def __init__(self) -> None:
        self.start: Offset | None = None

    def add_from(self, offset: Offset) -> None:
        """Treat the batches from `offset` on as not durable, even after a sync."""
        self.start = offset if self.start is None else min(self.start, offset)

    def rewrite(self, segment: ReadableSegment, file: File) -> None:
        """Write them again, in place."""
        offset = self.start
        if offset is None:
            return
        position: int | None = 0
        if offset > segment.base_offset:
            try:
                position = segment.reader().locate(offset, segment.hint(offset))
            except CorruptSegmentError as error:
                position = error.position  # it begins with damage, which stays
        while position is not None and position < segment.size:
            piece = file.read_at(position, min(_PIECE_BYTES, segment.size - position))
            write_all(file, position, piece)
            position += len(piece)
        self.start = None
