"""What a connection still has to send: bytes, and ranges of files that never pass through us."""

import os
import socket
from collections import deque
from typing import Final

from varve.log.log_reader import FileRange

_SEND_ONCE_BYTES: Final = 4 * 1024 * 1024  # then others have their turn
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # the rest of the frame follows at once

Piece = bytes | FileRange


class Outbox:
    """Pieces in the order they go out. Belongs to the thread of its connection."""

    __slots__ = ("_file_sent", "_pieces", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._pieces: deque[bytes | memoryview | FileRange] = deque()
        self._file_sent = 0  # of the first piece, where that is a file's

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)

    def send(self) -> int:
        """Send what the socket takes now; return how many bytes. Raises `OSError`."""
        sent = 0
        pieces = self._pieces
        while pieces and sent < _SEND_ONCE_BYTES:
            piece = pieces[0]
            try:
                if isinstance(piece, FileRange):
                    sent += self._send_file(piece)
                    continue
                count = self._socket.send(piece, _MORE if len(pieces) > 1 else 0)
            except BlockingIOError:
                break
            sent += count
            if count == len(piece):
                pieces.popleft()
            else:
                pieces[0] = memoryview(piece)[count:]
        return sent

    def _send_file(self, piece: FileRange) -> int:
        left = piece.length - self._file_sent
        count = os.sendfile(
            self._socket.fileno(),
            piece.fd,
            piece.position + self._file_sent,
            min(left, _SEND_ONCE_BYTES),
        )
        if count == 0:
            # Promised bytes are gone from the file; the client has the size already and cannot
            # be told anything any more.
            raise OSError(f"a segment file ends {left} bytes short")
        self._file_sent += count
        if count == left:
            self._pieces.popleft()
            self._file_sent = 0
        return count
