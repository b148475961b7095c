"""Finding batches as a range of bytes in a file, for `sendfile`.

Usually only a few batch headers are read; see `batch_boundary`.
"""

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.log.reading.batch_boundary import boundary_at
from cordwood.log.reading.log_source import LogSource, open_view
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.files import File
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Whole batches in a file, for sendfile. Holds the file open.

    `stop_offset` is behind the last record, often not much; None if nobody asked for it.
    """

    file: File
    position: FilePosition
    length: int
    base_offset: Offset
    stop_offset: Offset | None = None

    @property
    def fd(self) -> int:
        return self.file.fileno()


def read_range(
    source: LogSource,
    offset: int,
    *,
    max_bytes: int,
    min_one_batch: bool = True,
    stop: int | None = None,
    with_stop_offset: bool = False,
) -> FileRange | None:
    """The batches from `offset` on, as far as one file holds them; None at the end.

    The first batch may begin before `offset`. The last one may be cut short by `max_bytes`, but
    with `min_one_batch` the first batch is always whole, however large. No batch begins at `stop`
    or later. Raises `OffsetOutOfRangeError` below the start and past the high watermark.
    """
    view, allows_gaps = open_view(source), source.allows_gaps
    first, end = view.readable(offset, stop)
    index = max(view.segments.floor(first), 0)
    while first < end and index < len(view.segments):
        segment = view.segments[index]
        size = source.readable_bytes(segment)
        at = max(first, segment.base_offset)
        position = _position_of(segment, at, size, allows_gaps=allows_gaps)
        if position is not None:
            has_next = index + 1 < len(view.segments)
            until = min(end, view.segments[index + 1].base_offset) if has_next else end
            is_all_before = has_next and segment.extent.next_offset <= until
            limit = (
                size if is_all_before else _end_of(segment, until, size, allows_gaps=allows_gaps)
            )
            found = _range_of(segment, position, limit, max_bytes, min_one_batch)
            if found is None or not with_stop_offset:
                return found
            return replace(found, stop_offset=_stop_offset(segment, found, until))
        index += 1
    return None


def _position_of(
    segment: ReadableSegment, offset: Offset, size: int, *, allows_gaps: bool
) -> FilePosition | None:
    """Position of the batch that holds `offset`, or of the first one after; None past the end."""
    if not allows_gaps:
        position = boundary_at(segment, offset, size)
        if position is not None and position < size:
            return position
    return segment.reader(size=size).locate(offset, segment.hint(offset))


def _end_of(segment: ReadableSegment, stop: Offset, size: int, *, allows_gaps: bool) -> int:
    """The position at which the batches before `stop` end."""
    if not allows_gaps:
        boundary = boundary_at(segment, stop, size)
        if boundary is not None:
            segment.boundaries.note(stop, boundary)
            return boundary
    try:
        at = segment.reader(size=size).locate(stop, segment.hint(stop))
    except CorruptSegmentError as error:
        return error.position  # the batch after `stop` may be half-written
    return size if at is None else at


def _stop_offset(segment: ReadableSegment, found: FileRange, behind: Offset) -> Offset:
    """An offset behind the records of a range: from the index, or where the segment ends."""
    try:
        indexed = segment.indexes.offset.upper_bound(found.position, found.length)
    except (FormatError, OSError):
        return behind  # derived: without the index, the answer is larger than it need be
    return behind if indexed is None else min(Offset(indexed + 1), behind)


def _range_of(
    segment: ReadableSegment, position: FilePosition, end: int, max_bytes: int, min_one_batch: bool
) -> FileRange | None:
    file = segment.file()
    header = decode_batch_header(file.read_at(position, HEADER_SIZE))
    length = min(end - position, max_bytes)
    if length < header.size:
        if not min_one_batch or end - position < header.size:
            return None
        length = header.size
    if segment.is_archived:
        file = segment.file_at(position, length)
    return FileRange(file=file, position=position, length=length, base_offset=header.base_offset)
