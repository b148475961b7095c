"""What a connection still has to send: bytes, and ranges of files.

The kernel sends a large range straight from the file. A small range, such as the one record that
a consumer at the end of a log waited for, is read and sent in one call with the bytes around it:
that costs less than three calls.
"""

import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final

from cordwood.log.reading.file_range import FileRange

_SEND_ONCE_BYTES: Final = 4 * 1024 * 1024  # then other connections have their turn
_JOINED_BYTES_MAX: Final = 16 * 1024
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # the rest of the frame follows at once

Piece = bytes | FileRange


class Outbox:
    """Pieces in the order they are sent. Belongs to the thread of its connection.

    `pieces` are those that the socket has not taken yet. The connection may append to it.
    """

    __slots__ = ("_file_sent", "_socket", "pieces")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.pieces: deque[bytes | memoryview | FileRange] = deque()
        self._file_sent = 0  # of the first piece, if that is a range of a file

    def send(self, more: Sequence[Piece] = ()) -> int:
        """Send `more` after the pieces that wait, as much as the socket takes now.

        Returns the number of bytes that were sent. Raises `OSError`.
        """
        sent = 0
        pieces = self.pieces
        pieces.extend(more)
        if len(pieces) > 1 and not self._file_sent:
            self._join_small()
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

    def _join_small(self) -> None:
        """Join the first pieces into one, as long as they are small together."""
        pieces = self.pieces
        size = count = 0
        for piece in pieces:
            size += piece.length if isinstance(piece, FileRange) else len(piece)
            if size > _JOINED_BYTES_MAX:
                break
            count += 1
        if count > 1:
            joined = b"".join(
                [
                    piece if isinstance(piece, bytes) else _content(piece)
                    for piece in [pieces.popleft() for _ in range(count)]
                ]
            )
            pieces.appendleft(joined)

    def _send_file(self, piece: FileRange) -> int:
        left = piece.length - self._file_sent
        count = os.sendfile(
            self._socket.fileno(),
            piece.fd,
            piece.position + self._file_sent,
            min(left, _SEND_ONCE_BYTES),
        )
        if count == 0:
            raise ends_short(left)
        self._file_sent += count
        if count == left:
            self.pieces.popleft()
            self._file_sent = 0
        return count


def _content(piece: bytes | memoryview | FileRange) -> bytes | memoryview:
    if not isinstance(piece, FileRange):
        return piece
    data = piece.file.read_at(piece.position, piece.length)
    if len(data) < piece.length:
        raise ends_short(piece.length - len(data))
    return data


def ends_short(missing: int) -> OSError:
    """Bytes that the answer already announced are missing from the file."""
    return OSError(f"a segment file ends {missing} bytes short")
