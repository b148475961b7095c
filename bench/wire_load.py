"""Clients that cost almost nothing: prebuilt requests on a socket, responses only counted.

A client library spends more time per record than a server, so it would be what is measured. These
clients send prepared bytes and read only the error code of a response.
"""

import errno
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.kafka_wire import (
    NO_ERROR,
    AnswerError,
    ProduceFrame,
    count_batches,
    fetch_error,
    fetch_frame,
    fetched_records,
    produce_error_position,
)
from bench.tls_files import ClientTls
from cordwood.quantities import KIB, MIB

HOST: Final = "127.0.0.1"
_IN_FLIGHT: Final = 5  # the limit of Kafka's clients on one connection
_ANSWER_BYTES: Final = 64 * KIB
_PATIENCE_S: Final = 60.0  # after this the server counts as dead
_COUNTED_PART: Final = 0.8
_FIRST_BUFFER: Final = 2 * MIB


def connect(port: int, tls: ClientTls | None = None) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=_PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if tls is None else tls.wrapped(connection)


def receive_frame(connection: socket.socket) -> memoryview:
    """One whole response, including its size prefix. The caller owns it."""
    buffer = memoryview(bytearray(4))
    _fill(connection, buffer)
    size = int.from_bytes(buffer, "big")
    whole = memoryview(bytearray(4 + size))
    whole[:4] = buffer
    _fill(connection, whole[4:])
    return whole


def ask(port: int, request: bytes, tls: ClientTls | None = None) -> memoryview:
    """Send one request on its own connection; return the response."""
    with connect(port, tls) as connection:
        connection.sendall(request)
        return receive_frame(connection)


# --- many records per request -----------------------------------------------------------------


def pipeline_produce(
    port: int,
    topic: str,
    frames: Sequence[ProduceFrame],
    records: int,
    tls: ClientTls | None = None,
) -> int:
    """Send frames in turn until they contain `records`; return how many were acknowledged.

    One connection, five requests in flight. Raises `AnswerError` at the first refusal.
    """
    position = produce_error_position(topic)
    sent = waiting = number = 0
    with connect(port, tls) as connection:
        while sent < records:
            frame = frames[number % len(frames)]
            number += 1
            connection.sendall(frame.data)
            sent += frame.records
            waiting += 1
            if waiting == _IN_FLIGHT:
                _take_answer(connection, position)
                waiting -= 1
        for _ in range(waiting):
            _take_answer(connection, position)
    return sent


def _take_answer(connection: socket.socket, error_position: int) -> None:
    answer = receive_frame(connection)
    error = bytes(answer[error_position : error_position + 2])
    if error != NO_ERROR:
        raise AnswerError(f"Produce was answered with error {error!r}: {bytes(answer[:200])!r}")


def fetch_all(
    port: int,
    topic: str,
    *,
    records: int,
    max_bytes: int,
    tls: ClientTls | None = None,
    is_committed: bool = False,
    partition: int = 0,
) -> int:
    """Fetch from offset 0 until `records` were received; return the bytes of their batches."""
    buffer = bytearray(max_bytes + _FIRST_BUFFER)
    offset = total_bytes = 0
    with connect(port, tls) as connection:
        while offset < records:
            connection.sendall(
                fetch_frame(
                    topic,
                    offset,
                    max_bytes=max_bytes,
                    is_committed=is_committed,
                    partition=partition,
                )
            )
            view = memoryview(buffer)
            _fill(connection, view[:4])
            size = 4 + int.from_bytes(view[:4], "big")
            if size > len(buffer):
                raise AnswerError(f"an answer of {size} bytes to a Fetch of {max_bytes}")
            _fill(connection, view[4:size])
            batches = count_batches(fetched_records(view[:size], topic), offset)
            if batches.next_offset == offset:
                raise AnswerError(f"Fetch at offset {offset} of {records} brought no whole batch")
            offset = batches.next_offset
            total_bytes += batches.size
    return total_bytes


def wait_for_topic(
    port: int, topic: str, tls: ClientTls | None = None, *, partition: int = 0
) -> None:
    """Wait until the partition has its leader, a moment after its creation is acknowledged."""
    deadline = time.monotonic() + _PATIENCE_S
    request = fetch_frame(topic, 0, max_bytes=KIB, max_wait_ms=0, partition=partition)
    while error := fetch_error(ask(port, request, tls), topic):
        if time.monotonic() > deadline:
            raise AnswerError(f"{topic} was not ready in {_PATIENCE_S:.0f} s: error {error}")
        time.sleep(0.005)


# --- one record per request, many connections -------------------------------------------------


def closed_loop(
    port: int, requests: Sequence[bytes], is_acknowledged: Callable[[bytes], bool], seconds: float
) -> float:
    """Acknowledged requests/s: each connection resends its request after each response."""
    connections = [connect(port) for _ in requests]
    try:
        return closed_loop_over(connections, requests, is_acknowledged, seconds)
    finally:
        for connection in connections:
            connection.close()


def closed_loop_over(
    connections: Sequence[socket.socket],
    requests: Sequence[bytes],
    is_acknowledged: Callable[[bytes], bool],
    seconds: float,
) -> float:
    """The same over open connections, which stay open.

    `is_acknowledged` gets the bytes received so far and raises an error at a refusal. The first
    part of the time, until all connections are busy, is not counted.
    """
    by_fd = {c.fileno(): (c.recv, c.send, r) for c, r in zip(connections, requests, strict=True)}
    partial: dict[int, bytes] = {}
    poll = select.epoll()
    clock = time.perf_counter
    try:
        for connection, request in zip(connections, requests, strict=True):
            connection.setblocking(False)
            poll.register(connection.fileno(), select.EPOLLIN)
            connection.send(request)
        counted_s = seconds * _COUNTED_PART
        now = clock()
        counted_from = now + seconds - counted_s
        count = 0
        is_counting = False
        while not is_counting or now < counted_from + counted_s:
            ready = poll.poll(_PATIENCE_S)
            if not ready:
                raise AnswerError(f"no answer in {_PATIENCE_S:.0f} s")
            for fd, _ in ready:
                receive, send, request = by_fd[fd]
                received = receive(_ANSWER_BYTES)
                if not received:
                    raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
                answer = partial.pop(fd, b"") + received
                if not is_acknowledged(answer):
                    partial[fd] = answer
                    continue
                count += 1
                if send(request) != len(request):
                    raise AnswerError("the server did not accept the whole request")
            now = clock()
            if not is_counting and now >= counted_from:
                is_counting, count, counted_from = True, 0, now
        return count / (now - counted_from)
    finally:
        poll.close()


def produce_acknowledgement(topic: str) -> Callable[[bytes], bool]:
    """Check Kafka's responses for `closed_loop`."""
    position = produce_error_position(topic)
    end = position + 2

    def is_acknowledged(answer: bytes) -> bool:
        if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            return False
        if answer[position:end] != NO_ERROR:
            raise AnswerError(f"Produce was refused: {answer[:200]!r}")
        return True

    return is_acknowledged


def _fill(connection: socket.socket, view: memoryview) -> None:
    """Receive until `view` is full."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        view = view[count:]
