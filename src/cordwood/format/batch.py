"""Decodes record batches into records, the reverse of `batch_builder.py`.

`BatchDecoder` keeps the tables that kernels fill, so that reading a gigabyte allocates a few
megabytes only once. It is for one reader at a time.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format import batch_scan, record_scan, record_table
from cordwood.format import kernel_tables as tables
from cordwood.format.batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
)
from cordwood.format.compression import Codec, decompress
from cordwood.format.record import Record
from cordwood.quantities import INT64_MAX, MIB, Offset, TimestampMs
from cordwood.value_class import dataclass

# A batch may claim any decompressed size. Producers limit batches to a few MiB before compression;
# this is two orders of magnitude more and still bounds the memory of one read.
DECOMPRESSED_BYTES_MAX: Final = 256 * MIB

_BATCHES_PER_SCAN: Final = 512
_RECORDS_PER_RUN: Final = 16_384
_RECORDS_PER_PIECE: Final = 256  # with their lists fewer objects than the collector waits for
_RECORD_SIZE_MIN: Final = 7  # length, attributes, two deltas, two sizes, header count

_RECORD_FAULTS: Final = {
    tables.BAD_VARINT: "a number in the record does not end",
    tables.BAD_RECORD_SIZE: "record size is outside the batch",
    tables.BAD_KEY_SIZE: "key size is outside the record",
    tables.BAD_VALUE_SIZE: "value size is outside the record",
    tables.BAD_HEADER_COUNT: "header count does not fit the record",
    tables.BAD_HEADER_SIZE: "header size is outside the record",
    tables.BAD_BODY: "record fields do not fill the record size",
    tables.BAD_TRAILER: "bytes left after the last record",
    tables.BAD_OFFSET_DELTA: "offset delta is outside the batch",
    tables.TOO_FEW_RECORDS: "batch ends before its declared number of records",
}

_STOP_REASONS: Final = {
    tables.STOP_SHORT_HEADER: "the file ends inside a batch header",
    tables.STOP_SHORT_BATCH: "the file ends inside a batch",
    tables.STOP_BAD_SIZE: "batch size is impossible",
    tables.STOP_BAD_MAGIC: "not a batch header (magic is not 2)",
    tables.STOP_BAD_OFFSET: "batch offsets do not follow those before it",
    tables.STOP_BAD_COUNT: "record count is negative",
}

DAMAGE_STOPS: Final = frozenset(_STOP_REASONS)


def describe_stop(reason: int) -> str:
    """The description of a reason in `DAMAGE_STOPS`."""
    return _STOP_REASONS[reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """One row of the batch table, for code that looks at batches one at a time."""

    position: int
    size: int
    base_offset: Offset
    next_offset: Offset
    max_timestamp: TimestampMs
    attributes: int
    record_count: int
    base_timestamp: TimestampMs
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    last_offset_delta: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


@dataclass(slots=True)
class RecordRun:
    """Parsed records: rows [start, end) of `table`, with their bytes in `data`.

    All have the same timestamp type: `is_log_append_time` says whether the log or the producer set
    the timestamps. Valid until the decoder that returned it is used again.
    """

    data: memoryview | bytes
    table: "array[int]"
    start: int
    end: int
    is_log_append_time: bool = False

    def __len__(self) -> int:
        return self.end - self.start

    def records(self) -> list[Record]:
        return record_table.make_records(self.data, self.table, self.start, self.end, Record)

    def pieces(self) -> Iterator[list[Record]]:
        """The same records a few at a time: these stay in the processor's cache until used."""
        for start in range(self.start, self.end, _RECORDS_PER_PIECE):
            end = min(start + _RECORDS_PER_PIECE, self.end)
            yield record_table.make_records(self.data, self.table, start, end, Record)


