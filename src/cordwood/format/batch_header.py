"""The fixed 61 bytes that start every record batch (Kafka magic 2).

    position  size  field
    0         8     base_offset
    8         4     batch_length          bytes after this field
    12        4     leader_epoch
    16        1     magic                 always 2
    17        4     crc                   crc32c of everything from 21 on
    21        2     attributes            bits 0-2 codec, 3 log append time, 4 transactional,
                                          5 control, 6 base timestamp is a delete horizon
    23        4     last_offset_delta     kept by compaction, so the range of offsets is known
    27        8     base_timestamp
    35        8     max_timestamp
    43        8     producer_id           -1: none
    51        2     producer_epoch        -1: none
    53        4     base_sequence         -1: none
    57        4     record_count          0 only in a batch that compaction emptied

The crc does not cover base_offset and leader_epoch, so the owner of the log can set both without
changing the payload. All integers are big-endian.
"""

import struct
from typing import Final

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.quantities import (
    INT32_MAX,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base_offset and batch_length, which batch_length does not count
CRC_POSITION: Final = 17
CRC_START: Final = 21  # first byte the checksum covers
PRODUCER_POSITION: Final = 43  # of the producer id and its epoch
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
assert _LAYOUT.size == HEADER_SIZE

_OFFSET_AND_EPOCH: Final = (struct.Struct(">q"), struct.Struct(">i"))
_FRONT: Final = struct.Struct(">qii")  # base_offset, batch_length, leader_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """A batch without its records."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int
    magic: int = MAGIC

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def advance_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` after `sequence`; after 2^31-1 comes 0."""
    return (sequence + count) % (INT32_MAX + 1)


def decode_batch_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`. The checksum is not verified: it covers the records too."""
    available = len(data) - position
    if available < HEADER_SIZE:
        raise TruncatedInputError(
            "batch header", needed=HEADER_SIZE, got=max(available, 0), position=position
        )
    (
        base_offset,
        batch_length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _LAYOUT.unpack_from(data, position)
    if magic != MAGIC:
        raise UnsupportedFormatError("batch magic", magic, position=position + 16)
    if batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise FormatError(f"batch length {batch_length} is too small", position=position + 8)
    if last_offset_delta < 0 or record_count < 0 or base_offset < 0:
        raise FormatError("negative offset or count in a batch header", position=position)
    return BatchHeader(
        base_offset=base_offset,
        batch_length=batch_length,
        leader_epoch=leader_epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def encode_batch_header(header: BatchHeader) -> bytes:
    return _LAYOUT.pack(
        header.base_offset,
        header.batch_length,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def pack_new_header_into(
    buffer: bytearray | memoryview,
    size: int,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write the header of a new batch of `size` bytes, without offset and checksum.

    It takes positional arguments and builds no `BatchHeader`: it runs once per single append.
    """
    _LAYOUT.pack_into(
        buffer,
        0,
        0,
        size - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        attributes,
        max(record_count - 1, 0),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def pack_batch_header_into(
    buffer: bytearray | memoryview, position: int, header: BatchHeader
) -> None:
    buffer[position : position + HEADER_SIZE] = encode_batch_header(header)


def stamp(
    buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """Set base offset and leader epoch of the batch at `position`; its checksum stays valid."""
    offset_field, epoch_field = _OFFSET_AND_EPOCH
    offset_field.pack_into(buffer, position, base_offset)
    epoch_field.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def stamp_alone(
    data: bytearray | memoryview, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """As `stamp`, for the one batch that `data` is."""
    _FRONT.pack_into(data, 0, base_offset, len(data) - LOG_OVERHEAD, leader_epoch)
