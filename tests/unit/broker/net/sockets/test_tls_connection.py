"""A connection over TLS, turned by hand: what lies in OpenSSL, and waiting crosswise."""

import contextlib
import socket
import ssl
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.loop.event_loop import HUNG_UP, READABLE, WRITABLE, EventLoop
from cordwood.broker.net.sockets.tls_registration import TlsRegistration
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from fakes.tls_pair import TlsPair
from fakes.without_collector import without_collector

KIB = 1024


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TlsPair]:
    made = TlsPair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def loops() -> Iterator[tuple[EventLoop, EventLoop]]:
    made = EventLoop("one"), EventLoop("two")
    yield made
    for loop in made:
        loop._close()


def turn(loop: EventLoop, times: int = 3) -> None:
    for _ in range(times):
        loop.call_soon(lambda: None)
        loop._turn()


class Reader:
    """A connection that reads a few bytes whenever it may."""

    def __init__(self, tls: TlsSocket, loop: EventLoop, size: int = 100) -> None:
        self.tls = tls
        self.registration = TlsRegistration(tls, self.on_ready, loop)
        self.received = bytearray()
        self.masks: list[int] = []
        self.is_ended = False
        self._buffer = memoryview(bytearray(size))

    def on_ready(self, mask: int) -> None:
        self.masks.append(mask)
        if not mask & READABLE or not self.registration.is_listening:
            return
        try:
            count = self.tls.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            self.is_ended = True
            self.registration.stop_listening()
        self.received += self._buffer[:count]


