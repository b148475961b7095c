"""The lock that makes one process the only writer of a data directory.

It is a POSIX record lock on the directory's `.lock` file, the kind that Java's
`FileChannel.tryLock` takes, so a running Kafka and Cordwood exclude each other. The kernel releases
it when the process ends, however it ends: a leftover file locks nobody out.

POSIX locks have two traps. They do not exclude within one process, and they are released when the
process closes *any* descriptor of the file. A registry of the directories that this process holds
solves both: a second attempt is refused before the file is opened.

The file contains one line that names its owner, for the error message of the next process. It is
removed on release, as Kafka removes its own.

Several processes of one node share a directory by *slots*: each locks one byte of the file. A lock
of the whole file excludes all slots, so nobody else gets the directory before the last process of
the node has ended. The first of them, in slot 0, begins with the whole file and then narrows its
lock.
"""

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final, Self

from cordwood.clock import SystemClock
from cordwood.errors import DirectoryLockedError
from cordwood.format.file_names import LOCK
from cordwood.storage.disk.file_access import FileAccess
from cordwood.value_class import dataclass

_OWNER_BYTES_MAX: Final = 512  # another program may have written the file
_REFUSALS: Final = (errno.EACCES, errno.EAGAIN)  # POSIX allows either for "locked"

# Not a plain lock: the garbage collector may release a lost lock while this thread holds the guard.
_guard: Final = threading.RLock()
# In a forked child nobody would release it.
os.register_at_fork(after_in_child=_guard._at_fork_reinit)  # type: ignore[attr-defined]


class _Holder:
    """Stands for one held lock, without keeping the lock alive."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this process. A forked child inherits the objects but not the locks."""
        return self.pid == os.getpid()


_holders: Final[dict[str, _Holder]] = {}  # by the real path of the lock file


class _Descriptor:
    """The descriptor of a lock file. Opening and closing are one call of C code each.

    So no interrupt comes between the descriptor and the knowledge that there is one: a descriptor
    that nobody knows would keep the directory locked until the process ends.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def fd(self) -> int:
        return self._open[0]

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        assert not self._open
        self._open.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,)))
        return self.fd

    def close(self) -> None:
        """Safe to repeat."""
        deque(map(os.close, map(self._open.pop, [0] * len(self._open))), maxlen=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # an interrupt ended `__exit__`
            self.close()


class DirectoryLock:
    """A held lock. `release`, garbage collection and the end of the process release it.

    This process counts as the holder from the moment it has the lock until the file is closed. So
    if an interrupt ends `release` before its end, the directory stays locked for this process as
    for others, and `release` can be repeated.
    """

    def __init__(self, path: str, slot: int | None = None) -> None:
        """`slot` is the byte of the file that is locked; None: all of it."""
        self._path = path
        self._slot = slot
        self._file = _Descriptor()
        self._holder = _Holder()

    def take(self, directory: str, access: FileAccess) -> None:
        """Lock the file, or raise `DirectoryLockedError`. Called once."""
        with _guard:
            holder = _holders.get(self._path)
            if holder is not None and holder.is_here:
                raise DirectoryLockedError(directory, f"this process (pid {os.getpid()})")
            _lock_file(self._file, directory, self._path, access, self._slot)
            _holders[self._path] = self._holder

    def describe_owner(self) -> None:
        """Name the owner in the file, for the error message of the next process."""
        # Only a message: a full disk must not prevent a start.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file.fd, 0)
            os.pwrite(self._file.fd, _describe_this_process(), 0)

    def narrow(self) -> None:
        """Keep slot 0 alone of the whole file: other processes of this node may take theirs."""
        fcntl.lockf(self._file.fd, fcntl.LOCK_UN, 0, 1)
        self._slot = 0

    def widen(self, directory: str) -> None:
        """Lock the whole file again. Raises `DirectoryLockedError` while a slot is taken."""
        try:
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _REFUSALS:
                raise DirectoryLockedError(directory, "another process of this node") from error
            raise
        self._slot = None

    def release(self) -> None:
        """Release the lock; safe to repeat, also after an interrupt."""
        with _guard:
            is_holder = _holders.get(self._path) is self._holder and self._holder.is_here
            is_whole = self._slot is None  # else other processes may hold other slots
            # Removed while the lock is held, so that the file of a next owner is never removed.
            if is_whole and is_holder and self._file and _is_still_named(self._file.fd, self._path):
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            self._file.close()
            if is_holder:
                _holders.pop(self._path, None)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.release()


def lock_directory(
    directory: str, access: FileAccess = FileAccess.OWNER, *, slot: int | None = None
) -> DirectoryLock:
    """Become the only writer of `directory`; `DirectoryLockedError` names the present one.

    With a `slot`, become one of the writers of this node: see the head of this module.
    """
    lock = DirectoryLock(os.path.join(os.path.realpath(directory), LOCK), slot)
    try:
        lock.take(directory, access)
        if slot is None:
            lock.describe_owner()
    except BaseException:
        lock.release()
        raise
    return lock


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOwner:
    """The owner of a directory. `pid` is None if unknown; it may be on another machine."""

    description: str
    pid: int | None


def lock_owner(directory: str) -> LockOwner | None:
    """The present writer of `directory`; None if there is none. Takes no lock, changes nothing."""
    path = os.path.join(os.path.realpath(directory), LOCK)
    with _guard, _Descriptor() as file:
        holder = _holders.get(path)
        if holder is not None and holder.is_here:
            # The file is not opened here: closing it would release the lock.
            return LockOwner(description=f"this process (pid {os.getpid()})", pid=os.getpid())
        try:
            fd = file.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _whole_file_lock())
        kind, pid = _parse_lock(answer)
        if kind == fcntl.F_UNLCK:
            return None
        return LockOwner(description=_read_owner(fd), pid=pid if pid > 0 else None)


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


def _lock_file(
    file: _Descriptor, directory: str, path: str, access: FileAccess, slot: int | None
) -> None:
    """Open and lock the file at `path`, or one byte of it. If that fails, the caller closes it."""
    size, start = (0, 0) if slot is None else (1, slot)
    while True:
        fd = file.open(path, os.O_RDWR | os.O_CREAT, access.file_mode)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, size, start)
        except OSError as error:
            if error.errno in _REFUSALS:
                raise DirectoryLockedError(directory, _read_owner(fd)) from error
            raise
        if _is_still_named(fd, path):
            return
        # The last owner removed the file after we opened it and before we locked it. Our lock
        # excludes nobody, because the next process will create another file.
        file.close()


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
