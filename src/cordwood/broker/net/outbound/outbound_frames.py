"""Cuts the bytes of a connection into answers. Pure.

    4 bytes   size of what follows
    4 bytes   number of the request
    ...       the answer

A frame that fits the receive buffer is copied out of it. A larger one gets memory of its own once
its size is known and within the limit, and the rest is received right into that. After a large
frame another one is expected: only its beginning is received into the receive buffer, because that
has to be copied.

The memory of a large frame is used again for the next one, if nobody looks at it any more. Fresh
memory comes from the kernel page by page, which costs as much as the receive. It is freed when a
row of small frames has come.
"""

from collections.abc import Iterator
from typing import Final

from cordwood.errors import LimitExceededError
from cordwood.protocol.wire_values import INT32
from cordwood.quantities import KIB, MIB

_SIZE: Final = INT32.size
_BEGINNING: Final = 8 * KIB
_KEPT_BYTES_MIN: Final = 64 * KIB
# Few sizes: memory that grows with each frame would be fresh each time. The largest has room for
# `replica.fetch.max.bytes` and the rest of the frame.
_ROOMS: Final = (1 * MIB, 2 * MIB, 5 * MIB)
_SMALL_FRAMES: Final = 16  # so many in a row, and no large one is expected any more


class OutboundFrames:
    """The answers of one connection. Belongs to its connection.

    Receive into `room(scratch)`, then pass the number of bytes to `received`.
    """

    __slots__ = ("_filled", "_frame", "_kept", "_limit", "_memory", "_rest", "_small_count")

    def __init__(self, frame_bytes_max: int) -> None:
        self._limit = frame_bytes_max
        self._rest = b""  # less than a size
        self._frame: memoryview | None = None
        self._memory = bytearray()  # of `_frame`
        self._filled = 0
        self._kept: bytearray | None = None  # the memory of the last large frame
        self._small_count = 0  # of frames since then

    def room(self, scratch: memoryview) -> memoryview:
        """Where to receive now."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return scratch if self._kept is None else scratch[:_BEGINNING]

    def received(self, buffer: memoryview, count: int) -> Iterator[memoryview]:
        """The frames that are complete now. Raises `LimitExceededError`."""
        if self._frame is not None:
            self._filled += count
            if self._filled == len(self._frame):
                yield self._whole()
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
                self._frame = self._room_for(size)
                self._filled = len(data) - at
                self._frame[: self._filled] = data[at:]
                return
            self._note_small()
            yield memoryview(bytes(data[at : at + size]))
            at += size
        self._rest = bytes(data[at:])

    def _room_for(self, size: int) -> memoryview:
        """Memory for a frame: that of the last one, if it is free and large enough."""
        memory, self._kept = self._kept, None
        if memory is None or len(memory) < size or _is_looked_at(memory):
            room = next((room for room in _ROOMS if size <= room), size)
            memory = bytearray(room if size >= _KEPT_BYTES_MIN else size)
        self._memory = memory
        return memoryview(memory)[:size]

    def _whole(self) -> memoryview:
        frame, self._frame = self._frame, None
        assert frame is not None
        memory, self._memory = self._memory, bytearray()
        if _KEPT_BYTES_MIN <= len(frame) <= len(memory) <= _ROOMS[-1]:
            self._kept, self._small_count = memory, 0
        return frame

    def _note_small(self) -> None:
        if self._kept is not None:
            self._small_count += 1
            if self._small_count >= _SMALL_FRAMES:
                self._kept = None


def _is_looked_at(memory: bytearray) -> bool:
    """Whether a view of it exists: then Python refuses to change its size."""
    try:
        last = memory.pop()
    except BufferError:
        return True
    memory.append(last)
    return False
