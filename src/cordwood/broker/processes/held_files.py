"""The file system of the keeper and of its workers: as usual, except for the locks."""

from cordwood.storage.directory_lock import DirectoryLock, lock_directory
from cordwood.storage.file_access import FileAccess
from cordwood.storage.files import RealFileSystem


class SlotFileSystem(RealFileSystem):
    """A worker locks one slot of a directory: see `directory_lock`."""

    def __init__(self, access: FileAccess, slot: int) -> None:
        super().__init__(access)
        self._access_mode = access
        self._slot = slot

    def lock(self, path: str) -> DirectoryLock:
        return lock_directory(path, self._access_mode, slot=self._slot)


class _HeldLock:
    """A lock that somebody else holds for longer."""

    def release(self) -> None:
        """The holder does."""


class HeldFileSystem(RealFileSystem):
    """The keeper holds the locks of the directories itself, longer than any store is open."""

    def lock(self, path: str) -> _HeldLock:  # type: ignore[override]  # a `LockHandle`, too
        return _HeldLock()
