"""The parts of HTTP and of S3's protocol that `object_server` reads."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from cordwood.quantities import KIB

_LINE_BYTES_MAX: Final = 4 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The head of a request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")

    @property
    def is_framed(self) -> bool:
        """Whether the body has the frames of S3, with a checksum at its end."""
        return "x-amz-decoded-content-length" in self.headers


def parse_head(head: bytes) -> Request:
    """The head without the empty line at its end."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    parts = urlsplit(target)
    pairs = (line.partition(":") for line in lines)
    return Request(
        method=method,
        path=unquote(parts.path),
        query={k: v[-1] for k, v in parse_qs(parts.query, keep_blank_values=True).items()},
        headers={name.strip().lower(): value.strip() for name, _, value in pairs},
    )


def wanted_range(header: str, size: int) -> tuple[int, int] | None:
    """[first, end) of a Range header; None if the object has none of it."""
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", header)
    if found is None:
        return None
    first = int(found[1])
    end = min(int(found[2]) + 1 if found[2] else size, size)
    return (first, end) if first < end else None


class ChunkDecoder:
    """Takes the frames off chunks: a line with the size, the bytes, an empty line; at the end lines
    of trailers. Its input may come in any portions."""

    def __init__(self) -> None:
        self._line = b""
        self._left = 0  # bytes of the chunk
        self._is_last = False
        self._is_between = False  # the line after a chunk is next
        self.is_done = False
        self.rest = b""  # what came after the end

    def feed(self, data: memoryview) -> Iterator[memoryview]:
        """The bytes in `data` that are not frames."""
        while data and not self.is_done:
            if self._left:
                taken, data = data[: self._left], data[self._left :]
                self._left -= len(taken)
                self._is_between = not self._left
                yield taken
                continue
            end = bytes(data[:_LINE_BYTES_MAX]).find(b"\n") + 1
            taken, data = data[: end or len(data)], data[end or len(data) :]
            self._line += bytes(taken)
            if end:
                line, self._line = self._line.strip(), b""
                self._end_line(line)
        if self.is_done:
            self.rest += bytes(data)

    def _end_line(self, line: bytes) -> None:
        if self._is_between:
            self._is_between = False
        elif self._is_last:
            self.is_done = not line  # other lines are trailers, which nobody looks at here
        else:
            self._left = int(line.partition(b";")[0], 16)
            self._is_last = not self._left
