"""The offset index of a segment: from an offset to a place in the log file near it.

Sparse: one entry per `index.interval.bytes` or so of log, naming a batch's last offset and the
position where that batch starts. A lookup gives a place at or before the batch sought, and the
reader walks on from there. An index that lost its end, or all of itself, makes that walk
longer and never wrong: below the first entry the answer is the start of the segment.
"""

from typing import Final

from varve.errors import FormatError
from varve.format.index_entry import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_SIZE,
    OffsetEntry,
    decode_offset_entry,
    encode_offset_entry,
)
from varve.quantities import FilePosition, Offset
from varve.storage.entry_file import EntryFile, floor_slot
from varve.storage.files import FileSystem

_RELATIVE_OFFSET: Final = 0  # fields of the entry, in order
_POSITION: Final = 1


class OffsetIndex:
    """Entries in strictly increasing order of offset and of position.

    One writer adds; any thread may look up meanwhile. See `EntryFile` for what is in memory
    and what is in the file when.
    """

    __slots__ = ("_file", "_max_count", "base_offset")

    def __init__(self, file: EntryFile, base_offset: Offset, *, max_bytes: int) -> None:
        self._file = file
        self._max_count = max_bytes // OFFSET_ENTRY_SIZE
        self.base_offset = base_offset

    @classmethod
    def create(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int
    ) -> "OffsetIndex":
        """A new one, empty and active; a leftover file of that name is emptied."""
        file = EntryFile(fs, path, OFFSET_ENTRY_SIZE)
        file.create()
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_active(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int
    ) -> "OffsetIndex":
        """With the entries of the file, if any, ready for more."""
        file = EntryFile(fs, path, OFFSET_ENTRY_SIZE)
        file.activate(max_bytes=max_bytes)
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_sealed(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, mapped: bool = True
    ) -> "OffsetIndex":
        """For lookups only. Touches no file before the first; see `EntryFile` on `mapped`."""
        return cls(EntryFile(fs, path, OFFSET_ENTRY_SIZE, mapped=mapped), base_offset, max_bytes=0)

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
        """Whether the segment must roll before the next entry. True of a sealed one."""
        return not self.is_active or self.count >= self._max_count

    @property
    def last_offset(self) -> Offset:
        """Offset of the last entry; the base offset when there is none."""
        entries = self._file.entries
        if not entries:
            return self.base_offset
        position = len(entries) - OFFSET_ENTRY_SIZE
        relative_offset: int = OFFSET_ENTRY.unpack_from(entries, position)[_RELATIVE_OFFSET]
        if relative_offset < 0:
            decode_offset_entry(entries, position)  # says what is wrong with it
        return Offset(self.base_offset + relative_offset)

    def add(self, offset: Offset, position: FilePosition) -> None:
        """Note that the batch ending with `offset` starts at `position`. In memory: see `flush`.

        Raises `FormatError` when full, not beyond the last entry, or too far from the base.
        """
        entry = OffsetEntry(relative_offset=offset - self.base_offset, position=position)
        count = self.count
        if count >= self._max_count:
            raise FormatError(f"{self.path} is full with {count} entries")
        if count and offset <= self.last_offset:
            raise FormatError(f"offset {offset} is not beyond the last entry's, {self.last_offset}")
        self._file.append(encode_offset_entry(entry))

    def extend(self, entries: bytes | bytearray | memoryview) -> None:
        """Add encoded entries that a kernel derived from the log, as many as there is room for."""
        entry_size = OFFSET_ENTRY_SIZE
        room = max(self._max_count - self.count, 0) * entry_size
        self._file.extend(entries[:room])

    def lookup(self, offset: Offset) -> tuple[Offset, FilePosition]:
        """The last entry at or below `offset`; the start of the segment when there is none.

        The entry is a hint: a damaged file may hold any number that is not negative.
        """
        entries = self._file.entries
        slot = floor_slot(entries, OFFSET_ENTRY, _RELATIVE_OFFSET, offset - self.base_offset)
        if slot < 0:
            return self.base_offset, FilePosition(0)
        relative_offset, position = OFFSET_ENTRY.unpack_from(entries, slot * OFFSET_ENTRY_SIZE)
        if relative_offset < 0 or position < 0:
            return self.base_offset, FilePosition(0)
        return Offset(self.base_offset + relative_offset), FilePosition(position)

    def entry(self, slot: int) -> tuple[Offset, FilePosition]:
        """The entry in that slot, counted from 0; `IndexError` when there is none."""
        entries = self._file.entries
        if not 0 <= slot < len(entries) // OFFSET_ENTRY_SIZE:
            raise IndexError(f"no entry {slot} in {self.path}")
        found = decode_offset_entry(entries, slot * OFFSET_ENTRY_SIZE)
        return Offset(self.base_offset + found.relative_offset), FilePosition(found.position)

    def upper_bound(self, position: FilePosition, size: int) -> Offset | None:
        """Offset of the first entry at or past `position` + `size`; None when none is."""
        entries = self._file.entries
        slot = 1 + floor_slot(entries, OFFSET_ENTRY, _POSITION, position + size - 1)
        if slot >= len(entries) // OFFSET_ENTRY_SIZE:
            return None
        return self.entry(slot)[0]

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or beyond `offset`."""
        entries = self._file.entries
        kept = 1 + floor_slot(
            entries, OFFSET_ENTRY, _RELATIVE_OFFSET, offset - self.base_offset - 1
        )
        if kept < len(entries) // OFFSET_ENTRY_SIZE:
            self._file.truncate_to(kept)

    def clear(self) -> None:
        """Drop all entries."""
        self._file.truncate_to(0)

    def sanity_check(self, *, log_size: int) -> None:
        """Raise `FormatError` unless the entries can be those of a log file of `log_size` bytes.

        Reads every entry: about 30 ms for the index of a 1 GiB segment.
        """
        self._file.check_size()
        last_offset = last_position = -1
        for relative_offset, position in OFFSET_ENTRY.iter_unpack(bytes(self._file.entries)):
            if relative_offset <= last_offset or position <= last_position:
                raise FormatError(
                    f"entry ({relative_offset}, {position}) follows "
                    f"({last_offset}, {last_position}): both must increase from 0 on"
                )
            last_offset, last_position = relative_offset, position
        if last_position >= log_size:
            raise FormatError(f"position {last_position} is past the log's {log_size} bytes")

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
