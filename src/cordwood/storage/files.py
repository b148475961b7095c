"""The file-system port, and the real file system that implements it.

All other code reaches the disk through `FileSystem`, so that a simulated one can lose power or
fail the Nth call. The port promises no more than a disk does:

    write_at          in the kernel, not on the disk; may be short
    File.sync         the file's data and size are on the disk; its name may not be
    sync_directory    the names in that directory (created, renamed, removed) are on the disk
    rename            atomic: after a crash the new name holds the old file or the new one

After a failed `sync` the state of the unsynced bytes stays unknown: the kernel may have dropped
them and marked them clean, so a second `sync` that succeeds proves nothing. Callers must stop
trusting the file, and must not retry.

An `OSError` passes through with a note that names the file. Paths are `str`.
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from cordwood.errors import LimitExceededError, TruncatedInputError
from cordwood.storage.disk.directory_lock import DirectoryLock, lock_directory
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.disk.real_file import RealDirectory, RealFile, RealWordMap, map_file, noting
from cordwood.value_class import dataclass

Buffer: TypeAlias = bytes | bytearray | memoryview

WORD_SIZE: Final = 8
TEMPORARY_SUFFIX: Final = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """One name in a directory. `size` is 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class File(Protocol):
    """An open file, read and written by position.

    Any number of threads may use it at a time, with one writer among them. Call `close` only if
    nobody else uses the file; otherwise drop the reference, and the last user closes it.
    """

    @property
    def name(self) -> str:
        """The path at which it was opened, for messages; outdated after a rename."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """`size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; return the bytes read, fewer only at the end."""
        ...

    def write_at(self, position: int, data: Buffer) -> int:
        """One write; return the number of bytes written, maybe not all. See `write_all`."""
        ...

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def truncate_to(self, size: int) -> None:
        """Truncate to `size`, or extend with zeros. Not durable before `sync`."""
        ...

    def sync(self) -> None:
        """Make data and size durable. After an error, unsynced bytes can never be trusted."""
        ...

    def map(self) -> memoryview:
        """A read-only map of the whole file as it is now; an empty view for an empty file.

        The view stays valid after `close`. Reading a part that was truncated since kills the
        process, so map only files that are never shortened in place.
        """
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile; `io.UnsupportedOperation` if there is none."""
        ...

    @property
    def sync_descriptor(self) -> int | None:
        """The descriptor, if `sync` is no more than its fdatasync, which the kernel can run."""
        ...

    def close(self) -> None:
        """Close the descriptor; safe to repeat. Garbage collection does it too."""
        ...


class Words(Protocol):
    """Signed 64-bit words by index."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class WordMap(Protocol):
    """A file of signed 64-bit words in native byte order, shared between processes.

    Each load and store is one aligned 8-byte access, so another process sees the old word or the
    new one. The order of stores to different words is not guaranteed.
    """

    @property
    def cells(self) -> "Words":
        """The words themselves, until the map is closed: the quickest way to load and store."""
        ...

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def sync(self) -> None:
        """Make the words durable."""
        ...

    def close(self) -> None:
        """Unmap; safe to repeat."""
        ...


class DirectoryHandle(Protocol):
    """An open directory. It needs no descriptor when its names must become durable."""

    def sync(self) -> None:
        """Make the names in the directory durable."""
        ...

    def close(self) -> None:
        """Close the descriptor; safe to repeat. Garbage collection does it too."""
        ...


class LockHandle(Protocol):
    """A held directory lock."""

    def release(self) -> None:
        """Release the lock; safe to repeat."""
        ...


class FileSystem(Protocol):
    """The operations that Cordwood needs from a file system."""

    def open_read(self, path: str) -> File:
        """Open an existing file for reading."""
        ...

    def open_write(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        ...

    def create(self, path: str, *, exclusive: bool = True, is_private: bool = False) -> File:
        """Create an empty file for reading and writing.

        If it exists: `FileExistsError`; without `exclusive`, it is emptied. A new private file
        can be read by its owner alone.
        """
        ...

    def map_words(self, path: str, count: int, *, writable: bool) -> WordMap:
        """Map a file of `count` words; if it is writable and missing, create it with zeros.

        Nothing is durable before `WordMap.sync`.

        If not writable: `FileNotFoundError` if it is missing, `TruncatedInputError` if too short.
        """
        ...

    def list(self, path: str) -> list[DirectoryEntry]:
        """The entries of the directory, sorted by name."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """The names of the entries, sorted; quicker than `list`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the file."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in ms since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; it may exist already."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its contents."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, atomically replacing a file of that name."""
        ...

    def link(self, existing: str, new: str) -> None:
        """Create a hard link; `FileExistsError` if the new name exists."""
        ...

    def is_shared(self, path: str) -> bool:
        """Whether the file has another hard link, which a change in place would change too."""
        ...

    def open_directory(self, path: str) -> DirectoryHandle:
        """Open the directory, to sync its names later without needing a descriptor then."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Free bytes for an unprivileged process."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the disk in bytes."""
        ...

    def lock(self, path: str) -> LockHandle:
        """Become the only writer of a directory, or raise `DirectoryLockedError`."""
        ...


def write_all(file: File, position: int, data: Buffer) -> None:
    """Write all of `data` at `position`, with as many writes as it takes.

    After an `OSError` some of it may be in the file; the caller must truncate or stop.
    """
    written = file.write_at(position, data)
    if written != len(data):
        write_rest(file, position, data, written)


def write_rest(file: File, position: int, data: Buffer, written: int) -> None:
    """Complete a write of `data` at `position` of which only `written` bytes were accepted."""
    rest = memoryview(data).cast("B")
    while True:
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepted no bytes and reported no error", file.name)
        position += written
        rest = rest[written:]
        if not rest:
            return
        written = file.write_at(position, rest)


def write_file(fs: FileSystem, path: str, content: Buffer) -> None:
    """Create the file with `content`, or overwrite it. Not durable, and not atomic."""
    file = fs.create(path, exclusive=False)
    try:
        write_all(file, 0, content)
    finally:
        file.close()


def sync_file(fs: FileSystem, path: str) -> None:
    """Make the content of a file durable that another handle wrote."""
    file = fs.open_write(path)
    try:
        file.sync()
    finally:
        file.close()


def replace_file(fs: FileSystem, path: str, content: Buffer, *, is_private: bool = False) -> None:
    """Replace the file at `path` durably; after a crash it has the old content or the new."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        if is_private:
            # One that somebody else left there would keep its owner and its mode.
            with contextlib.suppress(FileNotFoundError):
                fs.remove(temporary)
        file = fs.create(temporary, exclusive=is_private, is_private=is_private)
        try:
            write_all(file, 0, content)
            file.sync()
        finally:
            file.close()
        fs.rename(temporary, path)
    except OSError:
        # A half-written temporary file does no harm, but takes space on a full disk.
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(os.path.dirname(path) or ".")


def make_durable_directory(fs: FileSystem, path: str) -> None:
    """Create the directory and its parents, all of them durable on return.

    An earlier process may have created a parent and crashed before it synced the name, so all
    parents are synced. An error counts only for directories that were created here.
    """
    above = path
    names: list[tuple[str, bool]] = []
    while (parent := os.path.dirname(above)) != above:
        names.append((parent or ".", not fs.exists(above)))
        above = parent
    fs.make_directory(path)
    for parent, is_new in names:
        try:
            fs.sync_directory(parent)
        except OSError:
            if is_new:
                raise


def read_whole(fs: FileSystem, path: str, *, limit: int) -> bytes:
    """The content of the file; `LimitExceededError` if it is larger than `limit`."""
    file = fs.open_read(path)
    try:
        size = file.size()
        if size > limit:
            raise LimitExceededError(f"file {path}", size=size, limit=limit)
        return file.read_at(0, size)
    finally:
        file.close()


class RealFileSystem:
    """The file system of the operating system. Any number of instances may exist.

    `access` says who may use the files and directories that it creates.
    """

    def __init__(self, access: FileAccess = FileAccess.OWNER) -> None:
        self._access = access

    def open_read(self, path: str) -> RealFile:
        # Without O_NONBLOCK, opening a pipe would wait for somebody who writes to it.
        return self._opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), path)

    def open_write(self, path: str) -> RealFile:
        return self._opened(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def create(self, path: str, *, exclusive: bool = True, is_private: bool = False) -> RealFile:
        how = os.O_EXCL if exclusive else os.O_TRUNC
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | how
        access = FileAccess.OWNER if is_private else self._access
        return self._opened(os.open(path, flags, access.file_mode), path)

    def _opened(self, fd: int, path: str) -> RealFile:
        return RealFile(fd, path)

    def map_words(self, path: str, count: int, *, writable: bool) -> RealWordMap:
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        file = RealFile(os.open(path, flags | os.O_CLOEXEC, self._access.file_mode), path)
        try:
            wanted, size = count * WORD_SIZE, file.size()
            if size < wanted:
                if not writable:
                    raise TruncatedInputError(f"{count} words", needed=wanted, got=size)
                # Write real zeros: storing into a hole of a file on a full disk is a SIGBUS.
                write_all(file, size, bytes(wanted - size))
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            with noting("mapping", path):
                return RealWordMap(map_file(file.fileno(), wanted, access=access), path)
        finally:
            file.close()

    def list(self, path: str) -> list[DirectoryEntry]:
        entries = []
        with os.scandir(path) as found:
            for item in found:
                is_directory = item.is_dir()
                try:
                    size = 0 if is_directory else item.stat().st_size
                except FileNotFoundError:  # removed since the name was read, or a dangling link
                    continue
                entries.append(DirectoryEntry(name=item.name, is_directory=is_directory, size=size))
        entries.sort(key=lambda entry: entry.name)
        return entries

    def names(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True  # other errors are raised: "unknown" must not look like "missing"

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        above = os.path.dirname(path)
        if above and not os.path.isdir(above):
            self.make_directory(above)  # `makedirs` would give parents another mode
        try:
            os.mkdir(path, self._access.directory_mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        import shutil  # not at the top: it loads every codec of archives

        shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, existing: str, new: str) -> None:
        os.link(existing, new)

    def is_shared(self, path: str) -> bool:
        return os.stat(path).st_nlink > 1

    def open_directory(self, path: str) -> RealDirectory:
        return RealDirectory(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)

    def sync_directory(self, path: str) -> None:
        directory = self.open_directory(path)
        try:
            directory.sync()
        finally:
            directory.close()

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def lock(self, path: str) -> DirectoryLock:
        return lock_directory(path, self._access)
