"""The common part of a segment's indexes: entries in an `EntryFile`, relative to a base offset.

`EntryIndex` is any index, `BoundedIndex` one that can be full. Each kind of index defines the size
or layout of its entries, and how entries are added and looked up.
"""

import logging
from struct import Struct
from typing import ClassVar, Self

from cordwood.errors import FormatError, LimitExceededError
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.indexes.entry_file import EntryFile, floor_slot

logger = logging.getLogger(__name__)


class EntryIndex:
    """Entries of one segment, in order.

    One writer adds entries; any thread may look up meanwhile. `EntryFile` documents what is in
    memory and what is in the file.
    """

    __slots__ = ("_file", "base_offset")

    _ENTRY_SIZE: ClassVar[int]
    _SKIPS_ZEROS: ClassVar[bool] = True  # whether Kafka preallocates the file

    def __init__(self, file: EntryFile, base_offset: Offset) -> None:
        self._file = file
        self.base_offset = base_offset

    @classmethod
    def open_sealed(
        cls,
        fs: FileSystem,
        path: str,
        base_offset: Offset,
        *,
        mapped: bool = True,
        must_exist: bool = False,
    ) -> Self:
        """Open for lookups only; the first one opens the file. `EntryFile` explains the rest."""
        file = cls._file_at(fs, path, mapped=mapped, must_exist=must_exist)
        return cls(file, base_offset)

    @classmethod
    def _file_at(
        cls, fs: FileSystem, path: str, *, mapped: bool = True, must_exist: bool = False
    ) -> EntryFile:
        return EntryFile(
            fs,
            path,
            cls._ENTRY_SIZE,
            mapped=mapped,
            skip_zeros=cls._SKIPS_ZEROS,
            must_exist=must_exist,
        )

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
        """Write new entries to the file, for other processes. Not durable: see `sync`."""
        self._file.flush()

    def sync(self) -> None:
        """Flush and make durable. The caller syncs the directory if the file is new."""
        self._file.sync()

    def seal(self) -> None:
        """Sync, and accept no more entries."""
        self._file.seal()

    def rename(self, path: str) -> None:
        """Rename the file; a missing file is no error."""
        self._file.rename(path)

    def remove(self) -> None:
        """Remove the file if it exists."""
        self._file.remove()

    def release(self) -> None:
        """Unmap a sealed file until the next lookup, which then sees new entries."""
        self._file.release()

    def close(self) -> None:
        """Release map and memory; entries added since the last flush are lost."""
        self._file.close()


class BoundedIndex(EntryIndex):
    """An index of bounded size; if it is full, its segment must roll.

    Its entries contain an offset relative to the base, which never decreases.

    Entries are added while they take less than `_size_max` bytes. A file of an earlier, higher
    limit may hold more: then the index is full.
    """

    __slots__ = ("_size_max",)

    _LAYOUT: ClassVar[Struct]
    _OFFSET_FIELD: ClassVar[int]  # number of the relative offset among the fields of an entry
    _KEPT_BACK: ClassVar[int] = 0  # reserved slots

    def __init__(self, file: EntryFile, base_offset: Offset, *, max_bytes: int = 0) -> None:
        super().__init__(file, base_offset)
        self._size_max = (max_bytes // self._ENTRY_SIZE - self._KEPT_BACK) * self._ENTRY_SIZE

    @classmethod
    def create(cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int) -> Self:
        """A new index, empty and active; a leftover file of that name is emptied."""
        file = cls._file_at(fs, path)
        file.create()
        return cls(file, base_offset, max_bytes=max_bytes)

    @classmethod
    def open_active(
        cls,
        fs: FileSystem,
        path: str,
        base_offset: Offset,
        *,
        max_bytes: int,
        is_synced: bool = False,
    ) -> Self:
        """Open with the entries of the file, if any, ready for more.

        A file that is far too large counts as empty: the entries can be derived again.
        """
        file = cls._file_at(fs, path)
        try:
            file.activate(max_bytes=max_bytes, is_synced=is_synced)
        except LimitExceededError as error:
            logger.warning("rebuilding an index: %s", error)
            file.activate_empty()
        return cls(file, base_offset, max_bytes=max_bytes)

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(self._size_max // self._ENTRY_SIZE - self.count, 0)

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry. True for a sealed index."""
        entries = self._file.active
        return entries is None or len(entries) >= self._size_max

    def _full_error(self) -> FormatError:
        return FormatError(f"{self.path} is full with {self.count} entries")

    def extend(self, entries: bytes | bytearray | memoryview) -> None:
        """Add encoded entries that a kernel derived from the log; they must fit: see `room`."""
        assert len(entries) <= self.room * self._ENTRY_SIZE, (self.path, len(entries), self.room)
        self._file.extend(entries)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at or after `offset`."""
        entries = self._file.entries
        last_kept = offset - self.base_offset - 1
        kept = 1 + floor_slot(entries, self._LAYOUT, self._OFFSET_FIELD, last_kept)
        if kept < len(entries) // self._ENTRY_SIZE:
            self._file.truncate_to(kept)

    def clear(self) -> None:
        """Drop all entries, to derive them again from the log as it is."""
        if self._file.is_active:
            self._file.derive_anew()
        else:
            self._file.truncate_to(0)

    def _slot_at(self, slot: int) -> tuple[bytearray | memoryview, int]:
        """All entries, and the position of the slot in them; `IndexError` if there is none."""
        entries = self._file.entries
        position = slot * self._ENTRY_SIZE
        if not 0 <= position < len(entries):
            raise IndexError(f"no entry {slot} in {self.path}")
        return entries, position
