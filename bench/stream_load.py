"""Clients of NATS, Redis and RabbitMQ that cost almost nothing: many prebuilt messages in flight.

All acknowledge each message. Several connections, each with hundreds of messages in flight, give
the server as much work as it can handle. A client library in Python would be slower than the
server.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, Protocol

from bench.broker_producers import Workload
from bench.nats_peer import connect_nats
from bench.nats_wire import (
    PONG,
    SUBJECT,
    MessageCounter,
    create_consumer,
    next_messages,
    publish,
)
from bench.rabbit_peer import ask_rabbit, connect_rabbit
from bench.rabbit_wire import (
    ConfirmCounter,
    Frames,
    check_response,
    credit,
    declare_publisher,
    delivered_records,
    subscribe,
)
from bench.rabbit_wire import publish as rabbit_publish
from bench.redis_wire import (
    STREAM,
    AddCounter,
    RedisError,
    is_refused,
    last_id,
    lines_of_read,
    xadd,
    xread,
)
from bench.wire_load import connect
from cordwood.quantities import KIB, MIB

CONNECTIONS: Final = 8
IN_FLIGHT: Final = 512  # messages on each connection

_PER_SEND: Final = 64
_ANSWER_BYTES: Final = 256 * KIB
_READ_BYTES: Final = 1 * MIB
_NATS_ASKED: Final = 1000  # messages per request, two requests in flight
_REDIS_ASKED: Final = 1000
_RABBIT_CREDIT: Final = 10  # chunks on their way, the default of its clients
_NO_LINE_ENDS: Final = bytes.maketrans(b"\n", b" ")


class AnswerCounter(Protocol):
    """Counts whole responses in its input; see `MessageCounter` and `AddCounter`."""

    pings: int

    def feed(self, data: bytes) -> int: ...


class _Pipe:
    """One connection with messages in flight."""

    def __init__(
        self, connection: socket.socket, counter: AnswerCounter, sends: Sequence[bytes]
    ) -> None:
        self._connection = connection
        self._counter = counter
        self._sends = sends
        self._number = 0
        self._pongs = 0
        self.waiting = 0

    def send(self) -> None:
        self._connection.sendall(self._sends[self._number % len(self._sends)])
        self._number += 1
        self.waiting += _PER_SEND

    def take(self) -> None:
        """Wait for some responses."""
        data = self._connection.recv(_ANSWER_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self.waiting -= self._counter.feed(data)
        while self._pongs < self._counter.pings:
            self._connection.sendall(PONG)
            self._pongs += 1


def _pipelined(pipes: Sequence[_Pipe], records: int) -> int:
    """Cycle through the connections until `records` are sent; then wait for all responses."""
    sent = 0
    while sent < records:
        for pipe in pipes:
            while pipe.waiting + _PER_SEND > IN_FLIGHT:
                pipe.take()
            pipe.send()
        sent += _PER_SEND * len(pipes)
    for pipe in pipes:
        while pipe.waiting:
            pipe.take()
    return sent


def line_free_values(work: Workload) -> list[bytes]:
    """The values of the workload, without line ends, so that responses can be counted by lines."""
    return [value.translate(_NO_LINE_ENDS) for value in work.values()]


def _sends(values: Sequence[bytes], message: Callable[[bytes], bytes]) -> list[bytes]:
    count = max(_PER_SEND, len(values) // _PER_SEND * _PER_SEND)
    messages = [message(values[number % len(values)]) for number in range(count)]
    return [b"".join(messages[at : at + _PER_SEND]) for at in range(0, count, _PER_SEND)]


# --- NATS -------------------------------------------------------------------------------------


class NatsPipeline:
    """Connections and messages that are ready before the clock starts."""

    def __init__(self, port: int, values: Sequence[bytes]) -> None:
        self._resources = ExitStack()
        self._pipes = []
        for number in range(CONNECTIONS):
            inbox = f"_INBOX.{number}"
            connection = self._resources.enter_context(connect_nats(port, inbox))
            share = values[number::CONNECTIONS]
            sends = _sends(share, partial(_nats_message, inbox))
            self._pipes.append(_Pipe(connection, MessageCounter(), sends))

    def produce(self, records: int) -> int:
        """Produce at least `records`; return how many were acknowledged."""
        return _pipelined(self._pipes, records)

    def close(self) -> None:
        self._resources.close()


def _nats_message(inbox: str, value: bytes) -> bytes:
    return publish(SUBJECT, value, inbox=inbox)


def nats_consume(port: int, records: int, *, consumer: str) -> None:
    """Read the stream from its first message, a thousand per request."""
    inbox = "_INBOX.reader"
    with connect_nats(port, inbox) as connection:
        counter = MessageCounter()
        connection.sendall(create_consumer(consumer, inbox))
        while not counter.feed(connection.recv(_ANSWER_BYTES)):
            continue
        values = MessageCounter(is_checked=False)
        asked = read = 0
        while read < records:
            while asked < records and asked - read <= _NATS_ASKED:
                count = min(_NATS_ASKED, records - asked)
                connection.sendall(next_messages(consumer, count, inbox))
                asked += count
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            read += values.feed(data)


# --- Redis ------------------------------------------------------------------------------------


class RedisPipeline:
    """Like `NatsPipeline`."""

    def __init__(self, port: int, values: Sequence[bytes]) -> None:
        self._resources = ExitStack()
        self._pipes = []
        for number in range(CONNECTIONS):
            connection = self._resources.enter_context(connect(port))
            sends = _sends(values[number::CONNECTIONS], partial(xadd, STREAM))
            self._pipes.append(_Pipe(connection, AddCounter(), sends))

    def produce(self, records: int) -> int:
        return _pipelined(self._pipes, records)

    def close(self) -> None:
        self._resources.close()


def redis_consume(port: int, records: int) -> None:
    """Read the stream from its first entry, a thousand per command."""
    after, left = b"0", records
    with connect(port) as connection:
        while left:
            count = min(_REDIS_ASKED, left)
            connection.sendall(xread(STREAM, after, count))
            after = last_id(_receive_lines(connection, lines_of_read(count)))
            left -= count


def _receive_lines(connection: socket.socket, count: int) -> bytes:
    pieces: list[bytes] = []
    lines = 0
    while lines < count:
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        if not pieces and is_refused(data):
            raise RedisError(data[:200].decode(errors="replace"))
        pieces.append(data)
        lines += data.count(b"\n")
    return b"".join(pieces)


# --- RabbitMQ ---------------------------------------------------------------------------------


class RabbitPipeline:
    """Like `NatsPipeline`. A frame carries as many messages as the others send in one call."""

    def __init__(self, port: int, values: Sequence[bytes]) -> None:
        self._resources = ExitStack()
        self._pipes = []
        for number in range(CONNECTIONS):
            connection = self._resources.enter_context(connect_rabbit(port))
            ask_rabbit(connection, declare_publisher())
            share = values[number::CONNECTIONS]
            count = max(_PER_SEND, len(share) // _PER_SEND * _PER_SEND)
            sends = [
                rabbit_publish(at, [share[n % len(share)] for n in range(at, at + _PER_SEND)])
                for at in range(0, count, _PER_SEND)
            ]
            self._pipes.append(_Pipe(connection, ConfirmCounter(), sends))

    def produce(self, records: int) -> int:
        return _pipelined(self._pipes, records)

    def close(self) -> None:
        self._resources.close()


def rabbit_consume(port: int, records: int) -> None:
    """Read the stream from its first message, chunk by chunk."""
    frames, read = Frames(), 0
    with connect_rabbit(port) as connection:
        connection.sendall(subscribe(_RABBIT_CREDIT))
        while read < records:
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            for frame in frames.feed(data):
                found = delivered_records(frame)
                if found:
                    read += found
                    connection.sendall(credit(1))
                else:
                    check_response(frame)
