"""Local copies of archived files, bounded in bytes.

A file is fetched whole when it is first read, checked against the SHA-256 of the manifest, and kept
until its space is needed; the least recently used file is removed first. A file that is larger than
the cache is admitted alone. A reader that has a file open can go on reading after it was removed.

No file outlives the process that fetched it: the directory is emptied when it is first used.
"""

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Protocol
from weakref import ref

from cordwood.archive.manifest import ArchivedFile
from cordwood.archive.object_store import ObjectStore, copy_into
from cordwood.errors import FormatError, StorageError
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.storage.files import TEMPORARY_SUFFIX, FileSystem
from cordwood.value_class import dataclass


class Holder(Protocol):
    """Reads a cached file and can close it on request."""

    def release(self) -> None: ...


@dataclass(slots=True)
class _Entry:
    size: int
    holder: "ref[Holder]"
    is_ready: bool = False


class SegmentCache:
    """The cache of one store. Any thread may use it; only one thread fetches a file.

    Without a `directory` it makes a temporary one when it is first needed.
    """

    def __init__(
        self, fs: FileSystem, directory: str | None = None, *, bytes_max: int = CACHE_BYTES
    ) -> None:
        self._directory = directory
        self.bytes_max = bytes_max
        self.fetched_bytes = 0
        self._fs = fs
        self._changed = threading.Condition()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        self._is_prepared = False

    @property
    def directory(self) -> str:
        with self._changed:
            if self._directory is None:
                self._directory = tempfile.mkdtemp(prefix="cordwood-archive-")
            return self._directory

    @property
    def size_bytes(self) -> int:
        """Bytes of all files in the cache, including those being fetched."""
        return self._size

    def touch(self, path: str) -> None:
        """The file was used: remove it later."""
        with self._changed:
            if path in self._entries:
                self._entries.move_to_end(path)

    def ensure(
        self, path: str, objects: ObjectStore, key: str, file: ArchivedFile, holder: Holder
    ) -> None:
        """Fetch the archived `file` to `path`, below the cache's directory, unless it is there.

        Raises `StorageError` if the object is not the one that the manifest describes.
        """
        if not self._claim(path, file.size, holder):
            return
        try:
            self._fetch(path, objects, key, file)
        except BaseException:
            self._settle(path, is_ready=False)
            raise
        self._settle(path, is_ready=True)

    def _claim(self, path: str, size: int, holder: Holder) -> bool:
        """False if the file is there. If True, there is room for it and the caller fetches it."""
        with self._changed:
            while (known := self._entries.get(path)) is not None:
                if known.is_ready:
                    known.holder = ref(holder)
                    self._entries.move_to_end(path)
                    return False
                self._changed.wait()  # another thread is fetching it
            self._prepare()
            for victim, entry in list(self._entries.items()):
                if self._size + size <= self.bytes_max:
                    break
                if entry.is_ready:
                    del self._entries[victim]
                    self._size -= entry.size
                    self._remove(victim, entry)
            self._entries[path] = _Entry(size, ref(holder))
            self._size += size
            return True

    def forget(self, path: str) -> None:
        """The file is missing although it should be there: fetch it again when asked."""
        with self._changed:
            entry = self._entries.get(path)
            if entry is not None and entry.is_ready:
                del self._entries[path]
                self._size -= entry.size

    def _settle(self, path: str, *, is_ready: bool) -> None:
        with self._changed:
            entry = self._entries.get(path)
            if entry is not None and is_ready:
                entry.is_ready = True
            elif entry is not None:
                del self._entries[path]
                self._size -= entry.size
            self._changed.notify_all()

    def _prepare(self) -> None:
        if not self._is_prepared and self._directory is not None:
            with suppress(FileNotFoundError):
                self._fs.remove_tree(self._directory)
            self._fs.make_directory(self._directory)
            self._is_prepared = True

    def _fetch(self, path: str, objects: ObjectStore, key: str, file: ArchivedFile) -> None:
        digest = hashlib.sha256()
        temporary = path + TEMPORARY_SUFFIX
        self._fs.make_directory(os.path.dirname(path))
        try:
            copy_into(self._fs, temporary, objects.read(key), size=file.size, note=digest.update)
            if digest.hexdigest() != file.sha256:
                raise FormatError("its SHA-256 differs from the manifest")
            self._fs.rename(temporary, path)
        except FormatError as error:
            raise StorageError(f"{objects.url}/{key} is damaged: {error.reason}") from error
        finally:
            with suppress(FileNotFoundError):
                self._fs.remove(temporary)
        with self._changed:
            self.fetched_bytes += file.size

    def _remove(self, path: str, entry: _Entry) -> None:
        holder = entry.holder()
        if holder is not None:
            holder.release()
        with suppress(FileNotFoundError):
            self._fs.remove(path)

    def close(self) -> None:
        """Remove all files. Readers can go on reading the files they have open."""
        with self._changed:
            self._entries.clear()
            self._size = 0
            self._is_prepared = False
            directory = self._directory
        if directory is not None:
            with suppress(OSError):
                self._fs.remove_tree(directory)
