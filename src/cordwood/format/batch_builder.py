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
    pack_new_header_into,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.record import Record
from cordwood.quantities import (
    KIB,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass

# Large enough to write at disk speed, small enough to read one record out of it.
BATCH_BYTES_TARGET: Final = 256 * KIB

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
) -> Iterator[BuiltBatch]:
    """Batches of at most about `target_bytes` that hold `records` in order.

    Items are `Record`s or (key, value) pairs. Raises `RecordTooLargeError` if a record does not
    fit into a batch of its own. A caller that builds many batches may pass a `scratch` buffer of
    `scratch_size` bytes.
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
            size = HEADER_SIZE + needed
            if style.codec is Codec.NONE and size > style.bytes_max:
                raise RecordTooLargeError(size=size, limit=style.bytes_max)
            scratch = bytearray(size)
            continue
        yield finish_batch(
            scratch, end, following - index, base_timestamp, max_timestamp, now_ms, style
        )
        index = following
        if len(scratch) > usual_size:
            # Otherwise the records after a very large one would form a batch of the same size.
            scratch = bytearray(usual_size)


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


def finish_batch(
    scratch: bytearray,
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
    buffer: bytearray = scratch
    if style.codec is not Codec.NONE:
        payload = compress(style.codec, memoryview(scratch)[HEADER_SIZE:end], style.level)
        # If compression does not help, the uncompressed records may still fit.
        if HEADER_SIZE + len(payload) <= style.bytes_max or end > style.bytes_max:
            buffer = bytearray(HEADER_SIZE)
            buffer += payload
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
