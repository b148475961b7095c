"""Open files and word maps of the simulated file system."""

from __future__ import annotations

import errno
import io
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordwood.storage.files import WORD_SIZE, Buffer
from fakes.simulated_disk import Change, FileNode

if TYPE_CHECKING:
    from fakes.simulated_fs import SimulatedCall, SimulatedFileSystem


@dataclass(frozen=True)
class ShortWrite:
    """As an answer of `fail_at`: write only the first `size` bytes, and say so."""

    size: int


Fault = Exception | ShortWrite


class SimulatedFile:
    """An open file; goes on working when its name is changed or removed."""

    def __init__(
        self, fs: SimulatedFileSystem, node: FileNode, name: str, *, writable: bool
    ) -> None:
        self._fs = fs
        self._node = node
        self._name = name
        self._is_writable = writable
        self._is_open = True

    @property
    def name(self) -> str:
        return self._name

    def read_at(self, position: int, size: int) -> bytes:
        with self._call("read_at"):
            return bytes(self._node.content[position : position + size])

    def read_into(self, position: int, buffer: memoryview) -> int:
        with self._call("read_into"):
            data = self._node.content[position : position + len(buffer)]
            buffer[: len(data)] = data
            return len(data)

    def write_at(self, position: int, data: Buffer) -> int:
        with self._call("write_at") as short_write:
            if not self._is_writable:
                raise os_error(errno.EBADF, self._name)
            written = bytes(data)
            if short_write is not None:
                written = written[: short_write.size]
            end_max = len(self._node.content) + self._fs.room_bytes()
            if position + len(written) > end_max:
                written = written[: max(0, end_max - position)]
                if not written:
                    raise os_error(errno.ENOSPC, self._name)
            self._node.change(Change(position, written))
            self._node.modified_ms = self._fs.clock.now_ms()
            return len(written)

    def size(self) -> int:
        with self._call("size"):
            return len(self._node.content)

    def truncate_to(self, size: int) -> None:
        with self._call("truncate_to"):
            if not self._is_writable:
                raise os_error(errno.EINVAL, self._name)
            if size - len(self._node.content) > self._fs.room_bytes():
                raise os_error(errno.ENOSPC, self._name)
            self._node.change(Change(size, None))
            self._node.modified_ms = self._fs.clock.now_ms()

    def sync(self) -> None:
        try:
            with self._call("sync"):
                self._node.sync()
        except OSError:
            self._node.fail_sync()
            raise

    def map(self) -> memoryview:
        with self._call("map"):
            return memoryview(bytes(self._node.content))

    @property
    def sync_descriptor(self) -> None:
        return None

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def close(self) -> None:
        self._is_open = False

    def _call(self, operation: str) -> SimulatedCall:
        """A call, which fails if the file is closed."""
        if not self._is_open:
            with self._fs.call(operation, self._name):
                raise os_error(errno.EBADF, self._name)
        return self._fs.call(operation, self._name)


class SimulatedWordMap:
    """Words of a file. Loads and stores are memory and no calls; `sync` is one."""

    def __init__(
        self, fs: SimulatedFileSystem, node: FileNode, name: str, count: int, *, writable: bool
    ) -> None:
        self._fs = fs
        self._node = node
        self._name = name
        self._count = count
        self._is_writable = writable
        self._is_open = True

    @property
    def cells(self) -> SimulatedWordMap:
        return self

    def __getitem__(self, index: int, /) -> int:
        with self._fs.guard:
            word: int = struct.unpack_from("=q", self._node.content, self._position(index))[0]
            return word

    def __setitem__(self, index: int, value: int, /) -> None:
        with self._fs.guard:
            if not self._is_writable:
                raise TypeError("the map is read-only")
            self._node.store_word(self._position(index), struct.pack("=q", value))

    def sync(self) -> None:
        try:
            with self._fs.call("sync", self._name):
                self._node.sync()
        except OSError:
            self._node.fail_sync()
            raise

    def close(self) -> None:
        self._is_open = False

    def _position(self, index: int) -> int:
        if not self._is_open:
            raise ValueError("the map is closed")
        if not 0 <= index < self._count:
            raise IndexError(index)
        return index * WORD_SIZE


def os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
