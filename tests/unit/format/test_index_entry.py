import pytest

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.format.index_entry import (
    ABORTED_ENTRY,
    AbortedTransaction,
    OffsetEntry,
    TimeEntry,
    decode_aborted_transaction,
    decode_aborted_transactions,
    decode_offset_entry,
    decode_time_entry,
    encode_aborted_transaction,
    encode_offset_entry,
    encode_time_entry,
)
from cordwood.quantities import (
    INT32_MAX,
    INT64_MAX,
    FilePosition,
    Offset,
    ProducerId,
    TimestampMs,
)


def offset_entry(relative_offset: int, position: int) -> OffsetEntry:
    return OffsetEntry(relative_offset=relative_offset, position=FilePosition(position))


def time_entry(timestamp: int, relative_offset: int) -> TimeEntry:
    return TimeEntry(timestamp=TimestampMs(timestamp), relative_offset=relative_offset)


def aborted(producer_id: int, first: int, last: int, last_stable: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=ProducerId(producer_id),
        first_offset=Offset(first),
        last_offset=Offset(last),
        last_stable_offset=Offset(last_stable),
    )


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        (offset_entry(0, 0), "00000000 00000000"),
        (offset_entry(258, 4096), "00000102 00001000"),
        (offset_entry(INT32_MAX, INT32_MAX), "7fffffff 7fffffff"),
    ],
)
def test_an_offset_entry_is_a_relative_offset_and_a_position(entry: OffsetEntry, data: str) -> None:
    assert encode_offset_entry(entry) == bytes.fromhex(data)
    assert decode_offset_entry(bytes.fromhex(data)) == entry


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        (time_entry(0, 0), "0000000000000000 00000000"),
        (time_entry(1_700_000_000_000, 7), "0000018bcfe56800 00000007"),
        (time_entry(INT64_MAX, INT32_MAX), "7fffffffffffffff 7fffffff"),
    ],
)
def test_a_time_entry_is_a_timestamp_and_a_relative_offset(entry: TimeEntry, data: str) -> None:
    assert encode_time_entry(entry) == bytes.fromhex(data)
    assert decode_time_entry(bytes.fromhex(data)) == entry


def test_an_aborted_transaction_is_34_bytes_of_version_0() -> None:
    transaction = aborted(1, 2, 3, 4)

    data = encode_aborted_transaction(transaction)

    assert data.hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))
    assert decode_aborted_transaction(data) == transaction


def test_entries_are_read_where_asked() -> None:
    first, second = offset_entry(1, 2), offset_entry(3, 4)
    data = memoryview(encode_offset_entry(first) + encode_offset_entry(second))

    assert decode_offset_entry(data, 0) == first
    assert decode_offset_entry(data, 8) == second


@pytest.mark.parametrize("entry", [offset_entry(INT32_MAX + 1, 0), offset_entry(-1, 0)])
def test_a_relative_offset_that_does_not_fit_is_refused(entry: OffsetEntry) -> None:
    with pytest.raises(FormatError, match=r"relative offset -?\d+ is outside"):
        encode_offset_entry(entry)


@pytest.mark.parametrize("position", [-1, INT32_MAX + 1])
def test_a_position_that_does_not_fit_is_refused(position: int) -> None:
    with pytest.raises(FormatError, match=r"file position -?\d+ is outside"):
        encode_offset_entry(offset_entry(0, position))


@pytest.mark.parametrize(
    "entry", [time_entry(-1, 0), time_entry(INT64_MAX + 1, 0), time_entry(0, INT32_MAX + 1)]
)
def test_a_time_entry_that_does_not_fit_is_refused(entry: TimeEntry) -> None:
    with pytest.raises(FormatError, match="is outside"):
        encode_time_entry(entry)


def test_negative_numbers_on_disk_are_damage_and_are_located() -> None:
    data = bytes(8) + bytes.fromhex("00000001 ffffffff")

    with pytest.raises(FormatError, match="at byte 12: file position -1"):
        decode_offset_entry(data, 8)


def test_a_transaction_cannot_end_before_it_starts() -> None:
    data = bytes.fromhex("0000" + "".join(f"{number:016x}" for number in (1, 9, 8, 10)))

    with pytest.raises(FormatError, match="ends at offset 8, before its first offset 9"):
        decode_aborted_transaction(data)


@pytest.mark.parametrize("version", ["0001", "ffff"])
def test_an_unknown_transaction_index_version_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedFormatError, match="transaction index version"):
        decode_aborted_transaction(bytes.fromhex(version) + bytes(32))


@pytest.mark.parametrize(
    ("decode", "size"),
    [
        (decode_offset_entry, 8),
        (decode_time_entry, 12),
        (decode_aborted_transaction, 34),
    ],
)
def test_an_entry_that_is_not_all_there_is_truncated(decode, size: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TruncatedInputError, match=f"needs {size} bytes, got {size - 1}"):
        decode(bytes(3 + size - 1), 3)


def test_aborted_transactions_are_read_while_others_are_added() -> None:
    known = [aborted(number, number, number, 0) for number in range(300)]
    data = bytearray(b"".join(map(encode_aborted_transaction, known)) + b"part of one")

    found = decode_aborted_transactions(data, 34)
    first = next(found)
    data += bytes(34)

    assert [first, *found] == known[1:]


@pytest.mark.parametrize(
    "wrong", [(1, -1, 0, 0, 0), (0, -1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0, -1)]
)
def test_a_damaged_aborted_transaction_among_others_is_located(wrong: tuple[int, ...]) -> None:
    good = encode_aborted_transaction(aborted(1, 2, 3, 4))

    with pytest.raises(FormatError) as caught:
        list(decode_aborted_transactions(good * 200 + ABORTED_ENTRY.pack(*wrong)))

    assert caught.value.position in range(200 * 34, 201 * 34)
