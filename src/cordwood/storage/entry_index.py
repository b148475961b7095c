"""What the indexes of a segment share: entries in an `EntryFile`, told from a base offset.

`EntryIndex` is any of them, `BoundedIndex` one that can be full. A kind of index names the size
of its entries, or their layout, and adds how they are added and looked up.
"""

from struct import Struct
from typing import ClassVar, Self

from cordwood.quantities import Offset
from cordwood.storage.entry_file import EntryFile, floor_slot
from cordwood.storage.files import FileSystem


class EntryIndex:
    """Entries of one segment, in order.

    One writer adds; any thread may look up meanwhile. See `EntryFile` for what is in memory
    and what is in the file when.
    """

    __slots__ = ("_file", "base_offset")

    _ENTRY_SIZE: ClassVar[int]
    _SKIPS_ZEROS: ClassVar[bool] = True  # whether Kafka preallocates the file

    def __init__(self, file: EntryFile, base_offset: Offset) -> None:
        self._file = file
        self.base_offset = base_offset

    @classmethod
    def open_sealed(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, mapped: bool = True
    ) -> Self:
        """For lookups only. Touches no file before the first; see `EntryFile` on `mapped`."""
        return cls(cls._file_at(fs, path, mapped=mapped), base_offset)

    @classmethod
    def _file_at(cls, fs: FileSystem, path: str, *, mapped: bool = True) -> EntryFile:
        return EntryFile(fs, path, cls._ENTRY_SIZE, mapped=mapped, skip_zeros=cls._SKIPS_ZEROS)

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

    def flush(self) -> None:
        """Write out what was added, for readers in other processes. Not durable: see `sync`."""
        self._file.flush()

    def sync(self) -> None:
        """Flush and make durable. The caller syncs the directory when the file is new."""
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


class BoundedIndex(EntryIndex):
    """An index of bounded size: when it is full, its segment must roll.

    Its entries have a layout with an offset relative to the base, which never decreases.

    Invariant: at most `_max_count` entries, and `_KEPT_BACK` more where its kind allows them.
    """

    __slots__ = ("_max_count",)

    _LAYOUT: ClassVar[Struct]
    _OFFSET_FIELD: ClassVar[int]  # place of the relative offset among the fields of an entry
    _KEPT_BACK: ClassVar[int] = 0  # slots that count as taken

    def __init__(self, file: EntryFile, base_offset: Offset, *, max_bytes: int = 0) -> None:
        super().__init__(file, base_offset)
        self._max_count = max_bytes // self._ENTRY_SIZE - self._KEPT_BACK

    @classmethod
    def create(cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int) -> Self:
        """A new one, empty and active; a leftover file of that name is emptied."""
        file = cls._file_at(fs, path)
        file.create()
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_active(cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int) -> Self:
        """With the entries of the file, if any, ready for more."""
        file = cls._file_at(fs, path)
        file.activate(max_bytes=max_bytes)
        return cls(file, base_offset, max_bytes=max_bytes)

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry. True of a sealed one."""
        file = self._file
        return not file.is_active or len(file.entries) // self._ENTRY_SIZE >= self._max_count

    def extend(self, entries: bytes | bytearray | memoryview) -> None:
        """Add encoded entries that a kernel derived from the log, until it is full."""
        room = max(self._max_count - self.count, 0) * self._ENTRY_SIZE
        self._file.extend(entries[:room])

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or beyond `offset`."""
        entries = self._file.entries
        last_kept = offset - self.base_offset - 1
        kept = 1 + floor_slot(entries, self._LAYOUT, self._OFFSET_FIELD, last_kept)
        if kept < len(entries) // self._ENTRY_SIZE:
            self._file.truncate_to(kept)

    def clear(self) -> None:
        """Drop all entries."""
        self._file.truncate_to(0)

    def _slot_at(self, slot: int) -> tuple[bytearray | memoryview, int]:
        """All entries, and where in them that slot is; `IndexError` when there is none."""
        entries = self._file.entries
        position = slot * self._ENTRY_SIZE
        if not 0 <= position < len(entries):
            raise IndexError(f"no entry {slot} in {self.path}")
        return entries, position
