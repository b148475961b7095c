import struct

import pytest
from crc32c import crc32c

from cordwood.errors import (
    ChecksumMismatchError,
    FormatError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.quantities import NO_OFFSET, Offset, ProducerId, TimestampMs

ENTRY = ProducerSnapshotEntry(
    producer_id=ProducerId(1),
    producer_epoch=2,
    last_sequence=3,
    last_offset=Offset(4),
    offset_delta=5,
    timestamp=TimestampMs(6),
    coordinator_epoch=7,
    current_txn_first_offset=Offset(8),
)
ENTRY_HEX = (
    "0000000000000001 0002 00000003 0000000000000004 "
    "00000005 0000000000000006 00000007 0000000000000008"
)


def crc32c_by_definition(data: bytes) -> int:
    """Bit by bit from the reflected Castagnoli polynomial: slow, and not the code under test."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def snapshot(covered: bytes, *, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(covered)) + covered


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c_by_definition(b"123456789") == 0xE3069283


def test_a_snapshot_is_version_checksum_count_and_entries_of_46_bytes() -> None:
    data = encode_producer_snapshot([ENTRY])

    covered = bytes.fromhex("00000001" + ENTRY_HEX)
    assert data == struct.pack(">hI", 1, crc32c_by_definition(covered)) + covered
    assert len(data) == 10 + 46
    assert decode_producer_snapshot(data) == [ENTRY]


def test_an_empty_snapshot_is_ten_bytes() -> None:
    data = encode_producer_snapshot([])

    assert data.hex() == "0001" + f"{crc32c_by_definition(bytes(4)):08x}" + "00000000"
    assert decode_producer_snapshot(data) == []


def test_a_producer_without_marker_or_transaction_has_minus_one_for_both() -> None:
    entry = ProducerSnapshotEntry(
        producer_id=ProducerId(9),
        producer_epoch=0,
        last_sequence=-1,
        last_offset=NO_OFFSET,
        offset_delta=0,
        timestamp=TimestampMs(-1),
    )

    data = encode_producer_snapshot([entry, ENTRY])

    assert data[10 + 34 : 10 + 46] == b"\xff" * 12
    assert decode_producer_snapshot(data) == [entry, ENTRY]


@pytest.mark.parametrize("size", range(10))
def test_a_snapshot_without_its_header_is_truncated(size: int) -> None:
    with pytest.raises(TruncatedInputError, match=f"needs 10 bytes, got {size}"):
        decode_producer_snapshot(encode_producer_snapshot([ENTRY])[:size])


@pytest.mark.parametrize("size", [10, 11, 55])
def test_a_snapshot_cut_short_fails_its_checksum(size: int) -> None:
    with pytest.raises(ChecksumMismatchError):
        decode_producer_snapshot(encode_producer_snapshot([ENTRY])[:size])


@pytest.mark.parametrize("position", [2, 5, 6, 9, 10, 55])
def test_a_changed_byte_fails_the_checksum(position: int) -> None:
    data = bytearray(encode_producer_snapshot([ENTRY]))
    data[position] ^= 0x10

    with pytest.raises(ChecksumMismatchError):
        decode_producer_snapshot(data)


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"producer snapshot version: {version}"):
        decode_producer_snapshot(snapshot(bytes(4), version=version))


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_the_count_must_be_that_of_the_entries_that_follow(count: int) -> None:
    covered = struct.pack(">i", count) + bytes.fromhex(ENTRY_HEX)

    with pytest.raises(FormatError, match=f"at byte 6: .* says {count} producers, but 46 bytes"):
        decode_producer_snapshot(snapshot(covered))


def test_bytes_after_the_last_entry_are_refused() -> None:
    covered = struct.pack(">i", 1) + bytes.fromhex(ENTRY_HEX) + b"\x00"

    with pytest.raises(FormatError, match="says 1 producers, but 47 bytes"):
        decode_producer_snapshot(snapshot(covered))
