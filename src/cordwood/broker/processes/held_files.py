"""The file system of the keeper and of its workers: as usual, except for the locks.

That of a worker also counts what is read while the store is opened. Recovery reads, so the count
grows for as long as recovery makes progress, however long that takes.
"""

from cordwood.storage.disk.directory_lock import DirectoryLock, lock_directory
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.disk.real_file import RealFile
from cordwood.storage.files import RealFileSystem


class SlotFileSystem(RealFileSystem):
    """A worker locks one slot of a directory: see `directory_lock`."""

    def __init__(self, access: FileAccess, slot: int) -> None:
        super().__init__(access)
        self._access_mode = access
        self._slot = slot
        self._reads: ReadCount | None = ReadCount()

    def lock(self, path: str) -> DirectoryLock:
        return lock_directory(path, self._access_mode, slot=self._slot)

    @property
    def opening_steps(self) -> int:
        """Grows while the store is opened, with each file and each part of one that is read."""
        return 0 if self._reads is None else self._reads.count

    def store_is_open(self) -> None:
        """Count no more: from here on, other threads read than those that the start waits for."""
        self._reads = None

    def _opened(self, fd: int, path: str) -> RealFile:
        reads = self._reads
        if reads is None:
            return super()._opened(fd, path)
        reads.count += 1
        return _CountedFile(fd, path, reads)


class ReadCount:
    """Counted by several threads without a lock: what matters is that it changes."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _CountedFile(RealFile):
    __slots__ = ("_reads",)

    def __init__(self, fd: int, name: str, reads: ReadCount) -> None:
        super().__init__(fd, name)
        self._reads = reads

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._reads.count += 1
        return super().read_into(position, buffer)


class _HeldLock:
    """A lock that somebody else holds for longer."""

    def release(self) -> None:
        """The holder does."""


class HeldFileSystem(RealFileSystem):
    """The keeper holds the locks of the directories itself, longer than any store is open."""

    def lock(self, path: str) -> _HeldLock:  # type: ignore[override]  # a `LockHandle`, too
        return _HeldLock()
