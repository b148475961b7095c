"""What a process and its keeper tell each other, over two pairs of sockets.

    news     keeper -> process   TASK     what to do, the first frame
                                 RECORDS  end of the image, then metadata records
                                 SECURITY users, access rules and quotas
                                 STOP     end in order
                                 PING     answer with PONG
             process -> keeper   WORKING  not ready yet, but further than before
                                 OPENED   the store is open: send the image from here on
                                 READY    what the first image assigns is open
                                 PONG     the loops turn
    calls    process -> keeper   BEGIN    topic, id and number of a partition that begins
                                 REQUEST  API, version, body
             keeper -> process   ANSWER   end of the image after it, then the answer
                                 REFUSAL  why there is none, as text

A frame is its size without these four bytes, its kind in one byte, its body. Both ends are
processes of one program, of one version. If one end is gone, so is the other, soon.
"""

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from cordwood.errors import BrokerUnreachableError, FormatError
from cordwood.quantities import GIB, Offset

KEEPER: Final = "the keeper of this node"
_HEAD: Final = struct.Struct(">IB")
_SIZE: Final = struct.Struct(">I")
_END: Final = struct.Struct(">q")
_FRAME_BYTES_MAX: Final = 1 * GIB  # a snapshot of millions of partitions has less


class FrameKind(IntEnum):
    TASK = 1
    RECORDS = 2
    STOP = 3
    OPENED = 4
    READY = 5
    BEGIN = 6
    REQUEST = 7
    ANSWER = 8
    REFUSAL = 9
    SECURITY = 10
    PING = 11
    PONG = 12
    WORKING = 13


class Frame(NamedTuple):
    kind: FrameKind
    body: bytes


def encode_frame(kind: FrameKind, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


def send_frame(connection: socket.socket, kind: FrameKind, body: bytes = b"") -> None:
    """Raises `OSError` if the other end is gone."""
    connection.sendall(encode_frame(kind, body))


def receive_frame(connection: socket.socket) -> Frame | None:
    """The next frame; None if the other end is gone."""
    try:
        head = _receive(connection, _HEAD.size)
        if head is None:
            return None
        size, kind = _HEAD.unpack(head)
        if not 1 <= size <= _FRAME_BYTES_MAX:
            raise FormatError(f"a frame between processes has {size} bytes")
        body = _receive(connection, size - 1)
    except ConnectionError:
        return None
    return None if body is None else Frame(FrameKind(kind), body)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray(size)
    view, at = memoryview(received), 0
    while at < size:
        count = connection.recv_into(view[at:])
        if not count:
            return None
        at += count
    return bytes(received)


# --- bodies ------------------------------------------------------------------------------------


def encode_records(end: Offset, records: Iterable[bytes]) -> bytes:
    parts = [_END.pack(end)]
    for record in records:
        parts += (_SIZE.pack(len(record)), record)
    return b"".join(parts)


def decode_records(body: bytes) -> tuple[Offset, list[bytes]]:
    (end,) = _END.unpack_from(body)
    return Offset(end), list(_records(body))


def _records(body: bytes) -> Iterator[bytes]:
    at = _END.size
    while at < len(body):
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        yield body[at : at + size]
        at += size


def encode_answer(end: Offset, body: bytes) -> bytes:
    return _END.pack(end) + body


class KeeperCalls:
    """Asks the keeper, and waits for the answer. Any thread but a loop's may call it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def ask(self, kind: FrameKind, body: bytes) -> tuple[Offset, bytes]:
        """The end of the image that has what was decided, and the answer.

        Raises `BrokerUnreachableError` if the keeper is gone or refuses.
        """
        with self._lock:
            try:
                send_frame(self._connection, kind, body)
                answer = receive_frame(self._connection)
            except OSError as error:
                raise BrokerUnreachableError(KEEPER, str(error)) from error
        if answer is None:
            raise BrokerUnreachableError(KEEPER, "it has ended")
        if answer.kind is FrameKind.REFUSAL:
            raise BrokerUnreachableError(KEEPER, answer.body.decode())
        (end,) = _END.unpack_from(answer.body)
        return Offset(end), answer.body[_END.size :]
