"""The file-system port, and the real file system behind it.

Everything above reaches the disk through `FileSystem`, so that a simulated one can lose power
or fail the Nth call. The port promises no more than a disk does:

    write_at          in the kernel, not on the disk; may be short
    File.sync         the file's data and size are on the disk; its name may not be
    sync_directory    the names in that directory (created, renamed, removed) are on the disk
    rename            atomic: after a crash the new name holds the old file or the new one

After a failed `sync` the state of the unsynced bytes is unknown for good: the kernel may have
dropped them and marked them clean, so a second `sync` that succeeds proves nothing. Callers
stop trusting the file; nobody retries.

An `OSError` passes through with a note naming the file. Paths are `str`.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from cordwood.errors import LimitExceededError, TruncatedInputError
from cordwood.storage.directory_lock import DirectoryLock, lock_directory

Buffer: TypeAlias = bytes | bytearray | memoryview

WORD_SIZE: Final = 8
TEMPORARY_SUFFIX: Final = ".tmp"
_CREATED_FILE_MODE: Final = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """One name in a directory. `size` is 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class File(Protocol):
    """An open file, read and written by position.

    Any number of threads may use one at a time, with one writer among them. `close` is for
    when nobody else holds it; where readers may, drop the reference and the last one closes.
    """

    @property
    def name(self) -> str:
        """The path it was opened by, for messages; stale after a rename."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """`size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; return the bytes read, fewer only at the end."""
        ...

    def write_at(self, position: int, data: Buffer) -> int:
        """One write; return the bytes written, which may be fewer than given. See `write_all`."""
        ...

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def truncate_to(self, size: int) -> None:
        """Cut (or extend with zeros) to `size`. Not durable before `sync`."""
        ...

    def sync(self) -> None:
        """Make data and size durable. After an error nothing unsynced may be trusted again."""
        ...

    def map(self) -> memoryview:
        """A read-only map of the whole file as it is now; an empty view of an empty file.

        The view lives on after `close`. Touching a part that was truncated away since kills the
        process, so map only files that nobody shortens in place.
        """
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile. `io.UnsupportedOperation` where there is none."""
        ...

    @property
    def syncs_by_descriptor(self) -> bool:
        """Whether `sync` is fdatasync of the descriptor, and may be left to the kernel."""
        ...

    def close(self) -> None:
        """Give the descriptor back; safe to repeat. Also done when garbage collected."""
        ...


class WordMap(Protocol):
    """A file of signed 64-bit words in native byte order, shared between processes.

    Each load and store is one aligned 8-byte access: another process sees the old word or the
    new one. Nothing orders two words.
    """

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def sync(self) -> None:
        """Make the words durable."""
        ...

    def close(self) -> None:
        """Unmap; safe to repeat."""
        ...


class LockHandle(Protocol):
    """A held directory lock."""

    def release(self) -> None:
        """Let the next writer in; safe to repeat."""
        ...


class FileSystem(Protocol):
    """What this package asks of a disk."""

    def open_read(self, path: str) -> File:
        """An existing file, for reading."""
        ...

    def open_write(self, path: str) -> File:
        """An existing file, for reading and writing."""
        ...

    def create(self, path: str, *, exclusive: bool = True) -> File:
        """A new, empty file, for reading and writing.

        An existing one is a `FileExistsError`, or is emptied when not `exclusive`.
        """
        ...

    def map_words(self, path: str, count: int, *, writable: bool) -> WordMap:
        """A file of `count` words; created with zeros when writable and missing.

        Read-only, a missing file is a `FileNotFoundError`, a short one a `TruncatedInputError`.
        """
        ...

    def list(self, path: str) -> list[DirectoryEntry]:
        """The directory's entries, in order of name."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        ...

    def size(self, path: str) -> int:
        """Bytes in the file."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in ms since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Date the file back or forward."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and those above it; it may exist already."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, atomically replacing a file that has it."""
        ...

    def link(self, existing: str, new: str) -> None:
        """A second name for a file; `FileExistsError` when the new name is taken."""
        ...

    def is_shared(self, path: str) -> bool:
        """Whether the file has another name too; changing it in place would change that."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Bytes an unprivileged process may still write there."""
        ...

    def total_bytes(self, path: str) -> int:
        """Bytes that the disk there holds, free or not."""
        ...

    def lock(self, path: str) -> LockHandle:
        """Become the one writer of a directory, or raise `DirectoryLockedError`."""
        ...


def write_all(file: File, position: int, data: Buffer) -> None:
    """Write all of `data` at `position`, however short each write is.

    On an `OSError` some of it may be in the file: the caller truncates or stops.
    """
    written = file.write_at(position, data)
    if written == len(data):
        return
    rest = memoryview(data).cast("B")
    while True:
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no bytes and gives no reason", file.name)
        position += written
        rest = rest[written:]
        if not rest:
            return
        written = file.write_at(position, rest)


def replace_file(fs: FileSystem, path: str, content: Buffer) -> None:
    """Make `content` the file at `path`, durably: a crash leaves the old content or the new."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = fs.create(temporary, exclusive=False)
        try:
            write_all(file, 0, content)
            file.sync()
        finally:
            file.close()
        fs.rename(temporary, path)
    except OSError:
        # A half-written temporary file is in nobody's way, but on a full disk it takes room.
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(os.path.dirname(path) or ".")


def make_durable_directory(fs: FileSystem, path: str) -> None:
    """Create the directory and those above it, all of them durable on return.

    A name that an earlier process created and did not live to sync looks like any other, so the
    whole way up is synced. Only a directory that had to be created here must be.
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
    """The file's bytes; `LimitExceededError` before reading more than `limit` of them."""
    file = fs.open_read(path)
    try:
        size = file.size()
        if size > limit:
            raise LimitExceededError(f"file {path}", size=size, limit=limit)
        return file.read_at(0, size)
    finally:
        file.close()


@contextlib.contextmanager
def _noting(action: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.add_note(f"while {action} {name}")
        raise


class RealFile:
    """A file of the operating system. See `File`."""

    __slots__ = ("_fd", "_name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            if len(data) == size or not data:
                return data
            # Short of the end too: the kernel caps one read just under 2 GiB.
            pieces = [data]
            while size := size - len(data):
                position += len(data)
                data = os.pread(self._fd, size, position)
                if not data:
                    break
                pieces.append(data)
            return b"".join(pieces)
        except OSError as error:
            error.add_note(f"while reading {self._name}")
            raise

    def read_into(self, position: int, buffer: memoryview) -> int:
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            error.add_note(f"while reading {self._name}")
            raise
        return done

    def write_at(self, position: int, data: Buffer) -> int:
        try:
            return os.pwrite(self._fd, data, position)
        except OSError as error:
            error.add_note(f"while writing {self._name}")
            raise

    def size(self) -> int:
        with _noting("measuring", self._name):
            return os.fstat(self._fd).st_size

    def truncate_to(self, size: int) -> None:
        with _noting("truncating", self._name):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        with _noting("syncing", self._name):
            _sync_data(self._fd)

    def map(self) -> memoryview:
        with _noting("mapping", self._name):
            if os.fstat(self._fd).st_size == 0:  # mmap refuses to map nothing
                return memoryview(b"")
            return memoryview(_map(self._fd, 0, access=mmap.ACCESS_READ))

    @property
    def syncs_by_descriptor(self) -> bool:
        return hasattr(os, "fdatasync")

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # An error of close(2) has nowhere to go from here, and nothing unsynced was promised.
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class RealWordMap:
    """Words in a shared memory map. See `WordMap`."""

    __slots__ = ("_map", "_path", "_words")

    def __init__(self, mapped: mmap.mmap, path: str) -> None:
        self._map = mapped
        self._path = path
        self._words = memoryview(mapped).cast("q")

    def __getitem__(self, index: int, /) -> int:
        return self._words[index]

    def __setitem__(self, index: int, value: int, /) -> None:
        self._words[index] = value

    def sync(self) -> None:
        # By a descriptor and not by mmap.flush, which keeps every other thread waiting (it does
        # not let go of the interpreter's lock). What was stored through a shared map is part of
        # the file for fsync too.
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with _noting("syncing", self._path):
                _sync_data(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._words.release()
        self._map.close()


class RealFileSystem:
    """The operating system's files. Stateless: any number may be used side by side."""

    def open_read(self, path: str) -> RealFile:
        return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def open_write(self, path: str) -> RealFile:
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def create(self, path: str, *, exclusive: bool = True) -> RealFile:
        how = os.O_EXCL if exclusive else os.O_TRUNC
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | how
        return RealFile(os.open(path, flags, _CREATED_FILE_MODE), path)

    def map_words(self, path: str, count: int, *, writable: bool) -> RealWordMap:
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        file = RealFile(os.open(path, flags | os.O_CLOEXEC, _CREATED_FILE_MODE), path)
        try:
            wanted, size = count * WORD_SIZE, file.size()
            if size < wanted:
                if not writable:
                    raise TruncatedInputError(f"{count} words", needed=wanted, got=size)
                # Real zeros on real blocks: storing into a hole of a full disk is a SIGBUS.
                write_all(file, size, bytes(wanted - size))
                file.sync()
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            with _noting("mapping", path):
                return RealWordMap(_map(file.fileno(), wanted, access=access), path)
        finally:
            file.close()

    def list(self, path: str) -> list[DirectoryEntry]:
        entries = []
        with os.scandir(path) as found:
            for item in found:
                is_directory = item.is_dir()
                try:
                    size = 0 if is_directory else item.stat().st_size
                except FileNotFoundError:  # removed, or a dangling link, since the name was read
                    continue
                entries.append(DirectoryEntry(name=item.name, is_directory=is_directory, size=size))
        entries.sort(key=lambda entry: entry.name)
        return entries

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True  # any other error is raised: "cannot tell" must not read as "not there"

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, existing: str, new: str) -> None:
        os.link(existing, new)

    def is_shared(self, path: str) -> bool:
        return os.stat(path).st_nlink > 1

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _noting("syncing directory", path):
                os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def lock(self, path: str) -> DirectoryLock:
        return lock_directory(path)


if sys.platform == "darwin":

    def _sync_data(fd: int) -> None:
        # fsync on macOS stops at the drive's cache; only this reaches the platter.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:

    def _sync_data(fd: int) -> None:
        os.fdatasync(fd)


if sys.version_info >= (3, 13):

    def _map(fd: int, length: int, *, access: int) -> mmap.mmap:
        # Without this every map keeps a descriptor of its own open, for a resize we never do.
        return mmap.mmap(fd, length, access=access, trackfd=False)

else:

    def _map(fd: int, length: int, *, access: int) -> mmap.mmap:
        return mmap.mmap(fd, length, access=access)
