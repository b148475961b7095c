"""Connections in the row: received from together, answered together, and out of it in time.

In a round each client sends a produce and gets its answer. After the first round all connections
are in the row, and members.
"""

import errno
import itertools
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.session import Access
from cordwood.broker.net.rows import gathered_frames, row_transfers
from cordwood.broker.net.rows.answer_row import AnswerRow
from cordwood.broker.net.rows.gathered_frames import Gathering
from cordwood.broker.net.rows.socket_rows import SocketRows
from cordwood.log.partition.writing.log_sync import SyncUnderWay
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.security.access.access_event import AccessRequest
from fakes.client_batches import client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import produce_body

CLIENTS = 6
VERSION = 9
ANSWER_BYTES = 4 + 4 + 1 + 1 + 2 + 1 + 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1
ERROR_AT = 4 + 4 + 1 + 1 + 2 + 1 + 4

_ids = itertools.count(1)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RecordBench]:
    made = RecordBench(tmp_path, {"t": {}}, clients=CLIENTS)
    yield made
    made.close()


@pytest.fixture
def durable_bench(tmp_path: Path) -> Iterator[RecordBench]:
    """Where produces wait for the disk."""
    made = RecordBench(tmp_path, {"t": {}}, clients=CLIENTS, durability="disk")
    yield made
    made.close()


