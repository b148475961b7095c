"""Keys and values of ``__consumer_offsets``.

The hexadecimal examples were put together field by field from Kafka's published message
schemas; another implementation's field codecs judge them in `test_a_client_library_...`.
"""

from typing import Any
from uuid import UUID

import pytest

from cordwood.errors import (
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format.groups.group_offsets import (
    GroupMetadataKey,
    OffsetKey,
    OffsetValue,
    OtherKey,
    decode_group_key,
    decode_offset_value,
    encode_group_metadata_key,
    encode_offset_key,
    encode_offset_value,
    group_partition,
    java_string_hash,
)
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
COMMITTED = TimestampMs(1_760_000_000_000)
EXPIRES = TimestampMs(1_760_000_600_000)

KEY = OffsetKey(group="billing", topic="orders", partition=3)
KEY_BYTES = bytes.fromhex("0001 0007 62696c6c696e67 0006 6f7264657273 00000003")

HEAD = "00000000 0000002a"  # offset 42
TIME = "00000199 c82cc000"  # COMMITTED
V0 = bytes.fromhex(f"0000 {HEAD} 0002 6869 {TIME}")
V1 = bytes.fromhex(f"0001 {HEAD} 0002 6869 {TIME} 00000199 c835e7c0")
V2 = bytes.fromhex(f"0002 {HEAD} 0002 6869 {TIME}")
V3 = bytes.fromhex(f"0003 {HEAD} 00000005 0002 6869 {TIME}")
V4 = bytes.fromhex(f"0004 {HEAD} 00000005 03 6869 {TIME} 01 00 10") + TOPIC_ID.bytes
V4_UNTAGGED = bytes.fromhex(f"0004 {HEAD} 00000005 03 6869 {TIME} 00")

PLAIN = OffsetValue(offset=Offset(42), metadata="hi", commit_timestamp=COMMITTED)
EPOCH = OffsetValue(
    offset=Offset(42), leader_epoch=LeaderEpoch(5), metadata="hi", commit_timestamp=COMMITTED
)
EXPIRING = OffsetValue(
    offset=Offset(42), metadata="hi", commit_timestamp=COMMITTED, expire_timestamp=EXPIRES
)
WITH_TOPIC_ID = OffsetValue(
    offset=Offset(42),
    leader_epoch=LeaderEpoch(5),
    metadata="hi",
    commit_timestamp=COMMITTED,
    topic_id=TOPIC_ID,
)


def test_an_offset_key_has_these_bytes() -> None:
    assert encode_offset_key(KEY) == KEY_BYTES
    assert decode_group_key(KEY_BYTES) == KEY


def test_the_legacy_key_type_reads_the_same() -> None:
    assert decode_group_key(b"\x00\x00" + KEY_BYTES[2:]) == KEY


def test_a_group_metadata_key_is_told_apart() -> None:
    key = GroupMetadataKey(group="billing")

    assert encode_group_metadata_key(key) == bytes.fromhex("0002 0007 62696c6c696e67")
    assert decode_group_key(encode_group_metadata_key(key)) == key


@pytest.mark.parametrize("key_type", [3, 8, 16, 23, -1])
def test_a_key_of_another_kind_is_named_by_its_type(key_type: int) -> None:
    data = key_type.to_bytes(2, "big", signed=True) + b"whatever"

    assert decode_group_key(data) == OtherKey(type=key_type)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (V0, PLAIN),
        (V1, EXPIRING),
        (V2, PLAIN),
        (V3, EPOCH),
        (V4, WITH_TOPIC_ID),
        (V4_UNTAGGED, EPOCH),
    ],
    ids=["v0", "v1", "v2", "v3", "v4", "v4 without tags"],
)
def test_every_version_of_a_value_is_read(data: bytes, value: OffsetValue) -> None:
    assert decode_offset_value(data) == value


@pytest.mark.parametrize(
    ("value", "data"),
    [(EPOCH, V3), (WITH_TOPIC_ID, V4), (EXPIRING, V1)],
    ids=["v3", "v4", "v1"],
)
def test_a_value_is_written_in_the_version_that_can_say_it(value: OffsetValue, data: bytes) -> None:
    assert encode_offset_value(value) == data