class BatchDecoder:
    """Finds, checks and parses the batches in a buffer.

    `scan` fills the batch table from the buffer; all other methods work on the result of the last
    scan. Positions in batch rows are positions in that buffer.
    """

    def __init__(self, *, batches_max: int = _BATCHES_PER_SCAN) -> None:
        self.rows = array("q", bytes(8 * tables.BATCH_ROW * batches_max))
        self._table = array("q", bytes(8 * tables.RECORD_ROW * 64))
        self._data: memoryview = memoryview(b"")
        self.count = 0
        self.position = 0
        self.stop = tables.STOP_END

    def scan(
        self,
        data: memoryview,
        start: int,
        end: int,
        *,
        next_offset_min: int = 0,
        stop_offset: int = INT64_MAX,
        offset_limit: int = INT64_MAX,
        is_dense: bool = False,
    ) -> int:
        """Find the batches in ``data[start:end]``; return their number.

        `position` and `stop` then say where the walk ended and why. See `batch_scan.scan_headers`
        on what offsets batches may have.
        """
        self._data = data
        self.count, self.position, self.stop = batch_scan.scan_headers(
            data, start, end, next_offset_min, stop_offset, offset_limit, is_dense, self.rows
        )
        return self.count

    @property
    def data(self) -> memoryview:
        """The buffer of the last scan."""
        return self._data

    def batch(self, index: int) -> BatchInfo:
        row = self.rows[index * tables.BATCH_ROW : (index + 1) * tables.BATCH_ROW]
        return BatchInfo(
            position=row[tables.B_POSITION],
            size=row[tables.B_SIZE],
            base_offset=Offset(row[tables.B_BASE_OFFSET]),
            next_offset=Offset(row[tables.B_NEXT_OFFSET]),
            max_timestamp=TimestampMs(row[tables.B_MAX_TIMESTAMP]),
            attributes=row[tables.B_ATTRIBUTES],
            record_count=row[tables.B_RECORD_COUNT],
            base_timestamp=TimestampMs(row[tables.B_BASE_TIMESTAMP]),
            crc=row[tables.B_CRC],
            producer_id=row[tables.B_PRODUCER_ID],
            producer_epoch=row[tables.B_PRODUCER_EPOCH],
            base_sequence=row[tables.B_BASE_SEQUENCE],
            leader_epoch=row[tables.B_LEADER_EPOCH],
            last_offset_delta=row[tables.B_LAST_OFFSET_DELTA],
        )

    def field(self, index: int, column: int) -> int:
        """One column of batch `index`."""
        return self.rows[index * tables.BATCH_ROW + column]

    def sound_count(self) -> int:
        """How many batches, from the first, have the checksum they claim."""
        return batch_scan.first_bad_checksum(self._data, self.rows, self.count, self._data, crc32c)

    def check_checksum(self, index: int) -> None:
        batch = self.batch(index)
        computed = crc32c(self._data[batch.position + CRC_START : batch.position + batch.size])
        if computed != batch.crc:
            raise ChecksumMismatchError(
                stored=batch.crc, computed=computed, position=batch.position
            )

    def runs(
        self, first: int, end: int, *, start_offset: int = 0, stop_offset: int = INT64_MAX
    ) -> Iterator[RecordRun]:
        """The records of batches [first, end) with offsets in [start_offset, stop_offset).

        Control batches hold no records for users and are skipped.
        """
        index = first
        while index < end:
            if self.field(index, tables.B_ATTRIBUTES) & CONTROL:
                index += 1
                continue
            if self.field(index, tables.B_ATTRIBUTES) & CODEC_MASK:
                run = self.parse(index)
                index += 1
            else:
                run, index = self._parse_plain(index, self._end_of_kind(index, end))
            run.start = record_table.first_row_at(run.table, run.start, run.end, start_offset)
            run.end = record_table.first_row_at(run.table, run.start, run.end, stop_offset)
            if run.start < run.end:
                yield run

    def parse(self, index: int, inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> RecordRun:
        """The records of one batch, decompressed if necessary; also of control batches.

        Raises `LimitExceededError` if more than `inflated_bytes_max` come out.
        """
        payload, start, end = self._payload(index, inflated_bytes_max)
        count = self.field(index, tables.B_RECORD_COUNT)
        table = self._table_for(count, end - start, index)
        code, _, position = record_scan.parse_records(
            payload, start, end, self.rows, index, table, 0
        )
        self._check(code, position)
        return RecordRun(payload, table, 0, count, self._is_log_append_time(index))

    def _parse_plain(self, index: int, end: int) -> tuple[RecordRun, int]:
        payload_size = self.field(index, tables.B_SIZE) - HEADER_SIZE
        wanted = self.field(index, tables.B_RECORD_COUNT)
        table = self._table_for(wanted, payload_size, index)
        if end - index > 1:
            # Space for the following batches too, but no more than needed: short reads stay cheap.
            row, column = tables.BATCH_ROW, tables.B_RECORD_COUNT
            following = sum(self.rows[index * row + column : end * row : row])
            room = min(following, _RECORDS_PER_RUN)
            if room * tables.RECORD_ROW > len(table):
                table = self._grow(room)
        code, following, parsed, position = record_scan.parse_plain_batches(
            self._data, self.rows, index, end, table
        )
        self._check(code, position)
        run = RecordRun(self._data, table, 0, parsed, self._is_log_append_time(index))
        return run, following

    def _is_log_append_time(self, index: int) -> bool:
        return bool(self.field(index, tables.B_ATTRIBUTES) & LOG_APPEND_TIME)

    def _end_of_kind(self, index: int, end: int) -> int:
        """The first batch after `index` with another timestamp type; at most `end`.

        Nearly always this is `end`: a topic rarely changes its `message.timestamp.type`.
        """
        row, column = tables.BATCH_ROW, tables.B_ATTRIBUTES
        attributes = self.rows[index * row + column : end * row : row]
        first = attributes[0] & LOG_APPEND_TIME
        if all(found & LOG_APPEND_TIME == first for found in set(attributes)):
            return end
        return index + next(
            at for at, found in enumerate(attributes) if found & LOG_APPEND_TIME != first
        )

    def _payload(self, index: int, inflated_bytes_max: int) -> tuple[memoryview | bytes, int, int]:
        start = self.field(index, tables.B_POSITION) + HEADER_SIZE
        end = start - HEADER_SIZE + self.field(index, tables.B_SIZE)
        codec = self.field(index, tables.B_ATTRIBUTES) & CODEC_MASK
        if not codec:
            return self._data, start, end
        if codec > Codec.ZSTD:
            raise UnsupportedFormatError("compression codec", codec, position=start)
        if start == end and self.field(index, tables.B_RECORD_COUNT) == 0:
            return b"", 0, 0  # emptied by compaction, which leaves the codec bits
        payload = decompress(Codec(codec), self._data[start:end], limit=inflated_bytes_max)
        return payload, 0, len(payload)

    def _table_for(self, count: int, payload_size: int, index: int) -> "array[int]":
        if count * _RECORD_SIZE_MIN > payload_size:
            raise LimitExceededError(
                "record count",
                size=count,
                limit=payload_size // _RECORD_SIZE_MIN,
                position=self.field(index, tables.B_POSITION),
            )
        if count * tables.RECORD_ROW > len(self._table):
            return self._grow(count)
        return self._table

    def _grow(self, count: int) -> "array[int]":
        self._table = array("q", (0,)) * (tables.RECORD_ROW * count)
        return self._table

    def _check(self, code: int, position: int) -> None:
        if code != tables.RECORDS_OK:
            raise FormatError(_RECORD_FAULTS[code], position=position)


def decode_batch(data: bytes | bytearray | memoryview) -> list[Record]:
    """The records of the single batch in `data`, with all checks."""
    decoder = BatchDecoder()
    view = memoryview(data)
    count = decoder.scan(view, 0, len(view))
    if decoder.stop == tables.STOP_SHORT_HEADER:
        raise TruncatedInputError("batch header", needed=HEADER_SIZE, got=len(view))
    if decoder.stop in DAMAGE_STOPS:
        raise FormatError(describe_stop(decoder.stop), position=decoder.position)
    if count != 1:
        raise FormatError(f"expected one batch, found {count}")
    decoder.check_checksum(0)
    return decoder.parse(0).records()