@pytest.fixture
def row_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many answers each row had that was sent."""
    sizes: list[int] = []
    send = AnswerRow.send

    def note(self: AnswerRow, frames: bytearray, size: int, stop: int) -> list[tuple[int, int]]:
        sizes.append(stop - self.answered)
        return send(self, frames, size, stop)

    monkeypatch.setattr(AnswerRow, "send", note)
    return sizes


def produce(value: bytes, correlation_id: int = 1, *, acks: int = -1, **batch: object) -> bytes:
    records = bytes(client_batch(value, **batch))  # type: ignore[arg-type]
    body = produce_body(VERSION, [("t", 0, records)], acks=acks)
    return framed(request_header(ApiKey.PRODUCE, VERSION, correlation_id) + body)


def read(answer: bytes) -> tuple[int, int, int]:
    """Correlation id, error and base offset of a whole answer."""
    assert len(answer) == ANSWER_BYTES == struct.unpack_from(">i", answer)[0] + 4
    (correlation_id,) = struct.unpack_from(">i", answer, 4)
    code, base = struct.unpack_from(">hq", answer, ERROR_AT)
    return correlation_id, code, base


def values(bench: RecordBench) -> list[bytes | None]:
    return [record.value for record in bench.store.topic("t").partition(0).read(0)]


def rounds(bench: RecordBench, count: int = 1) -> None:
    for _ in range(count):
        sent = {client: next(_ids) for client in range(len(bench.clients))}
        answers = bench.exchange(
            *((client, produce(b"%d" % number, number)) for client, number in sent.items())
        )
        while not all(answers):
            answers = [a + b for a, b in zip(answers, bench.exchange(), strict=True)]
        for client, number in sent.items():
            correlation_id, code, base = read(answers[client])
            assert (correlation_id, code) == (number, 0)
            assert values(bench)[base] == b"%d" % number


def members(bench: RecordBench) -> list[bool]:
    known = bench.connections[0].rows.members
    return [
        connection.fd < len(known) and known[connection.fd] is connection
        for connection in bench.connections
    ]


# --- the usual case -----------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_in_every_round_each_client_gets_the_answer_to_its_own_request(
    tmp_path: Path, row_sizes: list[int], durability: str
) -> None:
    bench = RecordBench(tmp_path, {"t": {}}, clients=CLIENTS, durability=durability)

    rounds(bench, 5)

    assert row_sizes == [CLIENTS] * 5
    assert members(bench) == [True] * CLIENTS
    assert all(connection.is_idle for connection in bench.connections)
    bench.close()


def test_requests_of_idempotent_producers_are_answered_in_rows(
    bench: RecordBench, row_sizes: list[int]
) -> None:
    for sequence in range(3):
        answers = bench.exchange(
            *(
                (client, produce(b"v", producer_id=client, producer_epoch=0, sequence=sequence))
                for client in range(CLIENTS)
            )
        )
        assert {read(answer)[1] for answer in answers} == {0}

    assert row_sizes == [CLIENTS] * 3


def test_a_producer_with_two_connections_keeps_its_order(bench: RecordBench) -> None:
    rounds(bench)

    answers = bench.exchange(
        *(
            (client, produce(b"v", producer_id=7, producer_epoch=0, sequence=client))
            for client in range(CLIENTS)
        )
    )

    assert [read(answer)[1:] for answer in answers] == [
        (0, CLIENTS + client) for client in range(CLIENTS)
    ]


def test_with_acks_1_answers_leave_in_rows_and_without_acks_not_at_all(
    durable_bench: RecordBench, row_sizes: list[int]
) -> None:
    bench = durable_bench
    rounds(bench)
    row_sizes.clear()

    with_one = bench.exchange(*((c, produce(b"1", acks=1)) for c in range(CLIENTS)))
    with_none = bench.exchange(*((c, produce(b"0", acks=0)) for c in range(CLIENTS)))

    assert [read(answer)[1] for answer in with_one] == [0] * CLIENTS
    assert row_sizes == [CLIENTS]
    assert with_none == [b""] * CLIENTS
    assert all(not connection.answers for connection in bench.connections)


def test_every_request_and_byte_is_counted(bench: RecordBench) -> None:
    frame = produce(b"v")
    for _ in range(3):
        bench.exchange(*((client, frame) for client in range(CLIENTS)))

    counts = bench.metrics.view()

    assert counts.latencies[ApiKey.PRODUCE].count == 3 * CLIENTS
    assert counts.bytes_received == 3 * CLIENTS * len(frame)
    assert counts.bytes_sent == 3 * CLIENTS * ANSWER_BYTES


# --- unusual bytes ------------------------------------------------------------------------------


def test_requests_that_come_in_parts_are_put_together(bench: RecordBench) -> None:
    rounds(bench)
    whole = produce(b"in parts", 99)

    for at in range(len(whole)):
        more = [(client, produce(b"other")) for client in range(1, CLIENTS)] if at % 40 == 0 else []
        answers = bench.exchange((0, whole[at : at + 1]), *more)

    assert read(answers[0])[:2] == (99, 0)
    assert b"in parts" in values(bench)
    rounds(bench, 2)
    assert members(bench) == [True] * CLIENTS


@pytest.mark.parametrize("size", [16 * 1024, 100_000, 300_000])
def test_a_member_may_send_a_large_request(bench: RecordBench, size: int) -> None:
    rounds(bench)
    large = produce(bytes(size), 77)
    bench.clients[2].setblocking(True)
    bench.clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(large))

    answers = bench.exchange(*((c, large if c == 2 else produce(b"v")) for c in range(CLIENTS)))
    bench.clients[2].setblocking(False)

    assert [read(answer)[1] for answer in answers] == [0] * CLIENTS
    assert read(answers[2])[0] == 77
    rounds(bench, 2)


def test_two_requests_at_once_are_answered_in_their_order(durable_bench: RecordBench) -> None:
    bench = durable_bench
    rounds(bench)

    received = bench.exchange(
        *((c, produce(b"a", 1) + (produce(b"b", 2) if c == 3 else b"")) for c in range(CLIENTS))
    )
    while len(received[3]) < 2 * ANSWER_BYTES:
        received = [a + b for a, b in zip(received, bench.exchange(), strict=True)]

    halves = received[3][:ANSWER_BYTES], received[3][ANSWER_BYTES:]
    assert [read(half)[:2] for half in halves] == [(1, 0), (2, 0)]


def test_a_request_behind_one_that_waits_for_the_disk_is_answered_after_it(
    durable_bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = durable_bench
    rounds(bench)
    held: list[Callable[[], None]] = []
    finish = SyncUnderWay.finish
    monkeypatch.setattr(
        SyncUnderWay,
        "finish",
        lambda self, error: held.append(lambda: finish(self, error)),
    )

    bench.exchange(*((client, produce(b"first", 1)) for client in range(CLIENTS)))
    bench.exchange((4, produce(b"second", 2)))
    while not held:
        bench.turn()
    monkeypatch.setattr(SyncUnderWay, "finish", finish)
    held.pop()()
    received = b""
    while len(received) < 2 * ANSWER_BYTES:
        received += bench.exchange()[4]

    assert read(received[:ANSWER_BYTES])[:2] == (1, 0)
    assert read(received[ANSWER_BYTES:])[:2] == (2, 0)


def test_one_call_receives_from_all_members_wherever_they_are_among_the_ready(
    bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(bench)
    calls: list[int] = []

    def receive_row(events: list[tuple[int, int]], *rest: Any) -> Any:
        calls.append(len(events))
        return row_transfers.receive_row(events, *rest)

    monkeypatch.setattr(gathered_frames, "receive_row", receive_row)
    bench.connections[2].leave_row()

    rounds(bench, 1)

    assert calls == [CLIENTS]


def test_more_than_the_buffer_holds_is_received_in_parts(
    bench: RecordBench, row_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(bench)
    row_sizes.clear()
    monkeypatch.setattr(gathered_frames, "_GATHERED_BYTES_MAX", 2 * len(produce(b"v")))

    rounds(bench, 2)

    assert sum(row_sizes) == 2 * CLIENTS
    assert max(row_sizes) < CLIENTS


def test_a_limit_of_requests_below_what_is_small_holds_in_the_row(bench: RecordBench) -> None:
    for connection in bench.connections:
        connection.session = replace(connection.session, frame_bytes_max=1024)
    rounds(bench, 2)

    bench.exchange(*((c, produce(bytes(2000 if c == 1 else 10))) for c in range(CLIENTS)))

    assert bench.closed == [client == 1 for client in range(CLIENTS)]
    assert bytes(2000) not in values(bench)


# --- clients that leave -------------------------------------------------------------------------


def test_a_member_that_closes_is_closed(bench: RecordBench) -> None:
    rounds(bench)

    bench.clients[1].close()
    bench.turn()

    assert bench.closed == [client == 1 for client in range(CLIENTS)]


def test_a_client_that_leaves_while_it_is_owed_an_answer_has_its_record_appended(
    durable_bench: RecordBench,
) -> None:
    bench = durable_bench
    rounds(bench)

    for client in range(CLIENTS):
        bench.clients[client].sendall(produce(b"last words"))
    bench.loop._turn()
    bench.clients[0].close()
    bench.clients[1].shutdown(socket.SHUT_WR)
    received = bench.clients[1].recv
    bench.clients[1].setblocking(False)
    answer = b""
    while not (bench.connections[0].is_closed and bench.connections[1].is_closed):
        bench.turn()
        try:
            answer += received(1000)
        except BlockingIOError:
            continue

    assert values(bench).count(b"last words") == CLIENTS
    assert read(answer)[1] == 0  # it had closed its side only


def test_a_client_whose_connection_breaks_disturbs_no_other(
    bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(bench)
    send = SocketRows.send

    def leave_then_send(
        self: SocketRows, connections: Sequence[Gathering], *rest: object
    ) -> list[tuple[int, int]]:
        bench.clients[2].close()  # after its request was received, before it is answered
        return send(self, connections, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SocketRows, "send", leave_then_send)
    for client in range(CLIENTS):
        bench.clients[client].sendall(produce(b"v"))
    bench.turn()
    monkeypatch.setattr(SocketRows, "send", send)

    others = [c for c in range(CLIENTS) if c != 2]
    assert [read(bench.clients[c].recv(1000))[1] for c in others] == [0] * len(others)
    assert bench.connections[2].is_closed
    assert values(bench).count(b"v") == CLIENTS


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.ETIMEDOUT, errno.EBADF])
def test_an_error_of_a_receive_closes_that_connection_alone(bench: RecordBench, code: int) -> None:
    rounds(bench)

    bench.connections[5].receive_failed(code)
    bench.turn()

    assert bench.closed == [client == 5 for client in range(CLIENTS)]


def test_a_connection_that_is_closed_in_the_turn_of_its_request_is_not_sent_to(
    bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(bench)
    take_all = bench.lanes._take_run

    def close_then_take(*arguments: object) -> object:
        bench.connections[0].close("")
        return take_all(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.lanes, "_take_run", close_then_take)
    for client in range(CLIENTS):
        bench.clients[client].sendall(produce(b"v"))
    bench.turn()

    assert bench.clients[0].recv(1000) == b""
    assert [read(c.recv(1000))[1] for c in bench.clients[1:]] == [0] * (CLIENTS - 1)


# --- clients that do not read -------------------------------------------------------------------


def test_a_client_that_reads_byte_by_byte_gets_every_answer_whole_and_in_order(
    bench: RecordBench,
) -> None:
    slow = bench.clients[0]
    ours = bench.connections[0]._socket
    assert isinstance(ours, socket.socket)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as there is
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    count = 60
    for number in range(count):
        for client in range(CLIENTS):
            bench.clients[client].sendall(produce(b"%d" % client, number))
        bench.turn()
        for quick in bench.clients[1:]:
            assert read(quick.recv(1000))[:2] == (number, 0)
    assert not bench.connections[0].is_in_row  # answers wait for it

    received = b""
    while len(received) < count * ANSWER_BYTES:
        try:
            received += slow.recv(1)
        except BlockingIOError:
            bench.turn()

    found = [
        read(received[at : at + ANSWER_BYTES])[:2] for at in range(0, len(received), ANSWER_BYTES)
    ]
    assert found == [(number, 0) for number in range(count)]
    rounds(bench, 2)
    assert members(bench) == [True] * CLIENTS


@pytest.mark.parametrize("taken", [0, 1, ANSWER_BYTES - 1, -errno.EAGAIN])
def test_the_rest_of_an_answer_is_sent_when_there_is_room(
    bench: RecordBench, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """The kernel of the system decides how much it takes; here as little as we like."""
    rounds(bench)

    def take_little(
        self: SocketRows, connections: Sequence[Gathering], frames: bytearray, size: int, _: float
    ) -> list[tuple[int, int]]:
        for index, connection in enumerate(connections):
            assert isinstance(connection, ClientConnection)
            assert isinstance(connection._socket, socket.socket)
            connection._socket.send(frames[index * size : index * size + max(taken, 0)])
        return [(index, taken) for index in range(len(connections))]

    monkeypatch.setattr(SocketRows, "send", take_little)
    for client in range(CLIENTS):
        bench.clients[client].sendall(produce(b"v", client))
    bench.turn()

    assert [read(c.recv(1000))[:2] for c in bench.clients] == [(n, 0) for n in range(CLIENTS)]
    assert bench.metrics.view().bytes_sent == 2 * CLIENTS * ANSWER_BYTES


# --- what the broker decides --------------------------------------------------------------------


class NoAccess:
    """A client that may do nothing."""

    is_unlimited = False

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return False

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return False

    def operations(self, resource: AclResource, name: str) -> int:
        return 0

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None: ...


def test_rules_that_change_hold_for_the_next_request(bench: RecordBench) -> None:
    access: Access = NoAccess()
    rounds(bench)

    bench.restrict(1, access)
    answers = bench.exchange(*((client, produce(b"v")) for client in range(CLIENTS)))

    refused = ErrorCode.topic_authorization_failed
    assert [read(answer)[1] for c, answer in enumerate(answers) if c != 1] == [0] * (CLIENTS - 1)
    assert struct.unpack_from(">h", answers[1], ERROR_AT)[0] == refused


def test_a_member_that_is_muted_is_not_received_from(bench: RecordBench) -> None:
    rounds(bench)

    bench.connections[3].mute(60.0)
    answers = bench.exchange(*((client, produce(b"v")) for client in range(CLIENTS)))

    assert [bool(answer) for answer in answers] == [client != 3 for client in range(CLIENTS)]
    bench.connections[3].unmute()
    assert read(bench.exchange()[3])[1] == 0


def test_a_client_that_is_muted_while_its_request_waits_is_told_so(
    durable_bench: RecordBench,
) -> None:
    bench = durable_bench
    rounds(bench)
    for client in range(CLIENTS):
        bench.clients[client].sendall(produce(b"v"))
    while not bench.connections[0].answers:
        bench.loop.call_soon(lambda: None)
        bench.loop._turn()

    bench.connections[0].mute(60.0)
    answers = bench.exchange()
    while not all(answers):
        answers = [a + b for a, b in zip(answers, bench.exchange(), strict=True)]

    throttles_ms = [struct.unpack_from(">i", answer, ANSWER_BYTES - 5)[0] for answer in answers]
    assert 0 < throttles_ms[0] <= 60_001
    assert throttles_ms[1:] == [0] * (CLIENTS - 1)


def test_a_sync_that_fails_is_told_to_every_client_of_a_row(
    durable_bench: RecordBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = durable_bench
    rounds(bench)
    finish = SyncUnderWay.finish
    broken = OSError(5, "broken disk")
    monkeypatch.setattr(SyncUnderWay, "finish", lambda self, error: finish(self, broken))

    answers = bench.exchange(*((client, produce(b"lost", client)) for client in range(CLIENTS)))
    while not all(answers):
        answers = [a + b for a, b in zip(answers, bench.exchange(), strict=True)]

    for client, answer in enumerate(answers):
        assert struct.unpack_from(">i", answer, 4)[0] == client
        assert struct.unpack_from(">h", answer, ERROR_AT)[0] == ErrorCode.kafka_storage_error


def test_a_broker_that_stops_takes_nothing_from_members(bench: RecordBench) -> None:
    rounds(bench)

    bench.router.is_stopping = True
    answers = bench.exchange(*((client, produce(b"late")) for client in range(CLIENTS)))

    assert answers == [b""] * CLIENTS
    assert b"late" not in values(bench)


def test_a_loop_without_members_calls_every_socket(bench: RecordBench) -> None:
    loop = EventLoop("other")
    ours, theirs = socket.socketpair()
    masks: list[int] = []
    loop.register(ours.fileno(), 1, masks.append)

    theirs.send(b"x")
    loop._turn()

    assert masks == [1]
    loop._close()
    ours.close()
    theirs.close()
