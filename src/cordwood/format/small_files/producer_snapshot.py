"""The `.snapshot` file: the state of each producer of a partition, up to one offset.

    position  size  field
    0         2     version                    always 1
    2         4     crc                        crc32c of everything from 6 on
    6         4     count                      entries that follow
    10        46    entry, `count` times

    in entry  size  field
    0         8     producer_id
    8         2     producer_epoch
    10        4     last_sequence
    14        8     last_offset                of the producer's last batch
    22        4     offset_delta               last_offset minus that batch's base offset
    26        8     timestamp                  of that batch, ms
    34        4     coordinator_epoch          -1 if no marker was seen
    38        8     current_txn_first_offset   -1 if no transaction is open

Only the last batch of a producer is kept. The file ends with its last entry.
"""

import struct
from collections.abc import Iterable
from typing import Final

from cordwood.checksums import crc32c
from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.quantities import NO_OFFSET, Offset, ProducerId, TimestampMs
from cordwood.value_class import dataclass

BytesLike = bytes | bytearray | memoryview

SNAPSHOT_HEADER_SIZE: Final = 10
SNAPSHOT_ENTRY_SIZE: Final = 46

_VERSION: Final = 1
_CRC_POSITION: Final = 2
_COUNT_POSITION: Final = 6  # the checksum covers everything from here on
_HEADER: Final = struct.Struct(">hIi")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _HEADER.size == SNAPSHOT_HEADER_SIZE
assert _ENTRY.size == SNAPSHOT_ENTRY_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshotEntry:
    """The part of a producer's state that survives a restart without replaying the log."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs
    coordinator_epoch: int = -1
    current_txn_first_offset: Offset = NO_OFFSET


def encode_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The whole file, entries in the order given."""
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    covered = _COUNT.pack(len(packed)) + b"".join(packed)
    return struct.pack(">hI", _VERSION, crc32c(covered)) + covered


def decode_producer_snapshot(data: BytesLike) -> list[ProducerSnapshotEntry]:
    """Read a whole file; the checksum is verified before any entry is used."""
    if len(data) < SNAPSHOT_HEADER_SIZE:
        raise TruncatedInputError("producer snapshot", needed=SNAPSHOT_HEADER_SIZE, got=len(data))
    version, stored, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise UnsupportedFormatError("producer snapshot version", version)
    computed = crc32c(memoryview(data)[_COUNT_POSITION:])
    if computed != stored:
        raise ChecksumMismatchError(stored=stored, computed=computed, position=_CRC_POSITION)
    entries = memoryview(data)[SNAPSHOT_HEADER_SIZE:]
    if count < 0 or count * SNAPSHOT_ENTRY_SIZE != len(entries):
        raise FormatError(
            f"the header says {count} producers, but {len(entries)} bytes follow",
            position=_COUNT_POSITION,
        )
    return [
        ProducerSnapshotEntry(
            producer_id=ProducerId(producer_id),
            producer_epoch=producer_epoch,
            last_sequence=last_sequence,
            last_offset=Offset(last_offset),
            offset_delta=offset_delta,
            timestamp=TimestampMs(timestamp),
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=Offset(current_txn_first_offset),
        )
        for (
            producer_id,
            producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            current_txn_first_offset,
        ) in _ENTRY.iter_unpack(entries)
    ]
