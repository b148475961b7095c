"""Finding the batch that begins with an offset, from the index and a few headers.

A consumer usually asks for the offset after the last batch it was sent. The index, or the place
where a reader stopped, gives a batch near it; from there each header leads to the next. Only
headers are read, so each must fit: the first batch must be the one that the index names, each must
begin where the one before it ended, and one must begin with the wanted offset. If none does, the
answer is None and the caller searches verified batches instead.
"""

from typing import Final

from cordwood.errors import FormatError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

_HEADERS_MAX: Final = 6  # reading a larger piece is as quick as reading more headers
_NEAR_BYTES: Final = 32 * 1024  # to the end of the log: an index entry would not be nearer


def boundary_at(segment: ReadableSegment, offset: Offset, size: int) -> FilePosition | None:
    """The position, in the first `size` bytes, of the batch that begins with `offset`.

    `size` itself if the last batch ends before `offset`. None if it is not found here. Only for
    segments without gaps.
    """
    expected: Offset | None
    known = segment.boundaries.before(offset)
    if known is not None and size - known[1] <= _NEAR_BYTES:
        last_offset, (expected, position) = offset, known
    else:
        last_offset, position = segment.hint(offset)
        expected = segment.base_offset if not position else None
    file = segment.file()
    for _ in range(_HEADERS_MAX):
        if position >= size:
            return position if position == size and expected == offset else None
        try:
            header = decode_batch_header(file.read_at(position, HEADER_SIZE))
        except FormatError:
            return None
        if expected is None:
            if header.last_offset != last_offset or header.base_offset < segment.base_offset:
                return None
        elif header.base_offset != expected:
            return None
        if header.base_offset == offset:
            return position
        if header.base_offset > offset:
            return None
        expected = header.next_offset
        position = FilePosition(position + header.size)
    return None
