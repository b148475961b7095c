"""Where the batch lies that begins with an offset, by the index and a few headers.

A consumer that reads on asks for the offset behind the last batch it was sent. The index names a
batch near it, or a reader has left off there; from there header leads to header. Nothing is read
but headers, and nothing is believed that does not fit: the batch must be the one the index means,
each must begin where the one before it ended, and one of them with the very offset that is looked
for. Whoever gets None looks for it properly, over verified batches.
"""

from typing import Final

from cordwood.errors import FormatError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.segment import Segment

_HEADERS_MAX: Final = 6  # then reading a stretch at once is as quick
_NEAR_BYTES: Final = 32 * 1024  # from the end of the log: an index would not lead any nearer


def boundary_at(segment: Segment, offset: Offset, size: int) -> FilePosition | None:
    """Where in the first `size` bytes the batch begins that starts with `offset`.

    `size` itself where the last of them ends before `offset`. None: this does not tell. Only for
    segments without gaps.
    """
    expected: Offset | None
    known = segment.boundary_before(offset)
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
