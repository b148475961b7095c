"""One record by its offset, without reading those around it.

In a log without gaps, the index leads to a place near the batch, headers lead from there to the
batch, and sizes lead to the record. A large batch has an entry of its own, so it is read at once.
The checksum of the batch is verified each time; that the batch is the right one follows from the
offsets of the headers, which must continue from the index on. Whatever
is unusual (a compressed batch, a compacted log, an archived segment, damage) is left to the walk
that all other readers use, which also knows the right error.
"""

import threading
from array import array
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import FormatError, OffsetOutOfRangeError
from cordwood.format import batch_scan, record_scan, record_table
from cordwood.format import kernel_tables as tables
from cordwood.format.batch_header import CODEC_MASK, CONTROL, CRC_START, HEADER_SIZE
from cordwood.format.record import Record
from cordwood.log.reading.log_source import LogSource, LogView, open_view
from cordwood.log.reading.record_walk import walk_runs
from cordwood.quantities import KIB, MIB, Offset
from cordwood.storage.files import File
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

# Enough for the batches between two entries of an index, and for a batch of a few records.
_WINDOW_BYTES: Final = 8 * KIB
# From batch to batch by their headers: the batches that share an entry fill a few windows.
_HOPS_MAX: Final = 16
# A larger batch gets a buffer of its own, which is not kept.
_KEPT_BYTES_MAX: Final = 1 * MIB
# Within the header of a batch: the checksum, and the low byte of the attributes.
_CRC: Final = 17
_ATTRIBUTES: Final = 22


class _Buffers(threading.local):
    """What a lookup reads into, for each thread; None while a lookup of the thread uses it."""

    def __init__(self) -> None:
        self.kept: tuple[memoryview, array[int]] | None = None


_BUFFERS: Final = _Buffers()


def _new_buffers() -> tuple[memoryview, "array[int]"]:
    return memoryview(bytearray(_WINDOW_BYTES)), array("q", bytes(8 * tables.RECORD_ROW))


def record_at(source: LogSource, offset: Offset) -> Record | None:
    """The record with that offset; None if compaction removed it or it is a marker.

    Raises `OffsetOutOfRangeError` unless the offset is in [start, high watermark).
    """
    view = open_view(source)
    if not view.start <= offset < view.high_watermark:
        raise OffsetOutOfRangeError(offset, start=view.start, end=view.high_watermark)
    if not source.allows_gaps:
        found = _near_index(source, view, offset)
        if found is not None:
            return found
    for run in walk_runs(source, offset, Offset(offset + 1)):
        for record in run.records():
            return record
    return None


def _near_index(source: LogSource, view: LogView, offset: Offset) -> Record | None:
    """The record, if everything is as usual."""
    index = view.segments.floor(offset)
    if index < 0:
        return None
    segment = view.segments[index]
    if segment.is_archived:
        return None
    kept = _BUFFERS.kept or _new_buffers()
    _BUFFERS.kept = None  # a signal handler may look something up meanwhile
    try:
        data, found = _in_segment(segment, source.readable_bytes(segment), offset, *kept)
    except (FormatError, OSError):
        return None  # the walk looks again: the file may have been deleted just now
    _BUFFERS.kept = (data, kept[1]) if len(data) <= _KEPT_BYTES_MAX else kept
    return found


def _in_segment(
    segment: ReadableSegment, size: int, offset: Offset, data: memoryview, row: "array[int]"
) -> tuple[memoryview, Record | None]:
    """The record, if everything is as usual; and the buffer, which may have grown."""
    data, at, end = _load_batch(segment, size, offset, data)
    if not end or data[at + _ATTRIBUTES] & (CODEC_MASK | CONTROL):
        return data, None
    stored = int.from_bytes(data[at + _CRC : at + CRC_START], "big")
    if crc32c(data[at + CRC_START : end]) != stored:
        return data, None
    if record_scan.find_record(data, at, end, offset, row) != tables.RECORDS_OK:
        return data, None
    return data, record_table.make_records(data, row, 0, 1, Record)[0]


def _load_batch(
    segment: ReadableSegment, size: int, offset: Offset, data: memoryview
) -> tuple[memoryview, int, int]:
    """Read the batch that holds `offset` into the buffer: where it begins and ends there.

    It ends at 0 if it was not found by the index and its headers.
    """
    last, position, next_last, next_position, beyond = segment.indexes.offset.around(offset)
    file = segment.file()
    if position and next_position - position > _WINDOW_BYTES:
        # The batch at `position` is large. So the one after it has an entry, and is the wanted one.
        wanted = min((beyond or size) - next_position, _KEPT_BYTES_MAX)
        if wanted >= HEADER_SIZE:
            if len(data) < wanted:
                data = memoryview(bytearray(wanted))
            got = file.read_into(next_position, data[:wanted])
            at, length, _ = batch_scan.find_batch(data, 0, got, -1, next_last, offset)
            if at == 0:
                return _complete(file, next_position, size, data, 0, length, got)
    first = -1 if position else segment.base_offset
    for _ in range(_HOPS_MAX):
        wanted = min(len(data), _WINDOW_BYTES, size - position)
        if wanted < HEADER_SIZE:
            break
        got = file.read_into(position, data[:wanted])
        at, length, first = batch_scan.find_batch(data, 0, got, first, last, offset)
        if at < 0:
            break
        if length:
            return _complete(file, position, size, data, at, length, got)
        position += at
    return data, 0, 0


def _complete(
    file: File, position: int, size: int, data: memoryview, at: int, length: int, got: int
) -> tuple[memoryview, int, int]:
    """Read the rest of the batch at `at`, of which `got` bytes of the buffer hold a part."""
    end = at + length
    if end <= got:
        return data, at, end
    if end > size - position:
        return data, 0, 0
    if at or len(data) < length:
        if len(data) < length:
            data = memoryview(bytearray(length))
        position, got = position + at, 0
    if file.read_into(position + got, data[got:length]) < length - got:
        return data, 0, 0
    return data, 0, length
