"""The 61 bytes in front of every batch."""

from dataclasses import replace

import pytest

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.format.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    advance_sequence,
    decode_batch_header,
    encode_batch_header,
    pack_batch_header_into,
    stamp,
    stamp_alone,
)
from cordwood.quantities import (
    INT32_MAX,
    INT64_MAX,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
)
from fakes.client_batches import raw_batch, raw_record

HEADER = BatchHeader(
    base_offset=Offset(0x0102030405060708),
    batch_length=0x31,
    leader_epoch=LeaderEpoch(0x11121314),
    crc=0xF1F2F3F4,
    attributes=0x0014,
    last_offset_delta=0x21222324,
    base_timestamp=TimestampMs(0x3132333435363738),
    max_timestamp=TimestampMs(0x4142434445464748),
    producer_id=ProducerId(0x5152535455565758),
    producer_epoch=0x6162,
    base_sequence=0x71727374,
    record_count=0x01020304,
)
# Each field written out at the position the table gives it.
BYTES = bytes.fromhex(
    "0102030405060708 00000031 11121314 02 f1f2f3f4 0014 21222324"
    "3132333435363738 4142434445464748 5152535455565758 6162 71727374 01020304"
)


def test_a_header_is_the_bytes_of_the_table_and_back() -> None:
    assert encode_batch_header(HEADER) == BYTES
    assert decode_batch_header(BYTES) == HEADER


def test_a_header_is_found_at_its_position() -> None:
    assert decode_batch_header(b"xyz" + BYTES + b"more", 3) == HEADER


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(make: type[bytes]) -> None:
    assert decode_batch_header(make(BYTES)) == HEADER


@pytest.mark.parametrize("size", [0, 1, 16, 17, HEADER_SIZE - 1])
def test_fewer_bytes_than_a_header_are_truncated_input(size: int) -> None:
    with pytest.raises(TruncatedInputError) as caught:
        decode_batch_header(BYTES[:size])

    assert (caught.value.needed, caught.value.got, caught.value.position) == (HEADER_SIZE, size, 0)


def test_a_position_behind_the_end_is_truncated_input() -> None:
    with pytest.raises(TruncatedInputError) as caught:
        decode_batch_header(BYTES, 1000)

    assert (caught.value.got, caught.value.position) == (0, 1000)


@pytest.mark.parametrize("magic", [-1, 0, 1, 3, 127])
def test_another_magic_is_unsupported_and_named(magic: int) -> None:
    data = b"**" + encode_batch_header(replace(HEADER, magic=magic))

    with pytest.raises(UnsupportedFormatError) as caught:
        decode_batch_header(data, 2)

    assert caught.value.found == magic
    assert caught.value.position == 2 + 16


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_smaller_than_a_header_is_refused(length: int) -> None:
    with pytest.raises(FormatError, match="batch length"):
        decode_batch_header(encode_batch_header(replace(HEADER, batch_length=length)))


@pytest.mark.parametrize("field", ["base_offset", "last_offset_delta", "record_count"])
def test_a_negative_offset_or_count_is_refused(field: str) -> None:
    values = {
        "base_offset": HEADER.base_offset,
        "last_offset_delta": HEADER.last_offset_delta,
        "record_count": HEADER.record_count,
    } | {field: -1}
    header = replace(
        HEADER,
        base_offset=Offset(values["base_offset"]),
        last_offset_delta=values["last_offset_delta"],
        record_count=values["record_count"],
    )

    with pytest.raises(FormatError, match="negative"):
        decode_batch_header(encode_batch_header(header))


def test_offsets_and_size_follow_from_the_fields() -> None:
    header = replace(HEADER, base_offset=Offset(40), last_offset_delta=2, batch_length=100)

    assert (header.last_offset, header.next_offset, header.size) == (42, 43, 112)


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (LOG_APPEND_TIME, "is_log_append_time"),
        (TRANSACTIONAL, "is_transactional"),
        (CONTROL, "is_control"),
        (DELETE_HORIZON, "has_delete_horizon"),
    ],
)
def test_each_attribute_is_one_bit_beside_the_codec(bit: int, name: str) -> None:
    names = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
    header = replace(HEADER, attributes=bit | 4)

    assert [other for other in names if getattr(header, other)] == [name]
    assert header.codec == 4


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (0, 0, 0),
        (0, 5, 5),
        (INT32_MAX - 1, 1, INT32_MAX),
        (INT32_MAX, 1, 0),
        (INT32_MAX - 2, 5, 2),
        (INT32_MAX, INT32_MAX, INT32_MAX - 1),
    ],
)
def test_sequences_go_round_from_the_largest_to_zero(
    sequence: int, count: int, expected: int
) -> None:
    assert advance_sequence(sequence, count) == expected
    header = replace(HEADER, base_sequence=sequence, last_offset_delta=count)
    assert header.last_sequence == expected


def test_a_batch_without_sequences_has_no_last_one_either() -> None:
    assert replace(HEADER, base_sequence=NO_SEQUENCE).last_sequence == NO_SEQUENCE


def test_stamping_changes_offset_and_epoch_and_nothing_else() -> None:
    buffer = bytearray(b"??" + BYTES)

    stamp(buffer, 2, Offset(INT64_MAX), LeaderEpoch(7))

    assert decode_batch_header(buffer, 2) == replace(
        HEADER, base_offset=Offset(INT64_MAX), leader_epoch=LeaderEpoch(7)
    )
    assert buffer[:2] == b"??"


def test_packing_writes_a_header_in_place() -> None:
    buffer = bytearray(HEADER_SIZE + 4)

    pack_batch_header_into(buffer, 2, HEADER)

    assert bytes(buffer) == bytes(2) + BYTES + bytes(2)


def test_a_batch_alone_is_stamped_as_one_of_many_is() -> None:
    whole = raw_batch(raw_record(b"v"))
    alone, one_of_many = bytearray(whole), bytearray(whole)

    stamp_alone(alone, Offset(INT64_MAX), LeaderEpoch(7))

    stamp(one_of_many, 0, Offset(INT64_MAX), LeaderEpoch(7))
    assert alone == one_of_many