def test_bytes_that_openssl_holds_are_reported_although_the_socket_is_silent(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    reader = Reader(pair.broker, loops[0])
    reader.registration.enter(loops[0])
    pair.client.send(b"x" * 3000)  # one record, and the reader takes 100 bytes at a time

    turn(loops[0], 30)

    assert len(reader.received) == 3000
    assert not pair.broker.has_more


def test_while_a_connection_does_not_listen_nothing_is_read_and_later_all_of_it(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    reader = Reader(pair.broker, loops[0])
    reader.registration.enter(loops[0])
    pair.client.send(b"x" * 1000)
    loops[0]._turn()
    so_far = len(reader.received)
    reader.registration.stop_listening()

    turn(loops[0], 10)
    assert 0 < so_far == len(reader.received) < 1000
    reader.registration.listen()
    turn(loops[0], 10)

    assert len(reader.received) == 1000


def test_bytes_that_openssl_holds_move_with_the_connection(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    one, two = loops
    reader = Reader(pair.broker, one)
    reader.registration.enter(one)
    pair.client.send(b"x" * 1000)
    one._turn()
    so_far = len(reader.received)

    reader.registration.leave()
    turn(one)  # what was due there is not done any more
    assert len(reader.received) == so_far < 1000
    reader.registration.enter(two)
    turn(one)
    assert len(reader.received) == so_far
    turn(two, 10)

    assert len(reader.received) == 1000


@pytest.mark.parametrize("is_polite", [True, False])
def test_the_end_is_reported_after_all_bytes(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop], is_polite: bool
) -> None:
    reader = Reader(pair.broker, loops[0], size=16 * KIB)
    reader.registration.enter(loops[0])
    pair.client.send(b"x" * 1000)
    if is_polite:
        with pytest.raises(ssl.SSLWantReadError):
            pair.client.unwrap()  # TLS ends; TCP goes on, and is silent
    else:
        pair.client.close()

    turn(loops[0])

    assert len(reader.received) == 1000
    assert reader.is_ended


def test_after_a_farewell_the_broker_can_still_send(pair: TlsPair) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    assert pair.broker.recv_into(memoryview(bytearray(10))) == 0

    pair.broker.send(b"answer")

    assert pair.client.recv(10) == b"answer"


@pytest.mark.parametrize(
    ("interest", "read_waits", "asked"),
    [
        (READABLE, False, READABLE),
        (READABLE, True, WRITABLE),
        (WRITABLE, False, WRITABLE),
        (WRITABLE, True, WRITABLE),
        (READABLE | WRITABLE, False, READABLE | WRITABLE),
        (READABLE | WRITABLE, True, WRITABLE),
        (HUNG_UP, True, HUNG_UP),
        (HUNG_UP | READABLE, True, HUNG_UP | WRITABLE),
        (0, True, 0),
    ],
)
def test_the_loop_is_asked_for_what_openssl_waits_for(
    pair: TlsPair,
    loops: tuple[EventLoop, EventLoop],
    interest: int,
    read_waits: bool,
    asked: int,
) -> None:
    reader = Reader(pair.broker, loops[0])
    pair.broker.read_waits_for_room = read_waits
    reader.registration.interest = interest

    assert reader.registration._needed() == asked


def test_room_lets_a_read_go_on_that_waited_for_it(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    """As when OpenSSL has to answer a change of keys before it reads on."""
    reader = Reader(pair.broker, loops[0])
    pair.broker.read_waits_for_room = True
    reader.registration.enter(loops[0])
    pair.client.send(b"x" * 50)

    loops[0]._turn()  # the socket has room

    assert reader.masks[0] == READABLE
    assert len(reader.received) == 50
    turn(loops[0])
    assert reader.registration._asked == READABLE  # from now on it waits for bytes again


def test_looking_without_receiving_sees_bytes_and_the_end(pair: TlsPair) -> None:
    with pytest.raises(BlockingIOError):
        pair.broker.recv(1, socket.MSG_PEEK)
    pair.client.send(b"ab")
    assert pair.broker.recv(1, socket.MSG_PEEK)
    assert pair.broker.recv_into(memoryview(bytearray(1))) == 1
    assert pair.broker.recv(1, socket.MSG_PEEK)  # in OpenSSL
    assert pair.broker.recv_into(memoryview(bytearray(1))) == 1
    pair.client.close()

    assert pair.broker.recv(1, socket.MSG_PEEK) == b""
    assert pair.broker.recv_into(memoryview(bytearray(1))) == 0
    assert pair.broker.recv(1, socket.MSG_PEEK) == b""


def test_bytes_that_are_not_tls_are_an_error_after_those_that_are(pair: TlsPair) -> None:
    pair.client.send(b"good")
    socket.socket.send(pair.client, b"\x17\x03\x03\x00\x20" + bytes(32))
    buffer = memoryview(bytearray(100))

    assert pair.broker.recv_into(buffer) == 4
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            pair.broker.recv_into(buffer)
    assert pair.broker.has_more


@pytest.mark.parametrize("receipts", [1, 5, 8, 40])
def test_records_that_come_together_are_received_together(pair: TlsPair, receipts: int) -> None:
    """Sooner or later: a client that sends single ones is not looked at for more each time."""
    buffer = memoryview(bytearray(100 * KIB))
    for _ in range(receipts):
        pair.client.send(b"one")
        assert pair.broker.recv_into(buffer) == 3

    received = []
    for _ in range(10):
        for _ in range(5):
            pair.client.send(b"one")
        count = 0
        while count < 15:
            count += pair.broker.recv_into(buffer)
            received.append(count)

    assert received[-3:] == [15, 15, 15]


def test_a_client_that_reads_no_answers_is_still_read(pair: TlsPair) -> None:
    """As long as what it is owed is limited: a half-sent answer does not stop requests."""
    with pytest.raises(BlockingIOError):
        pair.broker.send(b"x" * 64 * KIB)
    pair.client.send(b"request")

    buffer = memoryview(bytearray(100))

    assert pair.broker.recv_into(buffer) == 7
    assert not pair.broker.read_waits_for_room


def test_what_a_client_sent_before_it_broke_off_is_received(pair: TlsPair) -> None:
    pair.client.send(b"request")
    pair.client.close()
    with contextlib.suppress(OSError):
        while True:
            pair.broker.send(b"x")

    assert pair.broker.recv_into(memoryview(bytearray(100))) == 7


def test_a_connection_that_ended_is_freed_without_a_search_for_garbage(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    reader = Reader(pair.broker, loops[0])
    reader.registration.enter(loops[0])
    pair.client.send(b"request")
    turn(loops[0])
    kept = weakref.ref(reader)

    with without_collector():
        reader.registration.end()
        del reader

        assert kept() is None


def test_nothing_is_reported_of_a_connection_that_ended(
    pair: TlsPair, loops: tuple[EventLoop, EventLoop]
) -> None:
    reader = Reader(pair.broker, loops[0])
    reader.registration.enter(loops[0])
    pair.client.send(b"x" * 1000)
    loops[0]._turn()
    so_far = len(reader.received)

    reader.registration.end()  # a look into OpenSSL is due
    turn(loops[0], 10)

    assert 0 < so_far == len(reader.received) < 1000
