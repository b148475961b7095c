"""Records of consumer groups: byte for byte as Kafka's schemas have them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.groups.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupRecordType,
    CurrentValue,
    GroupEpochValue,
    MemberValue,
    TargetEpochValue,
    decode_consumer_group_key,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_target,
    decode_target_epoch,
    encode_consumer_group_key,
    encode_current,
    encode_group_epoch,
    encode_member,
    encode_target,
    encode_target_epoch,
)

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_HEX = "00112233445566778899aabbccddeeff"

KEYS = [
    (ConsumerGroupRecordType.GROUP_EPOCH, "", "0003 0001 67"),
    (ConsumerGroupRecordType.PARTITION_METADATA, "", "0004 0001 67"),
    (ConsumerGroupRecordType.MEMBER, "m1", "0005 0001 67 0002 6d31"),
    (ConsumerGroupRecordType.TARGET_EPOCH, "", "0006 0001 67"),
    (ConsumerGroupRecordType.TARGET, "m1", "0007 0001 67 0002 6d31"),
    (ConsumerGroupRecordType.CURRENT, "m1", "0008 0001 67 0002 6d31"),
    (ConsumerGroupRecordType.REGULAR_EXPRESSION, "o.*", "0010 0001 67 0003 6f2e2a"),
]

MEMBER = MemberValue(
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="h",
    topic_names=("a", "bb"),
    topic_regex="o.*",
    rebalance_timeout_ms=300_000,
    assignor="uniform",
)
CURRENT = CurrentValue(
    member_epoch=7,
    previous_member_epoch=6,
    state=1,
    assigned={TOPIC: {0: 5, 3: 7}},
    revoking={TOPIC: {9: 2}},
)

VALUES: list[tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any, str]] = [
    (encode_group_epoch, decode_group_epoch, GroupEpochValue(epoch=5), "0000 00000005 00"),
    (
        encode_group_epoch,
        decode_group_epoch,
        GroupEpochValue(epoch=5, metadata_hash=-2),
        "0000 00000005 01 00 08 fffffffffffffffe",
    ),
    (
        encode_member,
        decode_member,
        MEMBER,
        "0000 0269 00 0263 0268 03 0261 036262 046f2e2a 000493e0 08 756e69666f726d 00",
    ),
    (
        encode_member,
        decode_member,
        MemberValue(),
        "0000 00 00 01 01 01 00 ffffffff 00 00",
    ),
    (
        encode_target_epoch,
        decode_target_epoch,
        TargetEpochValue(epoch=9, timestamp_ms=1),
        "0000 00000009 01 00 08 0000000000000001",
    ),
    (
        encode_target,
        decode_target,
        {TOPIC: frozenset({2, 1})},
        f"0000 02 {TOPIC_HEX} 03 00000001 00000002 00 00",
    ),
    (encode_target, decode_target, {}, "0000 01 00"),
    (
        encode_current,
        decode_current,
        CURRENT,
        "0000 00000007 00000006 01"
        f"02 {TOPIC_HEX} 03 00000000 00000003 01 00 09 03 00000005 00000007"
        f"02 {TOPIC_HEX} 02 00000009 01 00 05 02 00000002"
        "00",
    ),
]


@pytest.mark.parametrize(("record_type", "detail", "expected"), KEYS)
def test_a_key_has_the_bytes_of_kafkas_schema(
    record_type: ConsumerGroupRecordType, detail: str, expected: str
) -> None:
    key = ConsumerGroupKey(type=record_type, group="g", detail=detail)

    assert encode_consumer_group_key(key) == bytes.fromhex(expected)
    assert decode_consumer_group_key(bytes.fromhex(expected)) == key


@pytest.mark.parametrize(("encode", "decode", "value", "expected"), VALUES)
def test_a_value_has_the_bytes_of_kafkas_schema(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: object, expected: str
) -> None:
    assert encode(value) == bytes.fromhex(expected)
    assert decode(bytes.fromhex(expected)) == value


@pytest.mark.parametrize(("encode", "decode", "value", "expected"), VALUES)
def test_a_value_that_is_cut_short_or_too_long_is_refused(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: object, expected: str
) -> None:
    whole = bytes.fromhex(expected)

    for size in range(len(whole)):
        with pytest.raises(FormatError):
            decode(whole[:size])
    with pytest.raises(FormatError):
        decode(whole + b"\x00")


@pytest.mark.parametrize(("encode", "decode", "value", "expected"), VALUES)
def test_a_value_of_another_version_is_refused(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: object, expected: str
) -> None:
    with pytest.raises(UnsupportedFormatError):
        decode(b"\x00\x01" + bytes.fromhex(expected)[2:])


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 9, 10, 15, 17, 23])
def test_a_key_of_another_kind_is_refused(number: int) -> None:
    with pytest.raises(UnsupportedFormatError):
        decode_consumer_group_key(number.to_bytes(2, "big", signed=True) + b"\x00\x01g")


def test_tags_of_later_versions_are_passed_over() -> None:
    assert decode_group_epoch(bytes.fromhex("0000 00000005 02 03 01 ff 07 00")).epoch == 5
    assert decode_target(
        bytes.fromhex(f"0000 02 {TOPIC_HEX} 02 00000001 01 05 01 ff 01 09 01 ff")
    ) == {TOPIC: frozenset({1})}


def test_a_member_of_the_classic_protocol_is_told_from_others() -> None:
    plain = encode_member(MEMBER)[:-1]
    session_timeout_and_no_protocols = bytes.fromhex("01 00 07 01 0000afc8 01 00")

    assert decode_member(plain + session_timeout_and_no_protocols).is_classic


@pytest.mark.parametrize(("member_epoch", "expected"), [(7, 7), (-2, 0)])
def test_partitions_without_epochs_have_the_members_but_never_a_negative_one(
    member_epoch: int, expected: int
) -> None:
    head = b"\x00\x00" + member_epoch.to_bytes(4, "big", signed=True) + bytes(5)
    partitions = bytes.fromhex(f"02 {TOPIC_HEX} 02 00000004 00")

    current = decode_current(head + partitions + bytes.fromhex("01 00"))

    assert current.assigned == {TOPIC: {4: expected}}


@pytest.mark.parametrize("tagged", ["01 00 01 00", "01 00 05 02 00000009"])
def test_epochs_that_are_null_or_of_another_count_are_not_used(tagged: str) -> None:
    partitions = bytes.fromhex(f"02 {TOPIC_HEX} 03 00000004 00000005 {tagged}")

    current = decode_current(bytes.fromhex("0000 00000007 00000006 00") + partitions + b"\x01\x00")

    assert current.assigned == {TOPIC: {4: 7, 5: 7}}


@given(data=st.binary(max_size=60))
@pytest.mark.parametrize(
    "decode",
    [decode_group_epoch, decode_member, decode_target_epoch, decode_target, decode_current],
)
def test_any_bytes_are_a_value_or_are_refused(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    for candidate in (data, b"\x00\x00" + data):
        try:
            decode(candidate)
        except FormatError as error:
            assert error.position <= len(candidate)
