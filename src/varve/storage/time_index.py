"""The time index of a segment: from a timestamp to an offset near it.

An entry says: the largest timestamp up to here is this one, and the batch that brought it ends
with this offset. So timestamps strictly increase from entry to entry, whatever order the
records themselves come in, and every record with a timestamp above an entry's lies beyond its
offset.
"""

from typing import Final

from varve.errors import FormatError
from varve.format.index_entry import (
    TIME_ENTRY,
    TIME_ENTRY_SIZE,
    TimeEntry,
    decode_time_entry,
    encode_time_entry,
)
from varve.quantities import NO_TIMESTAMP, Offset, TimestampMs
from varve.storage.entry_file import EntryFile, floor_slot
from varve.storage.files import FileSystem

_TIMESTAMP: Final = 0  # fields of the entry, in order
_RELATIVE_OFFSET: Final = 1


class TimeIndex:
    """Entries in strictly increasing order of timestamp, and no decreasing offset.

    One writer adds; any thread may look up meanwhile. See `EntryFile` for what is in memory
    and what is in the file when.
    """

    __slots__ = ("_file", "_max_count", "base_offset")

    def __init__(self, file: EntryFile, base_offset: Offset, *, max_bytes: int) -> None:
        self._file = file
        self._max_count = max_bytes // TIME_ENTRY_SIZE
        self.base_offset = base_offset

    @classmethod
    def create(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int
    ) -> "TimeIndex":
        """A new one, empty and active; a leftover file of that name is emptied."""
        file = EntryFile(fs, path, TIME_ENTRY_SIZE)
        file.create()
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_active(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int
    ) -> "TimeIndex":
        """With the entries of the file, if any, ready for more."""
        file = EntryFile(fs, path, TIME_ENTRY_SIZE)
        file.activate(max_bytes=max_bytes)
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_sealed(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, mapped: bool = True
    ) -> "TimeIndex":
        """For lookups only. Touches no file before the first; see `EntryFile` on `mapped`."""
        return cls(EntryFile(fs, path, TIME_ENTRY_SIZE, mapped=mapped), base_offset, max_bytes=0)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def is_active(self) -> bool:
        return self._file.is_active

    @property
    def count(self) -> int:
        return self._file.count

    @property
    def size(self) -> int:
        """Bytes of all entries, flushed or not."""
        return self._file.size

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll: one slot early, as sealing it may add an entry.

        True of a sealed one.
        """
        return not self.is_active or self.count >= self._max_count - 1

    @property
    def last_entry(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp indexed and its offset; (-1, base offset) when there is none."""
        entries = self._file.entries
        if not entries:
            return NO_TIMESTAMP, self.base_offset
        return self._decode(entries, len(entries) - TIME_ENTRY_SIZE)

    def add(self, timestamp: TimestampMs, offset: Offset, *, force: bool = False) -> bool:
        """Note the largest timestamp so far, brought by the batch ending with `offset`.

        Returns whether an entry was added: a timestamp no larger than the last one says
        nothing new. `force` may take the slot that `is_full` keeps back. In memory: see `flush`.
        Raises `FormatError` when full, when the offset decreases, or is too far from the base.
        """
        last_timestamp, last_offset = self.last_entry
        count = self.count
        if count and offset < last_offset:
            raise FormatError(f"offset {offset} is below the last entry's, {last_offset}")
        if timestamp <= last_timestamp:
            return False
        if count >= self._max_count - (0 if force else 1):
            raise FormatError(f"{self.path} is full with {count} entries")
        entry = TimeEntry(timestamp=timestamp, relative_offset=offset - self.base_offset)
        self._file.append(encode_time_entry(entry))
        return True

    def extend(self, entries: bytes | bytearray | memoryview) -> None:
        """Add encoded entries that a kernel derived from the log, as many as there is room for.

        The last slot stays free, as `is_full` keeps it.
        """
        room = max(self._max_count - 1 - self.count, 0) * TIME_ENTRY_SIZE
        self._file.extend(entries[:room])

    def lookup(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset]:
        """The last entry at or below `timestamp`; (-1, base offset) when there is none.

        Every record with a larger timestamp than the entry's lies beyond its offset.
        """
        entries = self._file.entries
        slot = floor_slot(entries, TIME_ENTRY, _TIMESTAMP, timestamp)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        found, relative_offset = TIME_ENTRY.unpack_from(entries, slot * TIME_ENTRY_SIZE)
        if found < 0 or relative_offset < 0:  # damaged; the start of the segment is never wrong
            return NO_TIMESTAMP, self.base_offset
        return TimestampMs(found), Offset(self.base_offset + relative_offset)

    def entry(self, slot: int) -> tuple[TimestampMs, Offset]:
        """The entry in that slot, counted from 0; `IndexError` when there is none."""
        entries = self._file.entries
        if not 0 <= slot < len(entries) // TIME_ENTRY_SIZE:
            raise IndexError(f"no entry {slot} in {self.path}")
        return self._decode(entries, slot * TIME_ENTRY_SIZE)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or beyond `offset`."""
        entries = self._file.entries
        kept = 1 + floor_slot(entries, TIME_ENTRY, _RELATIVE_OFFSET, offset - self.base_offset - 1)
        if kept < len(entries) // TIME_ENTRY_SIZE:
            self._file.truncate_to(kept)

    def clear(self) -> None:
        """Drop all entries."""
        self._file.truncate_to(0)

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

    def flush(self) -> None:
        """Write out what was added, for readers in other processes. Not durable: see `sync`."""
        self._file.flush()

    def sync(self) -> None:
        """Flush and make durable."""
        self._file.sync()

    def seal(self) -> None:
        """Sync, and take no more entries."""
        self._file.seal()

    def rename(self, path: str) -> None:
        """Move the file; a missing one stays missing."""
        self._file.rename(path)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self._file.remove()

    def release(self) -> None:
        """Drop the map of a sealed file until the next lookup, which then sees its growth."""
        self._file.release()

    def close(self) -> None:
        """Drop map and memory; what was added since the last flush is lost."""
        self._file.close()

    def _decode(self, entries: bytearray | memoryview, position: int) -> tuple[TimestampMs, Offset]:
        timestamp, relative_offset = TIME_ENTRY.unpack_from(entries, position)
        if timestamp < 0 or relative_offset < 0:
            decode_time_entry(entries, position)  # says what is wrong with it
        return TimestampMs(timestamp), Offset(self.base_offset + relative_offset)
