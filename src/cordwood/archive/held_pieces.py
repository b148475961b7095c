"""Pieces of archived files that wait in memory for a reader that goes through the file in order.

They are verified before they come here. What is read once and in order is not written to the disk:
a scan would write and read again every byte, and would push out of the cache what others read
again and again. Whoever reads it a second time finds that it was seen, and then it is kept in the
cache.

All pieces of a store together have a limit. If it is reached, pieces that were read to their end
make room, and then pieces that nobody came for; if there are none, the next piece goes to the disk.

Locks: the lock of `PieceMemory` is taken last. It calls nobody while it holds it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

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


class PieceMemory:
    """The pieces of one store. Any thread may use it."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._size = 0  # of pieces, and of room for pieces that are being fetched
        self._pieces: OrderedDict[HeldPiece, None] = OrderedDict()  # the oldest first

    @property
    def size_bytes(self) -> int:
        return self._size

    def reserve(self, size: int) -> bool:
        """Room for a piece; False if there is none. Pieces that nobody needs make room."""
        with self._lock:
            dropped = self._unneeded(self._size + size - self._bytes_max, idle_s=_IDLE_S)
            has_room = self._size + size <= self._bytes_max
            if has_room:
                self._size += size
        _drop(dropped)
        return has_room

    def give_back(self, size: int) -> None:
        """The room is not needed after all."""
        with self._lock:
            self._size -= size

    def add(self, piece: HeldPiece) -> None:
        """A piece for which there is room."""
        with self._lock:
            self._pieces[piece] = None

    def remove(self, pieces: Iterable[HeldPiece]) -> None:
        """The owner dropped these."""
        with self._lock:
            for piece in pieces:
                if piece in self._pieces:
                    del self._pieces[piece]
                    self._size -= len(piece.data)

    def drop_idle(self, idle_s: float = _IDLE_S) -> None:
        """Drop the pieces that nobody came for."""
        with self._lock:
            dropped = self._unneeded(self._size, idle_s=idle_s)
        _drop(dropped)

    def _unneeded(self, size: int, *, idle_s: float) -> list[HeldPiece]:
        """Take out pieces of at least `size` bytes together, or as many as there are."""
        now_s = time.monotonic()
        taken: list[HeldPiece] = []
        if size <= 0:
            return taken
        for piece in list(self._pieces):
            if size <= 0:
                break
            if piece.is_used_up or now_s - piece.used_s >= idle_s:
                del self._pieces[piece]
                self._size -= len(piece.data)
                size -= len(piece.data)
                taken.append(piece)
        return taken


def _drop(pieces: Iterable[HeldPiece]) -> None:
    for piece in pieces:
        piece.owner.drop_held(piece)


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
