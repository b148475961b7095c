"""The lock that makes one process the only writer of a data directory.

It is a POSIX record lock on the directory's `.lock` file, the kind that Java's
`FileChannel.tryLock` takes, so a running Kafka and Cordwood exclude each other. The kernel releases
it when the process ends, however it ends: a leftover file locks nobody out.

POSIX locks have two traps. They do not exclude within one process, and they are released when the
process closes *any* descriptor of the file. A registry of the directories that this process holds
solves both: a second attempt is refused before the file is opened.

The file contains one line that names its owner, for the error message of the next process. It is
removed on release, as Kafka removes its own.
"""

import contextlib
import errno
import fcntl
import os
import struct
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cordwood.clock import SystemClock
from cordwood.errors import DirectoryLockedError
from cordwood.format.file_names import LOCK
from cordwood.storage.file_access import FileAccess

_OWNER_BYTES_MAX: Final = 512  # another program may have written the file
_REFUSALS: Final = (errno.EACCES, errno.EAGAIN)  # POSIX allows either for "locked"

_guard: Final = threading.Lock()
# In a forked child nobody would release it.
os.register_at_fork(after_in_child=_guard._at_fork_reinit)  # type: ignore[attr-defined]
_holders: Final[dict[str, int]] = {}  # real path of the lock file -> process that holds it


class DirectoryLock:
    """A held lock. `release`, garbage collection and the end of the process release it."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self.fd = fd
        self._pid = os.getpid()

    def release(self) -> None:
        """Release the lock; safe to repeat."""
        with _guard:
            if self.fd < 0:
                return
            # A forked child inherits this object but not the lock: the file belongs to its parent.
            if self._pid == os.getpid():
                _holders.pop(self._path, None)
                # Removed while the lock is held, so that the file of a next owner is never removed.
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.release()


def lock_directory(directory: str, access: FileAccess = FileAccess.OWNER) -> DirectoryLock:
    """Become the only writer of `directory`; `DirectoryLockedError` names the present one."""
    path = os.path.join(os.path.realpath(directory), LOCK)
    with _guard:
        if _holders.get(path) == os.getpid():
            raise DirectoryLockedError(directory, f"this process (pid {os.getpid()})")
        lock = DirectoryLock(path, _take(directory, path, access))
        _holders[path] = os.getpid()
    # The line is only for a message; a full disk must not prevent a start.
    with contextlib.suppress(OSError):
        os.ftruncate(lock.fd, 0)
        os.pwrite(lock.fd, _describe_this_process(), 0)
    return lock


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOwner:
    """The owner of a directory. `pid` is None if unknown; it may be on another machine."""

    description: str
    pid: int | None


def lock_owner(directory: str) -> LockOwner | None:
    """The present writer of `directory`; None if there is none. Takes no lock, changes nothing."""
    path = os.path.join(os.path.realpath(directory), LOCK)
    with _guard:
        if _holders.get(path) == os.getpid():
            # The file is not opened here: closing it would release the lock.
            return LockOwner(description=f"this process (pid {os.getpid()})", pid=os.getpid())
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, _whole_file_lock())
            kind, pid = _parse_lock(answer)
            if kind == fcntl.F_UNLCK:
                return None
            return LockOwner(description=_read_owner(fd), pid=pid if pid > 0 else None)
        finally:
            os.close(fd)


# `struct flock`, whose layout depends on the system.
_IS_LINUX: Final = os.uname().sysname == "Linux"
_FLOCK: Final = struct.Struct("hhqqi4x" if _IS_LINUX else "qqihh")


def _whole_file_lock() -> bytes:
    if _IS_LINUX:
        return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)


def _parse_lock(answer: bytes) -> tuple[int, int]:
    """The type of the conflicting lock, and the process that holds it."""
    fields = _FLOCK.unpack(answer)
    return (fields[0], fields[4]) if _IS_LINUX else (fields[3], fields[2])


def _take(directory: str, path: str, access: FileAccess) -> int:
    """The descriptor of the locked file at `path`."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, access.file_mode)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_named(fd, path):
                return fd
        except OSError as error:
            owner = _read_owner(fd)
            os.close(fd)
            if error.errno in _REFUSALS:
                raise DirectoryLockedError(directory, owner) from error
            raise
        except BaseException:
            os.close(fd)
            raise
        # The last owner removed the file after we opened it and before we locked it. Our lock
        # excludes nobody, because the next process will create another file.
        os.close(fd)


def _is_still_named(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _read_owner(fd: int) -> str:
    try:
        text = os.pread(fd, _OWNER_BYTES_MAX, 0).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text if text.isprintable() and text else "another process"


def _describe_this_process() -> bytes:
    since = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).isoformat(timespec="seconds")
    return f"pid {os.getpid()} on {os.uname().nodename} since {since}\n".encode()
