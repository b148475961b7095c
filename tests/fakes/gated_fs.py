"""The real file system behind gates: a disk that takes as long as a test wants."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.storage.disk.real_file import RealFile
from cordwood.storage.files import Buffer, RealFileSystem

_TIMEOUT_S = 60.0


class Gate:
    """Open until `closed`. Who comes to a closed gate waits, and is counted.

    With an `error`, what is behind the gate fails.
    """

    def __init__(self) -> None:
        self.error: OSError | None = None
        self._condition = threading.Condition()
        self._is_open = True
        self._waiting = 0

    def passed(self) -> None:
        with self._condition:
            self._waiting += 1
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: self._is_open, 4 * _TIMEOUT_S)
            self._waiting -= 1
        if self.error is not None:
            raise self.error

    def await_someone(self) -> None:
        """Return once somebody waits at the gate."""
        with self._condition:
            assert self._condition.wait_for(lambda: self._waiting > 0, _TIMEOUT_S), "nobody came"

    @contextmanager
    def closed(self) -> Iterator["Gate"]:
        """Closed within the `with`, open afterwards, whatever happens."""
        with self._condition:
            self._is_open = False
        try:
            yield self
        finally:
            self.open()

    def open(self) -> None:
        with self._condition:
            self._is_open = True
            self._condition.notify_all()


class GatedFile(RealFile):
    """A log file whose writes and syncs go through the gates."""

    __slots__ = ("_syncs", "_writes")

    def __init__(self, file: RealFile, *, writes: Gate, syncs: Gate) -> None:
        super().__init__(file.fileno(), file.name)
        file._fd = -1  # it is ours now
        self._writes = writes
        self._syncs = syncs

    @property
    def sync_descriptor(self) -> None:
        return None  # the kernel knows no gates

    def write_at(self, position: int, data: Buffer) -> int:
        self._writes.passed()
        return super().write_at(position, data)

    def sync(self) -> None:
        self._syncs.passed()
        super().sync()


class GatedFileSystem(RealFileSystem):
    """Log files whose path contains `slow_part` wait at the gates; others are as quick as ever."""

    def __init__(self, slow_part: str) -> None:
        super().__init__()
        self.writes = Gate()
        self.syncs = Gate()
        self._slow_part = slow_part

    def open_write(self, path: str) -> RealFile:
        return self._gated(super().open_write(path))

    def create(self, path: str, *, exclusive: bool = True, is_private: bool = False) -> RealFile:
        return self._gated(super().create(path, exclusive=exclusive, is_private=is_private))

    def _gated(self, file: RealFile) -> RealFile:
        if self._slow_part not in file.name or not file.name.endswith(".log"):
            return file
        return GatedFile(file, writes=self.writes, syncs=self.syncs)
