"""What a TLS connection still has to send.

A write is taken whole, or must be repeated with the same bytes: they are encrypted, and partly
sent. So bytes are offered in chunks, and a chunk that was not taken is offered again. A client that
does not read its answer costs the memory of one chunk.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from cordwood.broker.net.sockets.outbox import Piece, ends_short
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.log.reading.file_range import FileRange
from cordwood.quantities import KIB, MIB

_CHUNK_BYTES: Final = 64 * KIB  # four full records; larger ones are no faster
_SEND_ONCE_BYTES: Final = 1 * MIB  # about 2 ms of encryption; then others have their turn


class TlsOutbox:
    """As `Outbox`, for a TLS connection.

    Invariant: while `_offered` is not 0, OpenSSL has seen that many bytes at the head of `pieces`,
    and the next write is of exactly these.
    """

    __slots__ = ("_head_sent", "_offered", "_tls", "pieces")

    def __init__(self, tls: TlsSocket) -> None:
        self._tls = tls
        self.pieces: deque[bytes | memoryview | FileRange] = deque()
        self._head_sent = 0  # bytes of the first piece
        self._offered = 0

    def send(self, more: Sequence[Piece] = ()) -> int:
        """Send `more` after the pieces that wait, as much as the socket takes now.

        Returns the number of bytes that were sent. Raises `OSError`.
        """
        pieces, sent = self.pieces, 0
        pieces.extend(more)
        while pieces and sent < _SEND_ONCE_BYTES:
            chunk = self._chunk(self._offered or _CHUNK_BYTES)
            if chunk:  # an answer without bytes has empty pieces
                self._offered = len(chunk)
                try:
                    self._tls.send(chunk)
                except BlockingIOError:
                    break
                self._offered = 0
            self._remove(len(chunk))
            sent += len(chunk)
        return sent

    def _chunk(self, size: int) -> bytes | memoryview:
        """The next bytes, `size` of them unless there are fewer."""
        parts: list[bytes | memoryview] = []
        skipped = self._head_sent
        for piece in self.pieces:
            part = _part(piece, skipped, size)
            parts.append(part)
            size -= len(part)
            if not size:
                break
            skipped = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _remove(self, count: int) -> None:
        pieces = self.pieces
        count += self._head_sent
        while pieces and count >= (size := _size(pieces[0])):
            pieces.popleft()
            count -= size
        self._head_sent = count


def _size(piece: bytes | memoryview | FileRange) -> int:
    return piece.length if isinstance(piece, FileRange) else len(piece)


def _part(piece: bytes | memoryview | FileRange, skipped: int, size_max: int) -> bytes | memoryview:
    if not isinstance(piece, FileRange):
        whole = not skipped and len(piece) <= size_max
        return piece if whole else memoryview(piece)[skipped : skipped + size_max]
    size = min(piece.length - skipped, size_max)
    data = piece.file.read_at(piece.position + skipped, size)
    if len(data) < size:
        raise ends_short(size - len(data))
    return data
