"""The time index of a segment: from a timestamp to an offset near it.

An entry holds the largest timestamp so far, and the last offset of the batch that has it. So
timestamps increase strictly from entry to entry, whatever the order of the records, and every
record with a larger timestamp than an entry's comes after the entry's offset.

Recovery and truncation resume at an entry of the offset index and read only what follows. So
both indexes keep this invariant together: for every entry of the offset index, the time index
entries up to its offset name the largest timestamp of all batches up to its offset.
"""

from typing import Final, NamedTuple

from cordwood.errors import FormatError
from cordwood.format.index_entry import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY,
    TIME_ENTRY_SIZE,
    TimeEntry,
    decode_time_entry,
    encode_time_entry,
)
from cordwood.quantities import INT32_MAX, INT64_MAX, NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.indexes.entry_file import floor_slot
from cordwood.storage.indexes.entry_index import BoundedIndex

_TIMESTAMP: Final = 0  # fields of the entry, in order
_RELATIVE_OFFSET: Final = 1


class TimeIndex(BoundedIndex):
    """Entries with strictly increasing timestamps and offsets that do not decrease.

    It is full one slot early, because sealing the segment may add an entry.
    """

    __slots__ = ()

    _ENTRY_SIZE = TIME_ENTRY_SIZE
    _LAYOUT = TIME_ENTRY
    _OFFSET_FIELD = _RELATIVE_OFFSET
    _KEPT_BACK = 1

    @property
    def last_entry(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp indexed and its offset; (-1, base offset) if there is none."""
        entries = self._file.entries
        if not entries:
            return NO_TIMESTAMP, self.base_offset
        return self._decode(entries, len(entries) - TIME_ENTRY_SIZE)

    def add(self, timestamp: TimestampMs, offset: Offset, *, force: bool = False) -> bool:
        """Add the largest timestamp so far, of the batch that ends with `offset`.

        Returns whether an entry was added; a timestamp no larger than the last one adds none.
        `force` adds it even if the index is full: the last entry of a segment must be there, also
        after the limit was lowered below what the index holds. In memory: see `flush`. Raises
        `FormatError` if full, or if the offset decreases or is too far from the base.
        """
        entries = self._file.active
        assert entries is not None, f"{self.path} is sealed"
        relative_offset = offset - self.base_offset
        if entries:
            last_timestamp, last = TIME_ENTRY.unpack_from(entries, len(entries) - TIME_ENTRY_SIZE)
            if last_timestamp < 0 or relative_offset < last or last < 0:
                last_offset = self.last_entry[1]  # a negative one raises with the reason
                raise FormatError(f"offset {offset} is below the last entry's, {last_offset}")
            if timestamp <= last_timestamp:
                return False
        elif timestamp <= NO_TIMESTAMP:
            return False
        if not force and len(entries) >= self._size_max:
            raise self._full_error()
        if 0 <= relative_offset <= INT32_MAX and timestamp <= INT64_MAX:
            entries += TIME_ENTRY.pack(timestamp, relative_offset)
        else:  # raises with the reason
            encode_time_entry(TimeEntry(timestamp=timestamp, relative_offset=relative_offset))
        return True

    def lookup(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset]:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none.

        Every record with a larger timestamp than the entry's comes after the entry's offset.
        """
        entries = self._file.entries
        slot = floor_slot(entries, TIME_ENTRY, _TIMESTAMP, timestamp)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        found, relative_offset = TIME_ENTRY.unpack_from(entries, slot * TIME_ENTRY_SIZE)
        if found < 0 or relative_offset < 0:  # damaged; the start of the segment is always correct
            return NO_TIMESTAMP, self.base_offset
        return TimestampMs(found), Offset(self.base_offset + relative_offset)

    def entry(self, slot: int) -> tuple[TimestampMs, Offset]:
        """The entry in that slot, counted from 0; `IndexError` if there is none."""
        return self._decode(*self._slot_at(slot))

    def sanity_check(self) -> None:
        """Raise `FormatError` unless timestamps increase, and offsets do not decrease.

        Reads every entry.
        """
        self._file.check_size()
        last_timestamp, last_offset = int(NO_TIMESTAMP), 0
        for timestamp, relative_offset in TIME_ENTRY.iter_unpack(bytes(self._file.entries)):
            if timestamp <= last_timestamp or relative_offset < last_offset:
                raise FormatError(
                    f"entry ({timestamp}, {relative_offset}) follows "
                    f"({last_timestamp}, {last_offset}): the timestamp must increase from 0 on, "
                    "the offset must not decrease"
                )
            last_timestamp, last_offset = timestamp, relative_offset

    def _decode(self, entries: bytearray | memoryview, position: int) -> tuple[TimestampMs, Offset]:
        timestamp, relative_offset = TIME_ENTRY.unpack_from(entries, position)
        if timestamp < 0 or relative_offset < 0:
            decode_time_entry(entries, position)  # raises with the reason
        return TimestampMs(timestamp), Offset(self.base_offset + relative_offset)


class FittingEntries(NamedTuple):
    """Encoded entries for both indexes of a segment that keep the invariant of this module."""

    offset_entries: memoryview
    time_entries: memoryview


def fitting_entries(
    offset_entries: memoryview, time_entries: memoryview, *, offset_room: int, time_room: int
) -> FittingEntries:
    """The first of the entries of a walk that fit into so many slots, as a pair.

    A time entry without a slot takes the offset entries from its offset on with it: recovery
    must not resume behind a timestamp that the time index does not name.
    """
    times = time_entries[: max(time_room, 0) * TIME_ENTRY_SIZE]
    offsets = offset_entries[: max(offset_room, 0) * OFFSET_ENTRY_SIZE]
    if len(times) < len(time_entries):
        left_out: int = TIME_ENTRY.unpack_from(time_entries, len(times))[_RELATIVE_OFFSET]
        kept = 1 + floor_slot(offsets, OFFSET_ENTRY, 0, left_out - 1)
        offsets = offsets[: kept * OFFSET_ENTRY_SIZE]
    return FittingEntries(offsets, times)
