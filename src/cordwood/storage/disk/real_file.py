"""Files and directories of the operating system, and a file of words mapped into memory.

They implement `File`, `DirectoryHandle` and `WordMap`, which `files` defines and documents. An
`OSError` passes through with a note that names the file.
"""

import contextlib
import fcntl
import mmap
import os
import sys
from collections.abc import Iterator
from typing import Final

_HAS_FDATASYNC: Final = hasattr(os, "fdatasync")


@contextlib.contextmanager
def noting(action: str, name: str) -> Iterator[None]:
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
            # Not only at the end of the file: the kernel reads at most just under 2 GiB at once.
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

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        try:
            return os.pwrite(self._fd, data, position)
        except OSError as error:
            error.add_note(f"while writing {self._name}")
            raise

    def size(self) -> int:
        with noting("measuring", self._name):
            return os.fstat(self._fd).st_size

    def truncate_to(self, size: int) -> None:
        with noting("truncating", self._name):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        with noting("syncing", self._name):
            _sync_data(self._fd)

    def map(self) -> memoryview:
        with noting("mapping", self._name):
            if os.fstat(self._fd).st_size == 0:  # mmap cannot map an empty file
                return memoryview(b"")
            return memoryview(map_file(self._fd, 0, access=mmap.ACCESS_READ))

    @property
    def sync_descriptor(self) -> int | None:
        return self._fd if _HAS_FDATASYNC else None

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # An error of close(2) cannot be reported here, and concerns no acknowledged data.
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class RealDirectory:
    """A directory of the operating system. See `DirectoryHandle`."""

    __slots__ = ("_fd", "_name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._name = name

    def sync(self) -> None:
        with noting("syncing directory", self._name):
            os.fsync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class RealWordMap:
    """Words in a shared memory map. See `WordMap`."""

    __slots__ = ("_map", "_path", "_words")

    def __init__(self, mapped: mmap.mmap, path: str) -> None:
        self._map = mapped
        self._path = path
        self._words = memoryview(mapped).cast("q")

    @property
    def cells(self) -> "memoryview[int]":
        return self._words

    def __getitem__(self, index: int, /) -> int:
        return self._words[index]

    def __setitem__(self, index: int, value: int, /) -> None:
        self._words[index] = value

    def sync(self) -> None:
        # Uses a descriptor, not mmap.flush, which blocks all other threads because it does not
        # release the GIL. fsync also covers stores through a shared map.
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with noting("syncing", self._path):
                _sync_data(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._words.release()
        self._map.close()


if sys.platform == "darwin":

    def _sync_data(fd: int) -> None:
        # fsync on macOS ends at the cache of the drive; only this reaches the medium.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:

    def _sync_data(fd: int) -> None:
        os.fdatasync(fd)


if sys.version_info >= (3, 13):

    def map_file(fd: int, length: int, *, access: int) -> mmap.mmap:
        # Otherwise every map keeps a descriptor open, for a resize that is never done.
        return mmap.mmap(fd, length, access=access, trackfd=False)

else:

    def map_file(fd: int, length: int, *, access: int) -> mmap.mmap:
        return mmap.mmap(fd, length, access=access)
