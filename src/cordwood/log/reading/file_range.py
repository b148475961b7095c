"""Where in a file the batches lie that a reader asks for: what `sendfile` is told.

Nothing is read but headers, as long as they lead to the place; see `batch_boundary`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordwood.errors import CorruptSegmentError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.log.reading.batch_boundary import boundary_at
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.files import File
from cordwood.storage.segment import Segment

if TYPE_CHECKING:
    from cordwood.log.reading.log_reader import LogView

Bound = Callable[[Segment], int]  # how much of a segment's file may be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Whole batches as they lie in a file, for sendfile. Holds the file open."""

    file: File
    position: FilePosition
    length: int
    base_offset: Offset

    @property
    def fd(self) -> int:
        return self.file.fileno()


def find_range(
    view: "LogView",
    first: Offset,
    stop: Offset,
    *,
    bound: Bound,
    allows_gaps: bool,
    max_bytes: int,
    min_one_batch: bool,
) -> FileRange | None:
    """The batches with offsets in [first, stop), as far as one file has them. See `read_range`."""
    index = max(view.segments.floor(first), 0)
    while first < stop and index < len(view.segments):
        segment = view.segments[index]
        size = bound(segment)
        position = _position_of(segment, first, size, allows_gaps=allows_gaps)
        if position is not None:
            is_all_before = (
                index + 1 < len(view.segments) and view.segments[index + 1].base_offset <= stop
            )
            end = size if is_all_before else _end_of(segment, stop, size, allows_gaps=allows_gaps)
            return _range_of(segment, position, end, max_bytes, min_one_batch)
        index += 1
    return None


def _position_of(
    segment: Segment, offset: Offset, size: int, *, allows_gaps: bool
) -> FilePosition | None:
    """Where the batch lies that holds `offset`, or the first behind it; None past the end."""
    if not allows_gaps:
        position = boundary_at(segment, offset, size)
        if position is not None and position < size:
            return position
    return segment.reader(size=size).locate(offset, segment.hint(offset))


def _end_of(segment: Segment, stop: Offset, size: int, *, allows_gaps: bool) -> int:
    """Where in the file the batches before `stop` end."""
    if not allows_gaps:
        boundary = boundary_at(segment, stop, size)
        if boundary is not None:
            segment.note_boundary(stop, boundary)
            return boundary
    try:
        at = segment.reader(size=size).locate(stop, segment.hint(stop))
    except CorruptSegmentError as error:
        return error.position  # the batch behind `stop` may be half-written
    return size if at is None else at


def _range_of(
    segment: Segment, position: FilePosition, end: int, max_bytes: int, min_one_batch: bool
) -> FileRange | None:
    file = segment.file()
    header = decode_batch_header(file.read_at(position, HEADER_SIZE))
    length = min(end - position, max_bytes)
    if length < header.size:
        if not min_one_batch or end - position < header.size:
            return None
        length = header.size
    return FileRange(file=file, position=position, length=length, base_offset=header.base_offset)
