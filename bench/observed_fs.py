"""File systems for benchmarks: one counts reads, one never waits for the disk."""

import os
from dataclasses import dataclass, field

from cordwood.storage.disk.real_file import RealFile
from cordwood.storage.files import RealFileSystem


@dataclass(slots=True)
class LogReads:
    """The reads of `.log` files: (position, size) of each, in order."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def note(self, name: str, position: int, size: int) -> None:
        if name.endswith(".log"):
            self.ranges.append((position, size))

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.ranges)

    def bytes_below(self, position: int) -> int:
        """How many of these bytes are below `position`."""
        return sum(min(at + size, position) - at for at, size in self.ranges if at < position)


class _CountedFile(RealFile):
    __slots__ = ("_reads",)

    def __init__(self, fd: int, name: str, reads: LogReads) -> None:
        super().__init__(fd, name)
        self._reads = reads

    def read_at(self, position: int, size: int) -> bytes:
        data = super().read_at(position, size)
        self._reads.note(self.name, position, len(data))
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = super().read_into(position, buffer)
        self._reads.note(self.name, position, count)
        return count

    def map(self) -> memoryview:
        view = super().map()
        self._reads.note(self.name, 0, len(view))
        return view


class CountingFileSystem(RealFileSystem):
    """The real file system, which also records reads of the `.log` files of one log."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = LogReads()

    def open_read(self, path: str) -> RealFile:
        return _CountedFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, self.reads)

    def open_write(self, path: str) -> RealFile:
        return _CountedFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path, self.reads)


class _UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Left to the operating system."""


class UnsyncedFileSystem(RealFileSystem):
    """Syncs nothing: for preparing logs outside of a measurement."""

    def open_write(self, path: str) -> RealFile:
        return _UnsyncedFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def create(self, path: str, *, exclusive: bool = True, is_private: bool = False) -> RealFile:
        how = os.O_EXCL if exclusive else os.O_TRUNC
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | how
        return _UnsyncedFile(os.open(path, flags, 0o644), path)

    def sync_directory(self, path: str) -> None:
        """Left to the operating system."""
