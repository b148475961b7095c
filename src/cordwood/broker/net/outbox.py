"""What a connection still has to send: bytes, and ranges of files.

A large range never passes through us: the kernel sends it from the file. A small one, such as the
one record that a consumer at the end of a log has waited for, is read and sent in one call with
the bytes around it: that costs less than three calls do.
"""

import os
import socket
from collections import deque
from typing import Final

from cordwood.log.reading.file_range import FileRange

_SEND_ONCE_BYTES: Final = 4 * 1024 * 1024  # then others have their turn
_JOINED_BYTES_MAX: Final = 16 * 1024
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
        """Make one piece of the first ones, as far as they are small together."""
        pieces = self._pieces
        size = count = 0
        for piece in pieces:
            size += piece.length if isinstance(piece, FileRange) else len(piece)
            if size > _JOINED_BYTES_MAX:
                break
            count += 1
        if count > 1:
            joined = b"".join([_content(pieces.popleft()) for _ in range(count)])
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
            raise _ends_short(left)
        self._file_sent += count
        if count == left:
            self._pieces.popleft()
            self._file_sent = 0
        return count


def _content(piece: bytes | memoryview | FileRange) -> bytes | memoryview:
    if not isinstance(piece, FileRange):
        return piece
    data = piece.file.read_at(piece.position, piece.length)
    if len(data) < piece.length:
        raise _ends_short(piece.length - len(data))
    return data


def _ends_short(missing: int) -> OSError:
    """Promised bytes are gone from the file, and the client was told of them already."""
    return OSError(f"a segment file ends {missing} bytes short")
