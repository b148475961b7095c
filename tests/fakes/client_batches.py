"""Record batches as a client would send them, and as no client should.

Written down a second time, byte by byte and slowly, so that the format's own encoder is not
its only judge: every number can be given wrong, and the checksum is right all the same.
"""

from collections.abc import Sequence

import crc32c

from cordwood.format.batch_header import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    encode_batch_header,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.control_record import ControlType, EndTransactionMarker, encode_marker
from cordwood.quantities import LeaderEpoch, Offset, ProducerId, TimestampMs

NOW = 1_700_000_000_000


def varint(value: int) -> bytes:
    """Zig-zag, seven bits to a byte, the least first."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def raw_record(
    value: bytes | None = b"value",
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    body: bytes | None = None,
    size: int | None = None,
) -> bytes:
    """One record. `body` replaces all behind the size, `size` says another one."""
    if body is None:
        body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
        body += varint(len(headers))
        for name, header_value in headers:
            body += sized(name) + sized(header_value)
    return varint(len(body) if size is None else size) + body


def raw_batch(
    payload: bytes,
    *,
    count: int = 1,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    base_timestamp: int = NOW,
    max_timestamp: int = NOW,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    magic: int = 2,
    crc: int | None = None,
) -> bytearray:
    """A batch around `payload` as it is; compress it and set the attributes yourself."""
    header = BatchHeader(
        base_offset=Offset(base_offset),
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch=LeaderEpoch(leader_epoch),
        magic=magic,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(count - 1, 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp=TimestampMs(base_timestamp),
        max_timestamp=TimestampMs(max_timestamp),
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return sealed(bytearray(encode_batch_header(header)) + payload, crc=crc)


def sealed(batch: bytearray, *, crc: int | None = None) -> bytearray:
    """The same bytes with the right checksum, or with `crc`."""
    checksum = crc32c.crc32c(bytes(batch[CRC_START:])) if crc is None else crc
    batch[17:21] = checksum.to_bytes(4, "big")
    return batch


def client_batch(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    attributes: int = 0,
    base_offset: int = 0,
) -> bytearray:
    """A batch of `values` that every rule of the format holds for."""
    times = list(timestamps) if timestamps is not None else [NOW] * len(values)
    payload = b"".join(
        raw_record(
            value,
            key=keys[index] if keys is not None else None,
            offset_delta=index,
            timestamp_delta=times[index] - times[0],
        )
        for index, value in enumerate(values)
    )
    if codec is not Codec.NONE:
        payload = compress(codec, payload, level)
    return raw_batch(
        payload,
        count=len(values),
        base_offset=base_offset,
        attributes=attributes | codec | (TRANSACTIONAL if transactional else 0),
        base_timestamp=times[0] if times else -1,
        max_timestamp=max(times, default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id < 0 or producer_epoch >= 0 else 0,
        base_sequence=sequence,
    )


def marker_batch(
    producer_id: int,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    is_abort: bool = False,
    timestamp: int = NOW,
) -> bytearray:
    """The control batch that ends a transaction."""
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    key, value = encode_marker(EndTransactionMarker(type=kind, coordinator_epoch=coordinator_epoch))
    return raw_batch(
        raw_record(value, key=key),
        attributes=0x30,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
