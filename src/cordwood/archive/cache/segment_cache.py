"""Local copies of archived files, bounded in bytes.

An index is fetched whole when it is first read, and checked against the SHA-256 of the manifest.
A log file is fetched in parts (`ranged_file`), and counts with the parts that are here. A file is
kept until its space is needed; the least recently used file is removed first. A file that is larger
than the cache is admitted alone. A reader that has a file open can go on reading after it was
removed.

No file outlives the process that fetched it: the directory is emptied when it is first used.
"""

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol
from weakref import ref

from cordwood.archive.cache.claims import LOOK_S, Claim, is_void
from cordwood.archive.manifests.segment_copy import ArchivedFile
from cordwood.archive.objects.object_port import ObjectStore, copy_into
from cordwood.errors import FormatError, LogClosedError, StorageError
from cordwood.log.rules.fork_refusal import refuse_after_fork
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.storage.files import TEMPORARY_SUFFIX, File, FileSystem
from cordwood.value_class import dataclass


class Holder(Protocol):
    """Reads a cached file and can close it on request.

    `release` is called with the lock of the cache held, so it must not call the cache.
    """

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPart:
    """What a file in the cache must be. `source` names the object for messages."""

    path: str
    size: int
    sha256: str
    source: str


@dataclass(slots=True)
class _Entry:
    size: int
    holder: "ref[Holder]"
    claim: "ref[Claim] | None" = None  # of who fetches it; None: it is ready
    token: object = None  # of who fills the file in parts


