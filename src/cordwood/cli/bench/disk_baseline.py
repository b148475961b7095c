"""A file without Cordwood around it: what the disk gives to whoever waits for every sync."""

import contextlib
import os
import tempfile
from types import TracebackType
from typing import Self


def open_unnamed(directory: str) -> int:
    """A file that is gone with its descriptor: it has no name, or loses it at once."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # not every file system has it
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fd, name = tempfile.mkstemp(prefix=".cordwood-probe-", dir=directory)
    os.unlink(name)
    return fd


class BareDisk:
    """Appends the same bytes to a file in `directory` and syncs them. For one thread."""

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
        """Returns once the disk has them; how many appends that were."""
        os.write(self._fd, self._data)
        self._sync(self._fd)
        return 1

    @property
    def modified_s(self) -> float:
        """When the file was changed last, by the clock of the disk's machine."""
        return os.fstat(self._fd).st_mtime
