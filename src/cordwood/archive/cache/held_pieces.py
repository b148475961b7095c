"""Pieces of archived files that wait in memory for a reader that goes through the file in order.

They are verified before they come here. What is read once and in order is not written to the disk:
a scan would write and read again every byte, and would push out of the cache what others read
again and again. A second read finds that it was seen before, and keeps it in the cache.

All pieces of a store together have a limit. If it is reached, pieces that were read to their end
make room, and then pieces that nobody came for; if there are none, the next piece goes to the disk.

Locks: the lock of `PieceMemory` is taken last. It calls nobody while it holds it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol
from weakref import WeakSet

from cordwood.quantities import MIB
from cordwood.storage.files import File

HELD_BYTES_MAX: Final = 64 * MIB
_IDLE_S: Final = 5.0


class PieceOwner(Protocol):
    def drop_held(self, piece: "HeldPiece") -> None:
        """The memory needs the room of this piece."""
        ...


class HeldPiece:
    """Bytes of the blocks [first, end) of a file, from `position` on. `data` never changes.

    `read_to` is where the reader that came farthest ended; its owner takes care of threads.
    """

    __slots__ = ("data", "end", "first", "owner", "position", "read_to", "used_s")

    def __init__(self, owner: PieceOwner, first: int, end: int, position: int, data: bytes) -> None:
        self.owner = owner
        self.first = first
        self.end = end
        self.position = position
        self.data = data
        self.read_to = position
        self.used_s = time.monotonic()

    @property
    def stop(self) -> int:
        """The position after its last byte."""
        return self.position + len(self.data)

    @property
    def is_used_up(self) -> bool:
        return self.read_to >= self.stop

    def note_read(self, end: int) -> None:
        self.read_to = max(self.read_to, min(end, self.stop))
        self.used_s = time.monotonic()


class Room:
    """Room for a piece that is being fetched. It is free again when nobody has this object."""

    __slots__ = ("__weakref__", "size")

    def __init__(self, size: int) -> None:
        self.size = size


class PieceMemory:
    """The pieces of one store. Any thread may use it.

    Its size is counted anew each time. A counter could be wrong for good after an interrupt.
    """

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._rooms: WeakSet[Room] = WeakSet()
        self._pieces: OrderedDict[HeldPiece, None] = OrderedDict()  # the oldest first
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        """Of pieces, and of room for pieces that are being fetched."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        rooms = sum(room.size for room in self._rooms)
        return rooms + sum(len(piece.data) for piece in self._pieces)

    def reserve(self, room: Room) -> bool:
        """Whether there is room for a piece. Pieces that nobody needs make room.

        The caller ends with `add` or `give_back`.
        """
        with self._lock:
            unneeded = self._unneeded(self._size() + room.size - self._bytes_max, idle_s=_IDLE_S)
        self._drop(unneeded)
        with self._lock:
            if self._is_closed or self._size() + room.size > self._bytes_max:
                return False
            self._rooms.add(room)
            return True

    def give_back(self, room: Room) -> None:
        """The room is not needed after all, or has its piece. Can be called twice."""
        with self._lock:
            self._rooms.discard(room)

    def add(self, piece: HeldPiece, room: Room) -> bool:
        """A piece for which there is room. False if this is closed: the owner drops it."""
        with self._lock:
            if self._is_closed:
                return False
            self._pieces[piece] = None
            self._rooms.discard(room)
            return True

    def remove(self, pieces: Iterable[HeldPiece]) -> None:
        """The owner dropped these."""
        with self._lock:
            for piece in pieces:
                self._pieces.pop(piece, None)

    def drop_idle(self, idle_s: float = _IDLE_S) -> None:
        """Drop the pieces that nobody came for."""
        with self._lock:
            unneeded = self._unneeded(self._size(), idle_s=idle_s)
        self._drop(unneeded)

    def close(self) -> None:
        """Drop all pieces, and take no more."""
        with self._lock:
            self._is_closed = True
        self.drop_idle(0)

    def _unneeded(self, size: int, *, idle_s: float) -> list[HeldPiece]:
        """Pieces of at least `size` bytes together, or as many as there are."""
        now_s = time.monotonic()
        found: list[HeldPiece] = []
        for piece in self._pieces:
            if size <= 0:
                break
            if piece.is_used_up or now_s - piece.used_s >= idle_s:
                size -= len(piece.data)
                found.append(piece)
        return found

    def _drop(self, pieces: list[HeldPiece]) -> None:
        for piece in pieces:
            piece.owner.drop_held(piece)
        self.remove(pieces)


def read_held(file: File, pieces: Sequence[HeldPiece], position: int, buffer: memoryview) -> int:
    """Fill `buffer` from `position` on: from the pieces, in order, and between them from `file`."""
    done = 0
    for piece in pieces:
        gap = piece.position - (position + done)
        if gap > 0:
            got = file.read_into(position + done, buffer[done : done + gap])
            done += got
            if got < gap:
                return done
        start = position + done - piece.position
        part = memoryview(piece.data)[start : start + len(buffer) - done]
        buffer[done : done + len(part)] = part
        done += len(part)
    return done + (file.read_into(position + done, buffer[done:]) if done < len(buffer) else 0)
