"""The first and the largest timestamp of a segment, and checks of time index entries.

An index has no checksum. A wrong offset in it only makes a search longer, but a wrong time does
more harm: a search would skip records, and retention would delete a segment early. So a time is
trusted only if the batch it was taken from has the same time.
"""

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.quantities import INT32_MAX, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

TimedOffset = tuple[TimestampMs, Offset]


def is_true_entry(segment: ReadableSegment, entry: TimedOffset) -> bool:
    """Whether the batch with the entry's offset has the entry's time as largest timestamp."""
    timestamp, offset = entry
    try:
        position = segment.reader().locate(offset, segment.hint(offset))
        if position is None:
            return False
        header = decode_batch_header(segment.file().read_at(position, HEADER_SIZE))
    except (CorruptSegmentError, FormatError):
        return False
    return header.base_offset <= offset <= header.last_offset and header.max_timestamp == timestamp


def find_first(segment: ReadableSegment) -> TimestampMs | None:
    """The timestamp of the first record; None if there is none.

    It is the base timestamp of the first batch, unless compaction has put a delete horizon there.
    Then the records have to be read; batches that compaction has emptied are passed over.
    """
    if not segment.size:
        return None
    try:
        header = decode_batch_header(segment.file().read_at(FilePosition(0), HEADER_SIZE))
        if header.has_delete_horizon or not header.record_count:
            return _first_record_time(segment)
    except (CorruptSegmentError, FormatError):
        return None
    return None if header.base_timestamp < 0 else header.base_timestamp


def _first_record_time(segment: ReadableSegment) -> TimestampMs | None:
    reader = segment.reader()
    for first, stop in reader.chunks(FilePosition(0), segment.base_offset):
        for run in reader.decoder.runs(first, stop):
            for record in run.records():
                return None if record.timestamp_ms is None else TimestampMs(record.timestamp_ms)
    return None


def find_largest(segment: ReadableSegment) -> TimedOffset:
    """The largest timestamp of a sealed segment and the last offset of the batch that has it.

    This is the last entry of its time index, unless the log contradicts it.
    """
    if not segment.size:
        return NO_TIMESTAMP, segment.base_offset
    try:
        entry = segment.indexes.time.last_entry
    except (FormatError, OSError):
        return _largest_from(segment, FilePosition(0), segment.base_offset)
    if entry[0] > NO_TIMESTAMP and is_true_entry(segment, entry):
        last_indexed, position = segment.hint(Offset(segment.base_offset + INT32_MAX))
        behind = _largest_from(segment, position, last_indexed if position else entry[1])
        if behind[0] <= entry[0]:
            return entry
    return _largest_from(segment, FilePosition(0), segment.base_offset)


def _largest_from(segment: ReadableSegment, position: FilePosition, offset: Offset) -> TimedOffset:
    """The largest timestamp of the valid batches from `position` on."""
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
