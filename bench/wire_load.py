"""Clients that cost next to nothing: prebuilt requests down a socket, answers counted.

A client library spends more on a record than a server does, and then the client is what is
measured. These send bytes that were ready beforehand and look at no more of an answer than its
error code.
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
from cordwood.quantities import KIB, MIB

HOST: Final = "127.0.0.1"
_IN_FLIGHT: Final = 5  # what Kafka's clients allow on one connection
_ANSWER_BYTES: Final = 64 * KIB
_PATIENCE_S: Final = 60.0  # then the server is taken for dead
_COUNTED_PART: Final = 0.8
_FIRST_BUFFER: Final = 2 * MIB


def connect(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=_PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_frame(connection: socket.socket) -> memoryview:
    """One whole answer, its size prefix included; of the buffer's own, so keep it if you like."""
    buffer = memoryview(bytearray(4))
    _fill(connection, buffer)
    size = int.from_bytes(buffer, "big")
    whole = memoryview(bytearray(4 + size))
    whole[:4] = buffer
    _fill(connection, whole[4:])
    return whole


def ask(port: int, request: bytes) -> memoryview:
    """One request on a connection of its own."""
    with connect(port) as connection:
        connection.sendall(request)
        return receive_frame(connection)


# --- many records a request -------------------------------------------------------------------


def pipeline_produce(port: int, topic: str, frames: Sequence[ProduceFrame], records: int) -> int:
    """Send frames in turns until they carry `records`; return how many were acknowledged.

    One connection, five requests in flight. Raises `AnswerError` at the first that was refused.
    """
    position = produce_error_position(topic)
    sent = waiting = number = 0
    with connect(port) as connection:
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


def fetch_all(port: int, topic: str, *, records: int, max_bytes: int) -> int:
    """Fetch from offset 0 until `records` were seen; return the bytes of their batches."""
    buffer = bytearray(max_bytes + _FIRST_BUFFER)
    offset = total_bytes = 0
    with connect(port) as connection:
        while offset < records:
            connection.sendall(fetch_frame(topic, offset, max_bytes=max_bytes))
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


def wait_for_topic(port: int, topic: str) -> None:
    """Until the partition has its leader: a moment after its creation was acknowledged."""
    deadline = time.monotonic() + _PATIENCE_S
    request = fetch_frame(topic, 0, max_bytes=KIB, max_wait_ms=0)
    while error := fetch_error(ask(port, request), topic):
        if time.monotonic() > deadline:
            raise AnswerError(f"{topic} was not ready in {_PATIENCE_S:.0f} s: error {error}")
        time.sleep(0.005)


# --- one record a request, many connections ---------------------------------------------------


def closed_loop(
    port: int, requests: Sequence[bytes], is_acknowledged: Callable[[bytes], bool], seconds: float
) -> float:
    """Acknowledged requests/s: a connection for each request, which is sent again once answered."""
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
    """The same over connections that are open, which stay so.

    `is_acknowledged` is given what came so far and raises an error at a refusal. The first
    part of the time, until all connections are at work, is not counted.
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
                    raise ConnectionResetError(errno.ECONNRESET, "the server hung up")
                answer = partial.pop(fd, b"") + received
                if not is_acknowledged(answer):
                    partial[fd] = answer
                    continue
                count += 1
                if send(request) != len(request):
                    raise AnswerError("the server does not take a request of one record")
            now = clock()
            if not is_counting and now >= counted_from:
                is_counting, count, counted_from = True, 0, now
        return count / (now - counted_from)
    finally:
        poll.close()


def produce_acknowledgement(topic: str) -> Callable[[bytes], bool]:
    """What `closed_loop` asks of Kafka's answers."""
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
            raise ConnectionResetError(errno.ECONNRESET, "the server hung up")
        view = view[count:]
