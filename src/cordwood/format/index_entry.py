"""The entries of the indexes of a segment.

Offset index (`.index`), 8 bytes:

    position  size  field
    0         4     relative_offset     last offset of the batch, minus the segment's base offset
    4         4     position            of the batch's first byte in the `.log`

Time index (`.timeindex`), 12 bytes:

    position  size  field
    0         8     timestamp           largest seen so far in the segment
    8         4     relative_offset     last offset of the batch that has it, minus the base

Transaction index (`.txnindex`), 34 bytes:

    position  size  field
    0         2     version             always 0
    2         8     producer_id
    10        8     first_offset        of the transaction
    18        8     last_offset         of its ABORT marker
    26        8     last_stable_offset  when the marker was appended

All integers are big-endian and signed. Indexes have no checksum, so decoding refuses impossible
values (a negative one, a transaction that ends before it starts).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.quantities import INT32_MAX, INT64_MAX, FilePosition, Offset, ProducerId, TimestampMs
from cordwood.value_class import dataclass

BytesLike = bytes | bytearray | memoryview

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
ABORTED_ENTRY_SIZE: Final = 34

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
assert OFFSET_ENTRY.size == OFFSET_ENTRY_SIZE
assert TIME_ENTRY.size == TIME_ENTRY_SIZE
assert ABORTED_ENTRY.size == ABORTED_ENTRY_SIZE

_ABORTED_VERSION: Final = 0
_ABORTED_AT_ONCE: Final = 128 * ABORTED_ENTRY_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """The position in the `.log` of the batch that ends with an offset."""

    relative_offset: int
    position: FilePosition


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEntry:
    """No record up to `relative_offset` is newer than `timestamp`."""

    timestamp: TimestampMs
    relative_offset: int


class AbortedTransaction(NamedTuple):
    """A transaction whose records committed readers skip: `first_offset <= last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


_new_transaction: Final = AbortedTransaction._make


def encode_offset_entry(entry: OffsetEntry) -> bytes:
    """8 bytes. A relative offset or position beyond int32 is a FormatError: roll the segment."""
    _check_range("relative offset", entry.relative_offset, INT32_MAX, 0)
    _check_range("file position", entry.position, INT32_MAX, 4)
    return OFFSET_ENTRY.pack(entry.relative_offset, entry.position)


def decode_offset_entry(data: BytesLike, position: int = 0) -> OffsetEntry:
    """Read the entry that starts at `position`."""
    _check_room("offset index entry", data, position, OFFSET_ENTRY_SIZE)
    relative_offset, file_position = OFFSET_ENTRY.unpack_from(data, position)
    _check_range("relative offset", relative_offset, INT32_MAX, position)
    _check_range("file position", file_position, INT32_MAX, position + 4)
    return OffsetEntry(relative_offset=relative_offset, position=FilePosition(file_position))


def encode_time_entry(entry: TimeEntry) -> bytes:
    """12 bytes. A relative offset beyond int32 is a FormatError: roll the segment."""
    _check_range("timestamp", entry.timestamp, INT64_MAX, 0)
    _check_range("relative offset", entry.relative_offset, INT32_MAX, 8)
    return TIME_ENTRY.pack(entry.timestamp, entry.relative_offset)


def decode_time_entry(data: BytesLike, position: int = 0) -> TimeEntry:
    """Read the entry that starts at `position`."""
    _check_room("time index entry", data, position, TIME_ENTRY_SIZE)
    timestamp, relative_offset = TIME_ENTRY.unpack_from(data, position)
    _check_range("timestamp", timestamp, INT64_MAX, position)
    _check_range("relative offset", relative_offset, INT32_MAX, position + 8)
    return TimeEntry(timestamp=TimestampMs(timestamp), relative_offset=relative_offset)


def encode_aborted_transaction(transaction: AbortedTransaction) -> bytes:
    """34 bytes, version 0."""
    _check_transaction(transaction, 0)
    return ABORTED_ENTRY.pack(
        _ABORTED_VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


def decode_aborted_transaction(data: BytesLike, position: int = 0) -> AbortedTransaction:
    """Read the entry that starts at `position`."""
    _check_room("transaction index entry", data, position, ABORTED_ENTRY_SIZE)
    version, producer_id, first, last, last_stable = ABORTED_ENTRY.unpack_from(data, position)
    if version != _ABORTED_VERSION:
        raise UnsupportedFormatError("transaction index version", version, position=position)
    transaction = AbortedTransaction(
        producer_id=ProducerId(producer_id),
        first_offset=Offset(first),
        last_offset=Offset(last),
        last_stable_offset=Offset(last_stable),
    )
    _check_transaction(transaction, position)
    return transaction


def decode_aborted_transactions(data: BytesLike, position: int = 0) -> Iterator[AbortedTransaction]:
    """Read the whole entries from `position` on, as they are asked for.

    Copies of some are read at a time: no view of `data` is kept, which may grow meanwhile.
    """
    end = len(data) - (len(data) - position) % ABORTED_ENTRY_SIZE
    while position < end:
        some = bytes(data[position : min(position + _ABORTED_AT_ONCE, end)])
        for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(some):
            if (
                version != _ABORTED_VERSION
                or producer_id < 0
                or not 0 <= first <= last
                or stable < 0
            ):
                decode_aborted_transaction(data, position)  # says what is wrong
            yield _new_transaction((producer_id, first, last, stable))
            position += ABORTED_ENTRY_SIZE


def _check_transaction(transaction: AbortedTransaction, position: int) -> None:
    _check_range("producer id", transaction.producer_id, INT64_MAX, position + 2)
    _check_range("first offset", transaction.first_offset, INT64_MAX, position + 10)
    _check_range("last offset", transaction.last_offset, INT64_MAX, position + 18)
    _check_range("last stable offset", transaction.last_stable_offset, INT64_MAX, position + 26)
    if transaction.last_offset < transaction.first_offset:
        raise FormatError(
            f"aborted transaction ends at offset {transaction.last_offset}, "
            f"before its first offset {transaction.first_offset}",
            position=position + 18,
        )


def _check_room(what: str, data: BytesLike, position: int, size: int) -> None:
    assert position >= 0, position
    if len(data) - position < size:
        got = max(0, len(data) - position)
        raise TruncatedInputError(what, needed=size, got=got, position=position)


def _check_range(what: str, value: int, largest: int, position: int) -> None:
    if not 0 <= value <= largest:
        raise FormatError(f"{what} {value} is outside 0 to {largest}", position=position)
