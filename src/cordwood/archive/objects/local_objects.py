"""Objects as files in a directory."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from cordwood.archive.objects.object_port import PIECE_BYTES, ObjectInfo, check_whole, checked_key
from cordwood.errors import DirectoryLockedError
from cordwood.format.file_names import LOCK
from cordwood.storage.files import (
    TEMPORARY_SUFFIX,
    Buffer,
    FileSystem,
    make_durable_directory,
    read_whole,
    write_all,
)


class LocalObjects:
    """Objects as files in a directory. Writes a temporary file, syncs it and renames it."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._root = root

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def put(self, key: str, pieces: Iterable[Buffer]) -> None:
        path = self._path(key)
        directory = os.path.dirname(path)
        if not self._fs.exists(directory):
            make_durable_directory(self._fs, directory)
        temporary = path + TEMPORARY_SUFFIX
        try:
            file = self._fs.create(temporary, exclusive=False)
            try:
                position = 0
                for piece in pieces:
                    write_all(file, position, piece)
                    position += len(piece)
                file.sync()
            finally:
                file.close()
            self._fs.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._fs.remove(temporary)
            raise
        self._fs.sync_directory(directory)

    def read(self, key: str) -> Iterator[bytes]:
        file = self._fs.open_read(self._path(key))
        try:
            position = 0
            while piece := file.read_at(position, PIECE_BYTES):
                position += len(piece)
                yield piece
        finally:
            file.close()

    def get_range(self, key: str, position: int, size: int, *, whole: int | None = None) -> bytes:
        file = self._fs.open_read(self._path(key))
        try:
            if whole is not None:
                check_whole(key, size=file.size(), whole=whole)
            return file.read_at(position, size)
        finally:
            file.close()

    @property
    def checksum_part_bytes(self) -> int | None:
        return None  # a directory computes none

    def checksum(self, key: str) -> str | None:
        return None

    def distrust_checksums(self) -> None:
        """Nothing to do: there are none."""

    def size(self, key: str) -> int:
        return self._fs.size(self._path(key))

    # --- conditional puts ----------------------------------------------------------------------

    def why_unconditional(self) -> str | None:
        return None

    def get_tagged(self, key: str, *, limit: int) -> tuple[bytes, str]:
        data = read_whole(self._fs, self._path(key), limit=limit)
        return data, _tag(data)

    def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """One at a time, by a lock of the kernel on the directory of the object.

        On a network file system the lock must be one for all machines, as with NFS 4.
        """
        directory = os.path.dirname(self._path(key))
        if not self._fs.exists(directory):
            make_durable_directory(self._fs, directory)
        try:
            lock = self._fs.lock(directory)
        except DirectoryLockedError as error:
            raise FileExistsError(f"{key} is being replaced by {error.owner}") from error
        try:
            if self._tag_of(key) != replaces:
                raise FileExistsError(f"{key} was replaced meanwhile")
            self.put(key, [data])
        finally:
            lock.release()
        return _tag(data)

    def _tag_of(self, key: str) -> str | None:
        digest = hashlib.sha256()
        try:
            for piece in self.read(key):
                digest.update(piece)
        except FileNotFoundError:
            return None
        return digest.hexdigest()

    def listing(self, prefix: str) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        top = prefix.rstrip("/")
        self._walk(self._path(top), top, found)
        found.sort(key=lambda info: info.key)
        return found

    def _walk(self, path: str, key: str, found: list[ObjectInfo]) -> None:
        try:
            entries = self._fs.list(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.name == LOCK:
                continue
            below = f"{key}/{entry.name}" if key else entry.name
            inner = os.path.join(path, entry.name)
            if entry.is_directory:
                self._walk(inner, below, found)
                continue
            with suppress(FileNotFoundError):  # deleted since it was listed
                modified_ms = self._fs.modified_ms(inner)
                found.append(ObjectInfo(key=below, size=entry.size, modified_ms=modified_ms))

    def names(self, prefix: str) -> list[str]:
        try:
            return [entry.name for entry in self._fs.list(self._path(prefix))]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._fs.remove(path)
        except FileNotFoundError:
            return
        self._fs.sync_directory(os.path.dirname(path))

    def _path(self, key: str) -> str:
        return os.path.join(self._root, checked_key(key)) if key else self._root


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
