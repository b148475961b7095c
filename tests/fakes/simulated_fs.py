"""A file system in memory that can lose power, be killed, fill up, and fail the Nth call.

    fs = SimulatedFileSystem()
    ...                              # drive the code under test
    after = fs.crash(random.Random(7))   # what a power cut may leave; the same for the same seed
    after = fs.kill()                    # what SIGKILL leaves: all that was written, no locks
    fs.fail_at(3, OSError(EIO, "..."))   # the third call from now raises, once

`crash` and `kill` return another file system and leave this one alone, so one history can be
cut with many seeds. See `simulated_disk` for what may survive.

The same contract tests run on this and on the real file system. What differs: a map is a copy,
there is no `fileno`, and a file may not be a symbolic link.
"""

from __future__ import annotations

import errno
import posixpath
import random
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from weakref import WeakValueDictionary

from cordwood.clock import Clock
from cordwood.errors import DirectoryLockedError, TruncatedInputError
from cordwood.format.file_names import LOCK
from cordwood.storage.files import WORD_SIZE, DirectoryEntry
from fakes.manual_clock import ManualClock
from fakes.simulated_disk import ROOT, Change, Disk, FileNode, NameChange
from fakes.simulated_file import (
    Fault,
    ShortWrite,
    SimulatedFile,
    SimulatedWordMap,
    os_error,
)

__all__ = ["Fault", "ShortWrite", "SimulatedFileSystem"]

UNLIMITED_FREE_BYTES = 1 << 50


