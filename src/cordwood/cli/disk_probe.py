"""Synced writes to a bare file, without Cordwood: the speed of the disk itself."""

import contextlib
import os
import tempfile
from types import TracebackType
from typing import Self


def open_unnamed(directory: str) -> int:
    """Open a file without a name, which disappears when it is closed."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # not every file system supports it
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fd, name = tempfile.mkstemp(prefix=".cordwood-probe-", dir=directory)
    os.unlink(name)
    return fd


class BareDisk:
    """Appends the same bytes to a file in `directory` and syncs each append. For one thread."""

    def __init__(self, directory: str, data: bytes) -> None:
        self._fd = open_unnamed(directory)
        self._data = data
        self._sync = getattr(os, "fdatasync", os.fsync)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def append(self) -> int:
        """Append and sync once; return the number of appends, 1."""
        os.write(self._fd, self._data)
        self._sync(self._fd)
        return 1

    @property
    def modified_s(self) -> float:
        """When the file was last changed, by the clock of the machine that holds the disk."""
        return os.fstat(self._fd).st_mtime
