"""Cuts the bytes of a connection into answers. Pure.

    4 bytes   size of what follows
    4 bytes   number of the request
    ...       the answer

A frame that fits the receive buffer is copied out of it. A larger one gets memory of its own once
its size is known and within the limit, and the rest is received right into that.
"""

from collections.abc import Iterator
from typing import Final

from cordwood.errors import LimitExceededError
from cordwood.protocol.wire_values import INT32

_SIZE: Final = INT32.size


class OutboundFrames:
    """The answers of one connection. Belongs to its connection.

    Receive into `room(scratch)`, then pass the number of bytes to `received`.
    """

    __slots__ = ("_filled", "_frame", "_limit", "_rest")

    def __init__(self, frame_bytes_max: int) -> None:
        self._limit = frame_bytes_max
        self._rest = b""  # less than a size
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self, scratch: memoryview) -> memoryview:
        """Where to receive now."""
        return scratch if self._frame is None else self._frame[self._filled :]

    def received(self, buffer: memoryview, count: int) -> Iterator[memoryview]:
        """The frames that are complete now. Raises `LimitExceededError`."""
        if self._frame is not None:
            self._filled += count
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                yield frame
            return
        data = buffer[:count]
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        at = 0
        while len(data) - at >= _SIZE:
            size = INT32.unpack_from(data, at)[0]
            if not _SIZE <= size <= self._limit:
                raise LimitExceededError("size of an answer", size=size, limit=self._limit)
            at += _SIZE
            if len(data) - at < size:
                self._frame = memoryview(bytearray(size))
                self._filled = len(data) - at
                self._frame[: self._filled] = data[at:]
                return
            yield memoryview(bytes(data[at : at + size]))
            at += size
        self._rest = bytes(data[at:])
