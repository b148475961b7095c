"""Time index entries held against the log they were derived from.

An index has no checksum, and a wrong offset in one only costs a longer search. A wrong time
costs more: a search would pass over records, and retention would delete a segment early. So a
time is believed only if the batch it was taken from says the same.
"""

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.quantities import INT32_MAX, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.readable_segment import ReadableSegment

TimedOffset = tuple[TimestampMs, Offset]


def is_true_entry(segment: ReadableSegment, entry: TimedOffset) -> bool:
    """Whether the batch that holds the entry's offset has that largest timestamp."""
    timestamp, offset = entry
    try:
        position = segment.reader().locate(offset, segment.hint(offset))
        if position is None:
            return False
        header = decode_batch_header(segment.file().read_at(position, HEADER_SIZE))
    except (CorruptSegmentError, FormatError):
        return False
    return header.base_offset <= offset <= header.last_offset and header.max_timestamp == timestamp


def find_largest(segment: ReadableSegment) -> TimedOffset:
    """The largest timestamp of a sealed segment and the last offset of the batch that has it.

    The last entry of its time index, unless the log contradicts it.
    """
    if not segment.size:
        return NO_TIMESTAMP, segment.base_offset
    try:
        entry = segment.time_index.last_entry
    except (FormatError, OSError):
        return _largest_from(segment, FilePosition(0), segment.base_offset)
    if entry[0] > NO_TIMESTAMP and is_true_entry(segment, entry):
        last_indexed, position = segment.hint(Offset(segment.base_offset + INT32_MAX))
        behind = _largest_from(segment, position, last_indexed if position else entry[1])
        if behind[0] <= entry[0]:
            return entry
    return _largest_from(segment, FilePosition(0), segment.base_offset)


def _largest_from(segment: ReadableSegment, position: FilePosition, offset: Offset) -> TimedOffset:
    """The largest of the batches from one that lies at `position` on, as far as they are sound."""
    largest: TimedOffset = (NO_TIMESTAMP, segment.base_offset)
    reader = segment.reader()
    if position:
        located = reader.locate(offset, (offset, position))
        position, offset = located or FilePosition(0), reader.next_offset
    while True:
        try:
            for first, stop in reader.chunks(position, offset):
                for index in range(first, stop):
                    timestamp = reader.decoder.field(index, tables.B_MAX_TIMESTAMP)
                    if timestamp > largest[0]:
                        last = reader.decoder.field(index, tables.B_NEXT_OFFSET) - 1
                        largest = (TimestampMs(timestamp), Offset(last))
            return largest
        except CorruptSegmentError as error:
            following = reader.resume_after(error.position + 1, error.first_offset)
            if following is None:
                return largest
            position, offset = FilePosition(following.position), following.base_offset
