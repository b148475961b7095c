"""The file that audit lines are appended to."""

import os
import stat
import sys
from collections.abc import Sequence
from typing import Final

_STANDARD_ERROR: Final = "-"
_MODE: Final = 0o600


class AuditFile:
    """Appends lines, each whole. Belongs to the thread that writes.

    If the file was moved away or deleted, as log rotation does, the next lines go to a new file of
    the name. If a line could be written only in part, the next one begins a line of its own.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._is_torn = False

    def write(self, lines: Sequence[str]) -> None:
        """Raises `OSError` if they are not all written."""
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        if self._path == _STANDARD_ERROR:
            sys.stderr.write(data.decode("ascii"))
            sys.stderr.flush()
            return
        fd = self._opened()
        if self._is_torn:
            data = b"\n" + data
        while data:
            try:
                count = os.write(fd, data)
            except OSError:
                self.close()
                raise
            self._is_torn = not data[:count].endswith(b"\n")
            data = data[count:]

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _opened(self) -> int:
        if self._fd is not None:
            try:
                there, ours = os.stat(self._path), os.fstat(self._fd)
                if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                    return self._fd
            except FileNotFoundError:
                pass
            self.close()
            self._is_torn = False
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self._path, flags, _MODE)  # a pipe without a reader must not hold us up
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{self._path} is not a regular file")
        self._fd = fd
        return fd
