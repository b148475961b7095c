"""A file of fixed-size entries, shared by the offset, time and transaction index.

An entry file is derived from its segment and can be rebuilt from it, so it must never cause a
wrong answer or a lost append:

* While active, its entries are in memory and are appended to the file in pieces. (A preallocated
  writable map would raise SIGBUS on a full disk, and would leave zeros behind after a crash.)
  At any moment the file is a whole number of entries, maybe with part of one being written.
* Once sealed, nothing is opened before the first lookup, which maps the file read-only.
* The file is never shortened in place: a shorter one is renamed over it, so maps of the old file,
  in this process and in others, stay valid.

Kafka preallocates its active indexes. After a crash the unused slots are zeros at the end of the
file; they are skipped here.
"""

import contextlib
from struct import Struct
from typing import Final

from cordwood.errors import LimitExceededError, TruncatedInputError
from cordwood.quantities import MIB
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.files import FileSystem, read_whole, replace_file, write_all

# Kafka's default maximum for an index is 10 MiB; this bounds the cost of a damaged one.
_READ_BYTES_MAX: Final = 64 * MIB


class EntryFile:
    """The entries of one file, in order.

    Owned by the segment; only its writer may append, flush, seal, truncate and rename. Any
    thread may take `entries` and search in it meanwhile: it only grows, or is replaced.

    Invariant: while active, the first `_flushed_size` bytes of `active` are in the file.

    active   the entries, in memory, while more may be added; its index may add to them. Else None
    """

    __slots__ = (
        "_entry_size",
        "_file_size",
        "_flushed_size",
        "_fs",
        "_is_derived_anew",
        "_is_mapped",
        "_is_synced",
        "_must_exist",
        "_path",
        "_sealed",
        "_skips_zeros",
        "active",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        entry_size: int,
        *,
        mapped: bool = True,
        skip_zeros: bool = True,
        must_exist: bool = False,
    ) -> None:
        """A sealed file; opens nothing. See `activate` and `create`.

        `mapped=False` reads the file into memory instead, for a file that another program may
        shorten in place (Kafka trims the indexes of its active segment). A missing file is empty,
        unless it `must_exist`: then a search raises `FileNotFoundError`.
        """
        self._fs = fs
        self._path = path
        self._entry_size = entry_size
        self._is_mapped = mapped
        self._skips_zeros = skip_zeros
        self._must_exist = must_exist
        self.active: bytearray | None = None
        self._sealed: memoryview | None = None
        self._flushed_size = 0
        self._file_size = 0
        self._is_synced = False
        self._is_derived_anew = False

    @property
    def path(self) -> str:
        """The path of the file, which exists once the first entry is flushed."""
        return self._path

    @property
    def is_active(self) -> bool:
        """Whether entries may be appended."""
        return self.active is not None

    @property
    def entries(self) -> bytearray | memoryview:
        """The present entries as bytes. Take it once per search; do not keep a view of it."""
        active = self.active
        if active is not None:
            return active
        sealed = self._sealed
        return self._load() if sealed is None else sealed

    @property
    def count(self) -> int:
        """The number of whole entries."""
        return len(self.entries) // self._entry_size

    @property
    def size(self) -> int:
        """Bytes of the entries, flushed or not."""
        return len(self.entries)

    def create(self) -> None:
        """Start empty and active; a leftover file of that name is emptied."""
        self._fs.create(self._path, exclusive=False).close()
        self._activate(bytearray(), file_size=0)

    def activate(self, *, max_bytes: int, is_synced: bool = False) -> None:
        """Load the entries into memory so that more can be appended. A missing file is empty.

        `is_synced`: the last owner made the file durable. Raises `LimitExceededError` if the file
        is far too large; then `activate_empty` is left.
        """
        try:
            content = self._read(max(max_bytes, _READ_BYTES_MAX))
        except FileNotFoundError:
            content = b""
        sound = self._sound_part(memoryview(content))
        self._activate(bytearray(sound), file_size=len(content))
        self._is_synced = is_synced

    def derive_anew(self) -> None:
        """Forget the entries of an active file, to derive them again from the log as it is.

        The file keeps its entries. If they come out the same, nothing is written.
        """
        assert self.active is not None, f"{self._path} is sealed"
        self.active = bytearray()
        self._flushed_size = 0
        self._is_derived_anew = True

    def activate_empty(self) -> None:
        """Forget the entries of the file, to derive them again. The next flush replaces it."""
        self._activate(bytearray(), file_size=self._size_on_disk())

    def append(self, entry: bytes) -> None:
        """Add one entry in memory. See `flush`."""
        assert self.active is not None, f"{self._path} is sealed"
        assert len(entry) == self._entry_size, entry
        self.active += entry

    def extend(self, entries: bytes | bytearray | memoryview) -> None:
        """Add encoded entries in memory, as a kernel found them in a segment."""
        assert self.active is not None, f"{self._path} is sealed"
        assert len(entries) % self._entry_size == 0, len(entries)
        self.active += entries

    def flush(self) -> None:
        """Write the entries that are not in the file yet. After an error, flush again."""
        active = self.active
        if active is None:
            return
        if self._is_derived_anew:
            self._recognize(active)
        if self._file_size > self._flushed_size:  # a torn entry, or Kafka's unused slots
            self._replace(bytes(active[: self._flushed_size]))
        data = bytes(active[self._flushed_size :])
        if not data:
            return
        self._is_synced = False
        try:
            file = self._fs.open_write(self._path)
        except FileNotFoundError:
            file = self._fs.create(self._path)
            self._flushed_size = 0
            data = bytes(active)
        try:
            write_all(file, self._flushed_size, data)
        finally:
            file.close()
        self._flushed_size += len(data)
        self._file_size = self._flushed_size

    def _recognize(self, active: bytearray) -> None:
        """Count entries as flushed that were derived again and are in the file already."""
        self._is_derived_anew = False
        try:
            content = self._read(_READ_BYTES_MAX)
        except (FileNotFoundError, LimitExceededError):
            return
        if content and active.startswith(content):
            self._flushed_size = self._file_size = len(content)

    def sync(self) -> None:
        """Flush, then make the entries durable. The caller syncs the directory for a new name."""
        self.flush()
        if self._is_synced:
            return
        try:
            file = self._fs.open_write(self._path)
        except FileNotFoundError:
            return  # nothing was ever added
        try:
            file.sync()
            self._is_synced = True
        except OSError:
            # Nobody knows what reached the disk: the next flush writes all of it again.
            self._flushed_size = 0
            raise
        finally:
            file.close()

    def seal(self) -> None:
        """Sync and release the memory; from now on lookups map the file."""
        self.sync()
        self._sealed = None
        self.active = None

    def truncate_to(self, count: int) -> None:
        """Keep the first `count` entries."""
        kept = bytes(self.entries[: count * self._entry_size])
        if self.active is None:
            self._replace(kept)
            self._sealed = None
            return
        if len(kept) < self._file_size:
            self._replace(kept[: self._flushed_size])
        # A new array, not a shorter one: a running search keeps the one it took.
        self.active = bytearray(kept)

    def check_size(self) -> None:
        """Raise `FormatError` unless the file is a whole number of entries."""
        size = self._file_size if self.is_active else self._size_on_disk()
        if torn_size := size % self._entry_size:
            raise TruncatedInputError(
                "last index entry",
                needed=self._entry_size,
                got=torn_size,
                position=size - torn_size,
            )

    def rename(self, path: str) -> None:
        """Rename the file. A missing file is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rename(self._path, path)
        self._path = path

    def remove(self) -> None:
        """Remove the file if it exists. Running searches are not affected."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(self._path)

    def release(self) -> None:
        """Unmap a sealed file until the next search.

        A reader next to a live writer does this to see entries appended since.
        """
        self._sealed = None

    def close(self) -> None:
        """Release map and memory without flushing; call `seal` first to keep new entries."""
        self._sealed = None
        self.active = None

    def _activate(self, entries: bytearray, *, file_size: int) -> None:
        self._flushed_size = len(entries)
        self._file_size = file_size
        self._is_synced = self._is_derived_anew = False
        self.active = entries
        self._sealed = None

    def _size_on_disk(self) -> int:
        try:
            return self._fs.size(self._path)
        except FileNotFoundError:
            return 0

    def _load(self) -> memoryview:
        try:
            view = self._map() if self._is_mapped else memoryview(self._read(_READ_BYTES_MAX))
        except FileNotFoundError:
            if self._must_exist:
                raise
            return memoryview(b"")
        self._sealed = sealed = self._sound_part(view)
        return sealed

    def _map(self) -> memoryview:
        file = self._fs.open_read(self._path)
        try:
            return file.map()
        finally:
            file.close()

    def _read(self, limit: int) -> bytes:
        return read_whole(self._fs, self._path, limit=limit)

    def _sound_part(self, view: memoryview) -> memoryview:
        """The entries without a partial last one and without Kafka's unused slots."""
        size = self._entry_size
        count = len(view) // size
        unused = bytes(size)
        view = view[: count * size]
        if not self._skips_zeros or count <= 1 or view[-size:] != unused:
            return view
        low, high = 1, count - 1  # the first unused slot; only slot 0 may be zeros and used
        while low < high:
            middle = (low + high) // 2
            if view[middle * size : (middle + 1) * size] == unused:
                high = middle
            else:
                low = middle + 1
        return view[: 0 if low == 1 and view[:size] == unused else low * size]

    def _replace(self, content: bytes) -> None:
        try:
            replace_file(self._fs, self._path, content)
        except OSError as error:
            if self.active is None or error.errno not in FULL_DISK_ERRNOS:
                raise
            # No space for a second file. The entries are still in memory, and the next flush
            # that finds space writes them all.
            self._fs.remove(self._path)
            content = b""
        self._flushed_size = self._file_size = len(content)


def floor_slot(entries: bytearray | memoryview, layout: Struct, field: int, target: int) -> int:
    """The last slot whose `field` is at most `target`; -1 if there is none.

    `field` is its number within `layout`; its values must not decrease from entry to entry.
    """
    unpack_from, size = layout.unpack_from, layout.size
    low, high = 0, len(entries) // size
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(entries, middle * size)[field] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1