class SimulatedLock:
    def __init__(self, fs: SimulatedFileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    def release(self) -> None:
        self._fs.unlock(self._directory, self)


class SimulatedDirectory:
    def __init__(self, fs: SimulatedFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def sync(self) -> None:
        self._fs.sync_directory(self._path)

    def close(self) -> None:
        """Nothing is held."""


class SimulatedCall:
    """A call under way, which holds the guard. There are many, so this is no generator."""

    __slots__ = ("_fs", "_operation", "_path")

    def __init__(self, fs: SimulatedFileSystem, operation: str, path: str) -> None:
        self._fs = fs
        self._operation = operation
        self._path = path

    def __enter__(self) -> ShortWrite | None:
        """Count the call, and let it fail if it is due to."""
        fs, operation, path = self._fs, self._operation, self._path
        fs.guard.acquire()
        try:
            if fs.watch is not None:
                fs.watch(operation, path)
            fs.calls += 1
            fs.call_log.append((operation, path))
            if fs._faults or fs._next_faults:
                return fs.take_fault(operation, path)
            return None
        except BaseException:
            fs.guard.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._fs.guard.release()


class SimulatedFileSystem:
    """Implements the `FileSystem` port. Any thread may call; one call runs at a time.

    `calls` counts the calls that reach the disk and `call_log` lists them as (operation, path).
    `watch`, where there is one, is told of each call before it has any effect.
    """

    def __init__(self, *, capacity_bytes: int | None = None, clock: Clock | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.clock: Clock = clock or ManualClock()
        self.guard = threading.RLock()
        self.calls = 0
        self.call_log: list[tuple[str, str]] = []
        self.watch: Callable[[str, str], None] | None = None
        self._disk = Disk()
        # As with real locks, one that nobody refers to any more is free.
        self._locks: WeakValueDictionary[str, SimulatedLock] = WeakValueDictionary()
        self._faults: dict[int, Fault] = {}
        self._next_faults: list[tuple[str, str, Fault]] = []

    # --- what a test does to it -------------------------------------------------------------

    def crash(self, rng: random.Random) -> SimulatedFileSystem:
        """What a power cut at this moment may leave."""
        with self.guard:
            return self._with_disk(self._disk.after_power_cut(rng))

    def kill(self) -> SimulatedFileSystem:
        """What the end of the process leaves. The unsynced is still unsynced."""
        with self.guard:
            return self._with_disk(self._disk.copy())

    def fail_at(self, n: int, fault: Fault) -> None:
        """Let the `n`th call from now (1 is the next) fail, once, before it has any effect."""
        assert n >= 1, n
        with self.guard:
            self._faults[self.calls + n] = fault

    def fail_next(self, operation: str, fault: Fault, *, path_ends: str = "") -> None:
        """Let the next such call on a path with that end fail, once."""
        with self.guard:
            self._next_faults.append((operation, path_ends, fault))

    def clear_faults(self) -> None:
        with self.guard:
            self._faults.clear()
            self._next_faults.clear()

    def room_bytes(self) -> int:
        if self.capacity_bytes is None:
            return UNLIMITED_FREE_BYTES
        return max(0, self.capacity_bytes - self._disk.used_bytes())

    # --- the port ---------------------------------------------------------------------------

    def open_read(self, path: str) -> SimulatedFile:
        with self.call("open_read", path):
            return SimulatedFile(self, self._file(path), path, writable=False)

    def open_write(self, path: str) -> SimulatedFile:
        with self.call("open_write", path):
            return SimulatedFile(self, self._file(path), path, writable=True)

    def create(
        self, path: str, *, exclusive: bool = True, is_private: bool = False
    ) -> SimulatedFile:
        with self.call("create", path):
            directory, name = self._parent(path)
            if name not in self._disk.tree[directory]:
                return SimulatedFile(self, self._new_file(path), path, writable=True)
            if exclusive:
                raise os_error(errno.EEXIST, path)
            node = self._file(path)
            node.change(Change(0, None))
            return SimulatedFile(self, node, path, writable=True)

    def map_words(self, path: str, count: int, *, writable: bool) -> SimulatedWordMap:
        with self.call("map_words", path):
            wanted = count * WORD_SIZE
            if writable and self._node(path) is None:
                node = self._new_file(path)
            else:
                node = self._file(path)
            size = len(node.content)
            if size < wanted:
                if not writable:
                    raise TruncatedInputError(f"{count} words", needed=wanted, got=size)
                if wanted - size > self.room_bytes():
                    raise os_error(errno.ENOSPC, path)
                node.change(Change(size, bytes(wanted - size)))
            return SimulatedWordMap(self, node, path, count, writable=writable)

    def list(self, path: str) -> list[DirectoryEntry]:
        with self.call("list", path):
            names = self._disk.tree[self._directory(path)]
            return [
                DirectoryEntry(
                    name=name,
                    is_directory=node not in self._disk.files,
                    size=len(self._disk.files[node].content) if node in self._disk.files else 0,
                )
                for name, node in sorted(names.items())
            ]

    def names(self, path: str) -> Sequence[str]:
        with self.call("names", path):
            return sorted(self._disk.tree[self._directory(path)])

    def exists(self, path: str) -> bool:
        with self.call("exists", path):
            return self._node(path) is not None

    def size(self, path: str) -> int:
        with self.call("size", path):
            return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        with self.call("modified_ms", path):
            return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self.call("set_modified_ms", path):
            self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> None:
        with self.call("make_directory", path):
            directory = ROOT
            for name in _parts(path):
                found = self._disk.tree[directory].get(name)
                if found is None:
                    self._check_room_for_name(path)
                    found = self._disk.new_directory()
                    self._disk.change_names(NameChange(come=((directory, name, found),)))
                elif found not in self._disk.tree:
                    raise os_error(errno.EEXIST, path)
                directory = found

    def remove(self, path: str) -> None:
        with self.call("remove", path):
            self._file(path)
            self._unlink(path)

    def remove_tree(self, path: str) -> None:
        """Each name removed is a call of its own: a crash or a fault may leave half a tree."""
        with self.guard:
            names = self._disk.tree[self._directory(path)]
            for name, node in sorted(names.items()):
                child = posixpath.join(path, name)
                if node in self._disk.files:
                    self.remove(child)
                else:
                    self.remove_tree(child)
            with self.call("remove_tree", path):
                self._unlink(path)

    def rename(self, old: str, new: str) -> None:
        with self.call("rename", old):
            old_directory, old_name = self._parent(old)
            new_directory, new_name = self._parent(new)
            node = self._node(old)
            if node is None:
                raise os_error(errno.ENOENT, old)
            replaced = self._disk.tree[new_directory].get(new_name)
            if replaced == node:
                return
            if replaced is not None:
                self._check_replaceable(node, replaced, new)
            gone = [(old_directory, old_name, node)]
            if replaced is not None:
                gone.append((new_directory, new_name, replaced))
            self._disk.change_names(
                NameChange(gone=tuple(gone), come=((new_directory, new_name, node),))
            )

    def link(self, existing: str, new: str) -> None:
        with self.call("link", new):
            self._file(existing)
            node = self._node(existing)
            assert node is not None
            directory, name = self._parent(new)
            if name in self._disk.tree[directory]:
                raise os_error(errno.EEXIST, new)
            self._check_room_for_name(new)
            self._disk.change_names(NameChange(come=((directory, name, node),)))

    def is_shared(self, path: str) -> bool:
        with self.guard:
            self._file(path)
            node = self._node(path)
            names = [n for tree in self._disk.tree.values() for n in tree.values() if n == node]
            return len(names) > 1

    def open_directory(self, path: str) -> SimulatedDirectory:
        with self.call("open_directory", path):
            self._directory(path)
            return SimulatedDirectory(self, path)

    def sync_directory(self, path: str) -> None:
        with self.call("sync_directory", path):
            self._disk.sync_names(self._directory(path))

    def free_bytes(self, path: str) -> int:
        with self.call("free_bytes", path):
            self._directory(path)
            return self.room_bytes()

    def total_bytes(self, path: str) -> int:
        with self.call("total_bytes", path):
            self._directory(path)
            return UNLIMITED_FREE_BYTES if self.capacity_bytes is None else self.capacity_bytes

    def lock(self, path: str) -> SimulatedLock:
        with self.call("lock", path):
            directory = _normal(path)
            if directory in self._locks:
                raise DirectoryLockedError(path, "this process")
            lock_path = posixpath.join(directory, LOCK)
            if self._node(lock_path) is None:
                self._new_file(lock_path, needs_room=False)  # an empty file finds room
            self._locks[directory] = lock = SimulatedLock(self, directory)
            return lock

    # --- for the handles --------------------------------------------------------------------

    def call(self, operation: str, path: str) -> SimulatedCall:
        """One counted call: fails if it is due to, else runs alone."""
        return SimulatedCall(self, operation, path)

    def take_fault(self, operation: str, path: str) -> ShortWrite | None:
        """The fault that is due for the call that was counted last: it is raised, or returned."""
        fault = self._faults.pop(self.calls, None) or self._take_next_fault(operation, path)
        if isinstance(fault, Exception):
            raise fault
        return fault

    def unlock(self, directory: str, lock: SimulatedLock) -> None:
        with self.guard:
            if self._locks.get(directory) is lock:
                del self._locks[directory]
                lock_path = posixpath.join(directory, LOCK)
                if self._node(lock_path) is not None:
                    self._unlink(lock_path)

    # --- names ------------------------------------------------------------------------------

    def _take_next_fault(self, operation: str, path: str) -> Fault | None:
        for number, (wanted, path_ends, fault) in enumerate(self._next_faults):
            if wanted == operation and path.endswith(path_ends):
                del self._next_faults[number]
                return fault
        return None

    def _with_disk(self, disk: Disk) -> SimulatedFileSystem:
        after = SimulatedFileSystem(capacity_bytes=self.capacity_bytes, clock=self.clock)
        after._disk = disk
        return after

    def _node(self, path: str) -> int | None:
        node: int | None = ROOT
        for name in _parts(path):
            if node is None:
                return None
            node = self._disk.tree.get(node, {}).get(name)
        return node

    def _file(self, path: str) -> FileNode:
        directory, name = self._parent(path)
        node = self._disk.tree[directory].get(name)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if node not in self._disk.files:
            raise os_error(errno.EISDIR, path)
        return self._disk.files[node]

    def _directory(self, path: str) -> int:
        node = self._node(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if node not in self._disk.tree:
            raise os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[int, str]:
        directory, name = _split(path)
        if not name:
            raise os_error(errno.EISDIR, path)
        return self._directory(directory), name

    def _new_file(self, path: str, *, needs_room: bool = True) -> FileNode:
        directory, name = self._parent(path)
        if needs_room:
            self._check_room_for_name(path)
        node = self._disk.new_file()
        self._disk.files[node].modified_ms = self.clock.now_ms()
        self._disk.change_names(NameChange(come=((directory, name, node),)))
        return self._disk.files[node]

    def _unlink(self, path: str) -> None:
        directory, name = self._parent(path)
        node = self._disk.tree[directory][name]
        self._disk.change_names(NameChange(gone=((directory, name, node),)))

    def _check_room_for_name(self, path: str) -> None:
        if self.room_bytes() == 0:
            raise os_error(errno.ENOSPC, path)

    def _check_replaceable(self, node: int, replaced: int, path: str) -> None:
        if node in self._disk.files:
            if replaced not in self._disk.files:
                raise os_error(errno.EISDIR, path)
        elif replaced in self._disk.files:
            raise os_error(errno.ENOTDIR, path)
        elif self._disk.tree[replaced]:
            raise os_error(errno.ENOTEMPTY, path)


# A test has few paths and a hundred thousand calls, so each path is taken apart once.


@lru_cache(4096)
def _normal(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path)).replace("//", "/")


@lru_cache(4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in _normal(path).split("/") if part)


@lru_cache(4096)
def _split(path: str) -> tuple[str, str]:
    """The directory of a path, and the name in it."""
    directory, name = posixpath.split(_normal(path))
    return directory, name
