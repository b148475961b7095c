"""RabbitMQ's stream protocol as bytes: publishing with confirms, and reading by chunks.

    frame      size of the rest (4), command (2), version (2), content
    request    its content begins with a correlation id (4); so does the response to it, whose
               command has the highest bit set, followed by a code (2)
    string     size (2), bytes; an array has a count (4) in front

Publish, its confirms, deliveries and credit have no correlation id and no response.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

STREAM: Final = "bench"
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024

_DECLARE_PUBLISHER: Final = 0x0001
_PUBLISH: Final = 0x0002
_CONFIRM: Final = 0x0003
_PUBLISH_ERROR: Final = 0x0004
_SUBSCRIBE: Final = 0x0007
_DELIVER: Final = 0x0008
_CREDIT: Final = 0x0009
_CREATE: Final = 0x000D
_DELETE: Final = 0x000E
_PEER_PROPERTIES: Final = 0x0011
_SASL_HANDSHAKE: Final = 0x0012
_SASL_AUTHENTICATE: Final = 0x0013
_TUNE: Final = 0x0014
_OPEN: Final = 0x0015
_HEARTBEAT: Final = 0x0017
_RESPONSE: Final = 0x8000
_VERSION: Final = 1
_OK: Final = 1
_FROM_FIRST: Final = 1

_HEAD: Final = struct.Struct(">IHH")
_PREFIX: Final = struct.Struct(">I")
# Of a chunk: magic and type, entries, records, timestamp, epoch, first offset, checksum, ...
_CHUNK: Final = struct.Struct(">BBHIqQQIII4x")
_CHUNK_AT: Final = _HEAD.size + 1  # behind the id of the subscription


class RabbitError(Exception):
    """The server refused a request; the message has its code."""


def _frame(command: int, content: bytes) -> bytes:
    return _HEAD.pack(4 + len(content), command, _VERSION) + content


def _request(command: int, correlation: int, content: bytes) -> bytes:
    return _frame(command, _PREFIX.pack(correlation) + content)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _map(values: Mapping[str, str]) -> bytes:
    pairs = b"".join(_string(key) + _string(value) for key, value in values.items())
    return _PREFIX.pack(len(values)) + pairs


# --- requests ---------------------------------------------------------------------------------


def peer_properties() -> bytes:
    return _request(_PEER_PROPERTIES, 1, _map({"product": "bench"}))


def sasl_handshake() -> bytes:
    return _request(_SASL_HANDSHAKE, 2, b"")


def authenticate(user: str, password: str) -> bytes:
    secret = f"\0{user}\0{password}".encode()
    return _request(_SASL_AUTHENTICATE, 3, _string("PLAIN") + _PREFIX.pack(len(secret)) + secret)


def tune() -> bytes:
    """The largest frame; no heartbeats."""
    return _frame(_TUNE, struct.pack(">II", FRAME_BYTES_MAX, 0))


def open_host() -> bytes:
    return _request(_OPEN, 4, _string("/"))


def create_stream() -> bytes:
    """One replica, no limits."""
    return _request(_CREATE, 5, _string(STREAM) + _map({}))


def delete_stream() -> bytes:
    return _request(_DELETE, 6, _string(STREAM))


def declare_publisher() -> bytes:
    """A publisher without a name: the server removes no duplicates."""
    return _request(_DECLARE_PUBLISHER, 7, b"\0" + _string("") + _string(STREAM))


def publish(first_id: int, values: Sequence[bytes]) -> bytes:
    """One frame with a message for each value; each is confirmed by its id."""
    messages = b"".join(
        struct.pack(">QI", first_id + number, len(value)) + value
        for number, value in enumerate(values)
    )
    return _frame(_PUBLISH, b"\0" + _PREFIX.pack(len(values)) + messages)


def subscribe(credit: int) -> bytes:
    """All messages from the first on; the server sends `credit` chunks, and more for credit."""
    place = struct.pack(">H", _FROM_FIRST)
    return _request(_SUBSCRIBE, 8, b"\0" + _string(STREAM) + place + struct.pack(">H", credit))


def credit(chunks: int) -> bytes:
    return _frame(_CREDIT, b"\0" + struct.pack(">H", chunks))


# --- answers ----------------------------------------------------------------------------------


class Frames:
    """Whole frames from input in any portions."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The frames that `data` completes, with their sizes in front."""
        data = self._rest + data
        view, at = memoryview(data), 0
        while len(data) - at >= _HEAD.size:
            end = at + 4 + _PREFIX.unpack_from(data, at)[0]
            if end > len(data):
                break
            yield view[at:end]
            at = end
        self._rest = data[at:]


def is_tune(frame: memoryview) -> bool:
    return _command(frame) == _TUNE


def check_response(frame: memoryview) -> bool:
    """Whether it is a response; one that refuses raises `RabbitError`."""
    command = _command(frame)
    if not command & _RESPONSE:
        return False
    correlation, code = struct.unpack_from(">IH", frame, _HEAD.size)
    if code != _OK:
        raise RabbitError(f"request {correlation} was refused with code {code}")
    return True


def delivered_records(frame: memoryview) -> int:
    """The number of records in a delivery; 0 if it is another frame."""
    if _command(frame) != _DELIVER:
        return 0
    records: int = _CHUNK.unpack_from(frame, _CHUNK_AT)[3]
    return records


class ConfirmCounter:
    """Counts confirmed messages in its input, which may come in any portions.

    A message that the server could not store raises `RabbitError`.
    """

    pings = 0  # none that need an answer: heartbeats are off

    def __init__(self) -> None:
        self._frames = Frames()

    def feed(self, data: bytes) -> int:
        confirmed = 0
        for frame in self._frames.feed(data):
            command = _command(frame)
            if command == _CONFIRM:
                confirmed += _PREFIX.unpack_from(frame, _HEAD.size + 1)[0]
            elif command == _PUBLISH_ERROR:
                raise RabbitError("a message was refused")
            elif command != _HEARTBEAT:
                check_response(frame)
        return confirmed


def _command(frame: memoryview) -> int:
    command: int = _HEAD.unpack_from(frame)[1]
    return command