def test_long_metadata_takes_a_longer_length() -> None:
    value = OffsetValue(
        offset=Offset(0), metadata="é" * 200, commit_timestamp=COMMITTED, topic_id=TOPIC_ID
    )

    assert decode_offset_value(encode_offset_value(value)) == value


def test_tags_of_later_versions_are_skipped() -> None:
    data = (
        V4_UNTAGGED[:-1] + bytes.fromhex("02 00 10") + TOPIC_ID.bytes + bytes.fromhex("07 02 abcd")
    )

    assert decode_offset_value(data) == WITH_TOPIC_ID


def test_a_topic_id_of_zero_is_none() -> None:
    assert decode_offset_value(V4[:-16] + bytes(16)) == EPOCH


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_from_the_future_is_refused(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + V3[2:]

    with pytest.raises(UnsupportedFormatError):
        decode_offset_value(data)


@pytest.mark.parametrize("data", [V0, V1, V2, V3, V4], ids=["v0", "v1", "v2", "v3", "v4"])
def test_a_value_cut_anywhere_is_truncated(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(TruncatedInputError):
            decode_offset_value(data[:size])


def test_a_key_cut_anywhere_is_truncated() -> None:
    for size in range(len(KEY_BYTES)):
        with pytest.raises(TruncatedInputError):
            decode_group_key(KEY_BYTES[:size])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (V3 + b"\x00", "1 bytes after the last field"),
        (V3[:14] + b"\xff\xff" + V3[16:], "metadata is null"),
        (V4[:14] + b"\x00" + V4[15:], "metadata is null"),
        (V3[:16] + b"\xff\xff" + V3[18:], "not UTF-8"),
        (V4[:14] + b"\xff" * 6, "varint"),
        (V4_UNTAGGED[:-1] + b"\x01\x00\x01\xab", "topic id of 1 bytes"),
    ],
)
def test_damaged_values_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_offset_value(data)


def test_bytes_after_a_key_are_refused() -> None:
    with pytest.raises(FormatError, match="after the last field"):
        decode_group_key(KEY_BYTES + b"\x00")


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID])
def test_text_longer_than_its_length_field_is_refused(topic_id: UUID | None) -> None:
    value = OffsetValue(
        offset=Offset(0), metadata="x" * 2**15, commit_timestamp=COMMITTED, topic_id=topic_id
    )

    with pytest.raises(LimitExceededError):
        encode_offset_value(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units
    ],
)
def test_the_hash_is_that_of_java_strings(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@pytest.mark.parametrize(
    ("group", "count", "partition"),
    [("hello", 50, 22), ("polygenelubricants", 50, 0), ("a", 1, 0), ("a", 50, 47)],
)
def test_a_group_lives_in_the_partition_of_its_hash(group: str, count: int, partition: int) -> None:
    assert group_partition(group, count) == partition


def test_a_client_library_encodes_the_same_fields_to_the_same_bytes() -> None:
    types: Any = pytest.importorskip("aiokafka.protocol.types")
    text = types.String("utf-8")
    head = types.Int64.encode(42) + types.Int32.encode(5)
    compact = types.CompactString("utf-8").encode("hi")
    varint = types.UnsignedVarInt32.encode
    tags = varint(1) + varint(0) + varint(16) + TOPIC_ID.bytes

    key = b"".join(
        (
            types.Int16.encode(1),
            text.encode("billing"),
            text.encode("orders"),
            types.Int32.encode(3),
        )
    )
    v3 = types.Int16.encode(3) + head + text.encode("hi") + types.Int64.encode(COMMITTED)
    v4 = types.Int16.encode(4) + head + compact + types.Int64.encode(COMMITTED) + tags

    assert encode_offset_key(KEY) == key
    assert encode_offset_value(EPOCH) == v3
    assert encode_offset_value(WITH_TOPIC_ID) == v4
