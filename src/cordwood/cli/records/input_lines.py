"""Lines of a file or of standard input: in large blocks, or at once if they arrive slowly."""

import io
import os
import select
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple

from cordwood.errors import LimitExceededError
from cordwood.quantities import MIB

BLOCK_BYTES: Final = 8 * MIB
LINE_BYTES_MAX: Final = 64 * MIB

_READ_BYTES: Final = 1 * MIB
_IDLE_S: Final = 0.25


class LineBlock(NamedTuple):
    """Lines without their line ends; `first_number` counts from 1."""

    first_number: int
    lines: list[bytes]


class InputLines:
    """Reads lines from a stream. Memory is bounded by one block, or by one long line.

    `idle` is called repeatedly while no input arrives, `advance` with the bytes read.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        idle: Callable[[], None] = lambda: None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._stream = stream
        self._idle = idle
        self._advance = advance
        self._fd = _waitable(stream)
        self._parts: list[bytes] = []  # of a line that is not complete yet
        self._parts_size = 0
        self._number = 1

    def blocks(self) -> Iterator[LineBlock]:
        """Lines in blocks; a block is smaller if no more input is available."""
        held: list[bytes] = []
        held_size = 0
        while True:
            if held and (held_size >= BLOCK_BYTES or not self._is_ready(0)):
                yield self._block(held)
                held, held_size = [], 0
            while not self._is_ready(_IDLE_S):
                self._idle()
            data = self._read()
            self._advance(len(data))
            lines = self._split(data) if data else self._last_line()
            held += lines
            held_size += len(data)
            if not data:
                break
        if held:
            yield self._block(held)

    def _block(self, lines: list[bytes]) -> LineBlock:
        block = LineBlock(self._number, lines)
        self._number += len(lines)
        return block

    def _is_ready(self, timeout_s: float) -> bool:
        return self._fd is None or bool(select.select([self._fd], [], [], timeout_s)[0])

    def _read(self) -> bytes:
        if self._fd is not None:
            return os.read(self._fd, _READ_BYTES)  # what is available, without waiting for more
        return self._stream.read(_READ_BYTES)

    def _split(self, data: bytes) -> list[bytes]:
        head, newline, _ = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        has_returns = b"\r" in data or any(part.endswith(b"\r") for part in self._parts)
        self._keep(head)
        lines = [b"".join(self._parts), *data[len(head) + 1 :].split(b"\n")]
        self._parts, self._parts_size = [], 0
        self._keep(lines.pop())
        if has_returns:
            return [line.removesuffix(b"\r") for line in lines]
        return lines

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._parts_size += len(part)
        if self._parts_size > LINE_BYTES_MAX:
            raise LimitExceededError("a line", size=self._parts_size, limit=LINE_BYTES_MAX)

    def _last_line(self) -> list[bytes]:
        """The text after the last newline, if there is any."""
        return [b"".join(self._parts).removesuffix(b"\r")] if self._parts else []


def _waitable(stream: BinaryIO) -> int | None:
    """The descriptor of a pipe, terminal or socket, where input may be slow; else None."""
    try:
        fd = stream.fileno()
        return None if stat.S_ISREG(os.fstat(fd).st_mode) else fd
    except (OSError, io.UnsupportedOperation, ValueError):
        return None
