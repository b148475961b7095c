"""Encodes records into record batches: the bytes on disk and on the wire.

A batch is built with base offset 0 and no leader epoch. The log sets both when it appends the
batch; the checksum covers neither (see `batch_header.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cordwood.checksums import crc32c
from cordwood.errors import RecordTooLargeError
from cordwood.format import record_encoding
from cordwood.format.batch_header import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    advance_sequence,
    pack_new_header_into,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.record import Header, Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import (
    KIB,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass, replace

# Large enough to write at disk speed, small enough to read one record out of it.
BATCH_BYTES_TARGET: Final = 256 * KIB

# Batches that are written in one call. The kernel then takes them in large pages: a write of 1 MiB
# costs a quarter less than four of 256 KiB. More than that would not stay in the cache.
RUN_BYTES: Final = 5 * (HEADER_SIZE + BATCH_BYTES_TARGET)

# Length, attributes, deltas and sizes of one record, all at their longest.
_RECORD_OVERHEAD_MAX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStyle:
    """How the batches of a topic are written."""

    bytes_max: int
    codec: Codec = Codec.NONE
    level: int | None = None
    is_log_append_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStamp:
    """Producer id, epoch and sequence of a batch, for producers that number their batches."""

    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    attributes: int = 0  # the transactional and control bits


_NOBODY: Final = ProducerStamp()


@dataclass(slots=True)
class BuiltBatch:
    """A finished batch. `data` is valid until the next batch is built."""

    data: memoryview
    record_count: int
    max_timestamp: TimestampMs

    @property
    def size(self) -> int:
        return len(self.data)


def scratch_size(style: BatchStyle, target_bytes: int = BATCH_BYTES_TARGET) -> int:
    """The size of the buffer that `build_batches` uses."""
    return max(min(HEADER_SIZE + target_bytes, style.bytes_max), HEADER_SIZE)


def build_batches(
    records: list[Any],
    now_ms: TimestampMs,
    style: BatchStyle,
    *,
    target_bytes: int = BATCH_BYTES_TARGET,
    scratch: bytearray | None = None,
    producer: ProducerStamp = _NOBODY,
) -> Iterator[BuiltBatch]:
    """Batches of at most about `target_bytes` that hold `records` in order.

    Items are `Record`s or (key, value) pairs. Raises `RecordTooLargeError` if a record does not
    fit into a batch of its own. A caller that builds many batches may pass a `scratch` buffer of
    `scratch_size` bytes. A `producer` numbers its records: each batch continues the last one.
    """
    usual_size = scratch_size(style, target_bytes)
    if scratch is None or len(scratch) != usual_size:
        scratch = bytearray(usual_size)
    index = 0
    while index < len(records):
        following, end, base_timestamp, max_timestamp, needed = record_encoding.encode_records(
            records, index, now_ms, Record, scratch, HEADER_SIZE
        )
        if following == index:
            scratch = _space_for(HEADER_SIZE + needed, style)
            continue
        count = following - index
        yield finish_batch(
            scratch, end, count, base_timestamp, max_timestamp, now_ms, style, producer
        )
        if producer.base_sequence != NO_SEQUENCE:
            sequence = advance_sequence(producer.base_sequence, count)
            producer = replace(producer, base_sequence=sequence)
        index = following
        if len(scratch) > usual_size:
            # Otherwise the records after a very large one would form a batch of the same size.
            scratch = bytearray(usual_size)


@dataclass(slots=True)
class BuiltRun:
    """Finished batches, one behind the other. `data` is valid until the next run is built."""

    data: memoryview
    batches: list[UnplacedBatch]


def build_runs(
    records: list[Any], now_ms: TimestampMs, style: BatchStyle, scratch: bytearray | memoryview
) -> Iterator[BuiltRun]:
    """The batches that `build_batches` makes, as many in a run as can be written together.

    `scratch` has `RUN_BYTES`. A batch that is compressed or very large makes a run of its own.
    """
    usual_size = scratch_size(style)
    view = memoryview(scratch)
    run = BuiltRun(view[:0], [])
    index = end_of_run = 0
    while index < len(records):
        out = view[end_of_run : end_of_run + usual_size]
        if len(out) < usual_size:
            yield run
            run, end_of_run = BuiltRun(view[:0], []), 0
            continue
        following, end, base_timestamp, max_timestamp, needed = record_encoding.encode_records(
            records, index, now_ms, Record, out, HEADER_SIZE
        )
        if following == index:
            if run.batches:
                yield run
                run, end_of_run = BuiltRun(view[:0], []), 0
            out = memoryview(_space_for(HEADER_SIZE + needed, style))
            following, end, base_timestamp, max_timestamp, _ = record_encoding.encode_records(
                records, index, now_ms, Record, out, HEADER_SIZE
            )
        built = finish_batch(
            out, end, following - index, base_timestamp, max_timestamp, now_ms, style
        )
        batch = UnplacedBatch(built.size, built.record_count, built.max_timestamp)
        index = following
        if out.obj is view.obj and style.codec is Codec.NONE:
            end_of_run += built.size
            run.data = view[:end_of_run]
            run.batches.append(batch)
        else:
            yield BuiltRun(built.data, [batch])
    if run.batches:
        yield run


def _space_for(size: int, style: BatchStyle) -> bytearray:
    """Space for a batch of one record, which may be too large even so."""
    if style.codec is Codec.NONE and size > style.bytes_max:
        raise RecordTooLargeError(size=size, limit=style.bytes_max)
    return bytearray(size)


def build_batch(
    records: Sequence[Record],
    now_ms: TimestampMs,
    style: BatchStyle,
    producer: ProducerStamp = _NOBODY,
) -> BuiltBatch:
    """One batch holding all `records`."""
    items = list(records)
    size = HEADER_SIZE
    for record in items:
        size += _RECORD_OVERHEAD_MAX + len(record.value or b"") + len(record.key or b"")
        for name, value in record.headers:
            size += 10 + 4 * len(name) + len(value or b"")
    scratch = bytearray(size)
    following, end, base_timestamp, max_timestamp, _ = record_encoding.encode_records(
        items, 0, now_ms, Record, scratch, HEADER_SIZE
    )
    assert following == len(items), (following, len(items))
    return finish_batch(
        scratch, end, len(items), base_timestamp, max_timestamp, now_ms, style, producer
    )


def build_sole(
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[Header],
    timestamp: TimestampMs,
    now_ms: TimestampMs,
    style: BatchStyle,
) -> tuple[bytearray | memoryview, TimestampMs]:
    """A batch of one record, and the timestamp that readers see. In one step, if possible."""
    if style.codec is not Codec.NONE:
        built = build_batch([Record(value, key, headers, timestamp)], now_ms, style)
        return built.data, built.max_timestamp
    attributes, shown = 0, timestamp
    if style.is_log_append_time:
        attributes, shown = LOG_APPEND_TIME, now_ms
    data = record_encoding.encode_sole(
        value, key, headers, timestamp, shown, attributes, style.bytes_max, crc32c
    )
    if isinstance(data, int):
        raise RecordTooLargeError(size=data, limit=style.bytes_max)
    return data, shown


def finish_batch(
    scratch: bytearray | memoryview,
    end: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    now_ms: TimestampMs,
    style: BatchStyle,
    producer: ProducerStamp = _NOBODY,
) -> BuiltBatch:
    """Complete a batch: write the header before the records at ``scratch[HEADER_SIZE:end]``.

    The records are compressed if the style says so.
    """
    attributes = producer.attributes
    buffer: bytearray | memoryview = scratch
    if style.codec is not Codec.NONE:
        payload = compress(style.codec, memoryview(scratch)[HEADER_SIZE:end], style.level)
        # If compression does not help, the uncompressed records may still fit.
        if HEADER_SIZE + len(payload) <= style.bytes_max or end > style.bytes_max:
            buffer = bytearray(HEADER_SIZE) + payload
            end = len(buffer)
            attributes |= style.codec
    if end > style.bytes_max:
        raise RecordTooLargeError(size=end, limit=style.bytes_max)
    if style.is_log_append_time:
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
    data = memoryview(buffer)[:end]
    pack_new_header_into(
        data,
        end,
        attributes,
        record_count,
        base_timestamp,
        max_timestamp,
        producer.producer_id,
        producer.producer_epoch,
        producer.base_sequence,
    )
    seal(data)
    return BuiltBatch(data, record_count, TimestampMs(max_timestamp))


def seal(data: memoryview | bytearray, position: int = 0, end: int | None = None) -> None:
    """Write the checksum of the batch at ``data[position:end]``."""
    view = memoryview(data)
    checksum = crc32c(view[position + CRC_START : end])
    at = position + CRC_POSITION
    view[at : at + 4] = checksum.to_bytes(4, "big")
