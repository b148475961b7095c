"""Receiving and sending in rows: both forms do the same, whatever the sockets are ready for."""

import contextlib
import errno
import importlib.util
import socket
import struct
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.broker.net.rows import row_transfers
from cordwood.protocol import sole_produce
from cordwood.quantities import Offset

SOURCE = Path(__file__).parents[2] / "src" / "cordwood"
SMALL_MAX = 40
LIMIT = 150
ROOM = 100
NOT_IN_ROW = -(2**31)

KINDS = st.sampled_from(["data"] * 6 + ["none", "ended", "reset", "large", "stranger", "masked"])


def load_plain(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_form", SOURCE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


plain = load_plain("broker/net/rows/row_transfers.py")
plain_sole_produce = load_plain("protocol/sole_produce.py")


class Client:
    """A connection as far as rows know it."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.ours, self.theirs = socket.socketpair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)
        self.fd = self.ours.fileno()
        self.is_in_row = kind != "stranger"
        self.last_active_s = 0.0
        self.answers: deque[object] = deque(["owed"])

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@contextlib.contextmanager
def clients_of(kinds: list[str]) -> Iterator[list[Client]]:
    with ExitStack() as opened:
        clients = [Client(number, kind) for number, kind in enumerate(kinds)]
        for client in clients:
            opened.callback(client.close)
        yield clients


def members_of(clients: list[Client]) -> list[Client | None]:
    members: list[Client | None] = [None] * (max((c.fd for c in clients), default=0) + 1)
    for client in clients:
        if client.kind != "stranger":
            members[client.fd] = client
    return members


def prepare(client: Client, data: bytes) -> None:
    """Send what a client of that kind sends before the row is received."""
    if client.kind in ("data", "stranger", "masked"):
        client.theirs.send(data)
    elif client.kind == "large":
        client.theirs.send(bytes(SMALL_MAX + 1) + data)
    elif client.kind == "ended":
        client.theirs.close()
    elif client.kind == "reset":
        client.ours.send(b"never read")
        client.theirs.close()


def received_by(form: ModuleType, kinds: list[str], sent: list[bytes]) -> list[Any]:
    with clients_of(kinds) as clients:
        for client, data in zip(clients, sent, strict=True):
            prepare(client, data)
        members = members_of(clients)
        events = [(client.fd, 5 if client.kind == "masked" else 1) for client in clients]
        buffer, table = bytearray(LIMIT + ROOM), array("q", bytes(2 * 8 * 4))
        found: list[Any] = []
        strangers: list[int] = []
        at = 0
        while events:
            connections: list[Client] = []
            ends: list[int] = []
            before = at
            at, unusual, events, others = form.receive_row(
                events,
                members,
                buffer,
                at,
                LIMIT,
                SMALL_MAX,
                table,
                1.5,
                connections,
                ends,
            )
            assert [c.last_active_s for c in connections] == [1.5] * len(connections)
            more = sum(result for _, result in unusual if result > 0)
            strangers += [fd for fd, _ in others]
            found.append(
                (
                    bytes(buffer[before : at + more]),
                    ends,
                    [client.number for client in connections],
                    [(client.number, result) for client, result in unusual],
                )
            )
            if at > LIMIT:
                at = 0
        assert strangers == [c.fd for c in clients if c.kind in ("stranger", "masked")]
        found.append([members[client.fd] is not None for client in clients])
        return found


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, st.binary(min_size=1, max_size=SMALL_MAX)), max_size=12))
def test_both_forms_receive_the_same(each: list[tuple[str, bytes]]) -> None:
    kinds, sent = [kind for kind, _ in each], [data for _, data in each]

    assert received_by(row_transfers, kinds, sent) == received_by(plain, kinds, sent)


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, st.binary(min_size=1, max_size=SMALL_MAX)), max_size=12))
def test_every_byte_of_a_member_is_received_once_and_in_its_place(
    each: list[tuple[str, bytes]],
) -> None:
    kinds, sent = [kind for kind, _ in each], [data for _, data in each]

    *calls, still_members = received_by(row_transfers, kinds, sent)

    got: dict[int, bytes] = {}
    unusual: dict[int, int] = {}
    for data, ends, numbers, others in calls:
        at = 0
        sizes = [len(sent[number]) for number in numbers]
        for number, size in zip(numbers, sizes, strict=True):
            got[number] = data[at : at + size]
            at += size
        assert len(ends) == len(numbers)
        unusual |= dict(others)
    for number, (kind, data) in enumerate(each):
        if kind == "data":
            assert got[number] == data
        elif kind == "large":
            assert unusual[number] == SMALL_MAX + 1 + len(data)
        elif kind == "ended":
            assert unusual[number] == 0
        elif kind == "reset":
            assert unusual[number] in (0, -errno.ECONNRESET)
        else:
            assert number not in got
            assert number not in unusual
        assert still_members[number] == (kind in ("none", "masked"))


def sent_by(form: ModuleType, kinds: list[str], frames: bytes, size: int) -> tuple[Any, ...]:
    with clients_of(kinds) as clients:
        for client in clients:
            if client.kind in ("ended", "reset"):
                client.theirs.close()
            elif client.kind == "none":  # it does not read
                with contextlib.suppress(BlockingIOError):
                    while True:
                        client.ours.send(bytes(1000))
        members: list[object] = [None] * (max((c.fd for c in clients), default=0) + 1)
        table = array("q", bytes(2 * 8 * max(len(kinds), 1)))
        unusual = form.send_row(clients, frames, size, table, members, 2.5)
        return (
            unusual,
            [members[client.fd] is client for client in clients],
            [len(client.answers) for client in clients],
            [client.last_active_s for client in clients],
            [_read(client) for client in clients],
        )


def _read(client: Client) -> bytes | None:
    if client.kind in ("ended", "reset", "none"):
        return None
    try:
        return client.theirs.recv(1000)
    except BlockingIOError:
        return b""


@settings(deadline=None)
@given(st.lists(KINDS, max_size=10), st.integers(1, 30))
def test_both_forms_send_the_same_and_each_connection_gets_its_own(
    kinds: list[str], size: int
) -> None:
    frames = bytes(number % 251 for number in range(size * len(kinds)))

    sent = sent_by(row_transfers, kinds, frames, size)

    assert sent == sent_by(plain, kinds, frames, size)
    unusual, are_members, owed, active_s, received = sent
    results = dict(unusual)
    for number, kind in enumerate(kinds):
        own = frames[number * size : (number + 1) * size]
        if kind == "stranger":
            assert (results[number], received[number]) == (NOT_IN_ROW, b"")
        elif kind in ("ended", "reset"):
            assert results[number] == -errno.EPIPE
        elif kind == "none":
            assert results[number] == -errno.EAGAIN
        else:
            assert number not in results
            assert received[number] == own
        took_all = number not in results
        assert are_members[number] == took_all
        assert owed[number] == (0 if took_all else 1)
        assert active_s[number] == (2.5 if took_all else 0.0)


@given(
    st.binary(min_size=16, max_size=60),
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))),
    st.integers(8, 52),
)
def test_an_answer_is_repeated_with_two_numbers_of_its_own(
    answer: bytes, numbers: list[tuple[int, int]], offset_at: int
) -> None:
    ids, bases = [a for a, _ in numbers], [Offset(b) for _, b in numbers]
    if offset_at > len(answer) - 8:
        offset_at = 8
    expected = b"".join(
        answer[:4]
        + struct.pack(">i", correlation_id)
        + answer[8:offset_at]
        + struct.pack(">q", base)
        + answer[offset_at + 8 :]
        for correlation_id, base in numbers
    )

    for form in (sole_produce, plain_sole_produce):
        assert form.repeat_answer(answer, ids, bases, offset_at) == expected


@given(st.binary(max_size=30), st.integers(-5, 40))
def test_a_number_outside_the_answer_is_not_written(answer: bytes, offset_at: int) -> None:
    if len(answer) >= 8 and 0 <= offset_at <= len(answer) - 8:
        return

    for form in (sole_produce, plain_sole_produce):
        with pytest.raises(IndexError):
            form.repeat_answer(answer, [1], [Offset(1)], offset_at)