class SegmentCache:
    """The cache of one store. Any thread may use it; only one thread fetches a file.

    Without a `directory` it makes a temporary one when it is first needed. A forked child is
    refused: the files are its parent's.
    """

    def __init__(
        self, fs: FileSystem, directory: str | None = None, *, bytes_max: int = CACHE_BYTES
    ) -> None:
        self._directory = directory
        self.bytes_max = bytes_max
        self.fetched_bytes = 0
        self._fs = fs
        self._lock = threading.RLock()  # an interrupt in `with condition:` would leave it taken
        self._changed = threading.Condition(self._lock)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        self._is_prepared = False
        self._is_closed = False
        refuse_after_fork(self, "the cache of the archive")

    @property
    def directory(self) -> str:
        with self._lock:
            if self._directory is None:
                self._directory = tempfile.mkdtemp(prefix="cordwood-archive-")
            return self._directory

    @property
    def size_bytes(self) -> int:
        """Bytes of all files in the cache, including those being fetched."""
        return self._size

    def touch(self, path: str) -> None:
        """The file was used: remove it later."""
        with self._lock:
            if path in self._entries:
                self._entries.move_to_end(path)

    def ensure(
        self, path: str, objects: ObjectStore, key: str, file: ArchivedFile, holder: Holder
    ) -> None:
        """Fetch the archived `file`, an object of its own, to `path`: see `ensure_part`."""
        part = CachedPart(
            path=path, size=file.size, sha256=file.sha256, source=f"{objects.url}/{key}"
        )
        self.ensure_part(part, lambda: objects.read(key), holder)

    def ensure_part(
        self, part: "CachedPart", pieces: Callable[[], Iterable[bytes]], holder: Holder
    ) -> None:
        """Write `pieces` to a file below the cache's directory, unless it is there.

        Raises `StorageError` if they are not what the manifest describes.
        """
        claim = Claim()
        try:
            if self._claim(part.path, part.size, holder, claim):
                self._fetch_claimed(part, pieces)
        finally:
            claim.is_open = False  # whatever an interrupt left of it

    def _fetch_claimed(self, part: "CachedPart", pieces: Callable[[], Iterable[bytes]]) -> None:
        try:
            self._fetch(part, pieces)
        except BaseException:
            self._settle(part.path, is_ready=False)
            raise
        self._settle(part.path, is_ready=True)

    def has(self, path: str) -> bool:
        """Whether the file is here, or being fetched."""
        with self._lock:
            return path in self._entries

    # --- files that are filled in parts -------------------------------------------------------

    def admit(self, path: str, holder: Holder, token: object) -> File:
        """Begin an empty file of which parts will be written; `grow` needs the same `token`.

        A file that is there is removed. Who has it open goes on with it.
        """
        with self._lock:
            self._prepare()
            known = self._entries.pop(path, None)
            if known is not None:
                self._size -= known.size
                self._remove(path, known)
            self._fs.make_directory(os.path.dirname(path))
            with suppress(FileNotFoundError):
                self._fs.remove(path)
            file = self._fs.create(path, exclusive=True)
            self._entries[path] = _Entry(0, ref(holder), token=token)
            self._entries.move_to_end(path)
            return file

    def grow(self, path: str, token: object, size: int) -> bool:
        """Make room for `size` more bytes in the file; False if it was removed meanwhile.

        Also if it was removed and another file took its place, with another token.
        """
        with self._lock:
            self.fetched_bytes += size
            entry = self._entries.get(path)
            if entry is None or entry.token is not token:
                return False
            self._make_room(size, kept=path)
            entry.size += size
            self._size += size
            self._entries.move_to_end(path)
            return True

    def note_fetched(self, size: int) -> None:
        """So many bytes were fetched, and are not in the cache."""
        with self._lock:
            self.fetched_bytes += size

    def _claim(self, path: str, size: int, holder: Holder, claim: Claim) -> bool:
        """False if the file is there. If True, there is room for it and the caller fetches it."""
        with self._lock:
            while (known := self._entries.get(path)) is not None:
                if known.claim is None:
                    known.holder = ref(holder)
                    self._entries.move_to_end(path)
                    return False
                if is_void(known.claim):
                    del self._entries[path]
                    self._size -= known.size
                else:
                    self._changed.wait(LOOK_S)  # another thread is fetching it
            self._prepare()
            self._make_room(size, kept=path)
            claim.is_open = True
            self._entries[path] = _Entry(size, ref(holder), ref(claim))
            self._size += size
            return True

    def _make_room(self, size: int, *, kept: str) -> None:
        for victim, entry in list(self._entries.items()):
            if self._size + size <= self.bytes_max:
                break
            if entry.claim is None and victim != kept:
                del self._entries[victim]
                self._size -= entry.size
                self._remove(victim, entry)

    def forget(self, path: str) -> None:
        """The file is missing although it should be there: fetch it again when asked."""
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None and entry.claim is None:
                del self._entries[path]
                self._size -= entry.size

    def _settle(self, path: str, *, is_ready: bool) -> None:
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None and is_ready:
                entry.claim = None
            elif entry is not None:
                del self._entries[path]
                self._size -= entry.size
            self._changed.notify_all()

    def _prepare(self) -> None:
        if self._is_closed:
            raise LogClosedError("the store that reads this archive")
        if not self._is_prepared and self._directory is not None:
            with suppress(FileNotFoundError):
                self._fs.remove_tree(self._directory)
            self._fs.make_directory(self._directory)
            self._is_prepared = True

    def _fetch(self, part: "CachedPart", pieces: Callable[[], Iterable[bytes]]) -> None:
        digest = hashlib.sha256()
        temporary = part.path + TEMPORARY_SUFFIX
        self._fs.make_directory(os.path.dirname(part.path))
        try:
            copy_into(self._fs, temporary, pieces(), size=part.size, note=digest.update)
            if digest.hexdigest() != part.sha256:
                raise FormatError("its SHA-256 differs from the manifest")
            self._fs.rename(temporary, part.path)
        except FormatError as error:
            raise StorageError(f"{part.source} is damaged: {error.reason}") from error
        finally:
            with suppress(FileNotFoundError):
                self._fs.remove(temporary)
        with self._lock:
            self.fetched_bytes += part.size

    def _remove(self, path: str, entry: _Entry) -> None:
        holder = entry.holder()
        if holder is not None:
            holder.release()
        with suppress(FileNotFoundError):
            self._fs.remove(path)

    def close(self) -> None:
        """Remove all files. Readers can go on with what they have open, and fetch nothing more."""
        with self._lock:
            self._entries.clear()
            self._size = 0
            self._is_closed = True
            directory = self._directory
        if directory is not None:
            with suppress(OSError):
                self._fs.remove_tree(directory)
