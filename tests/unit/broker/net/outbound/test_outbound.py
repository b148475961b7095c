"""Connections that the broker opens: real sockets on loopback, and servers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cordwood
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound import outbound_connection
from cordwood.broker.net.outbound.outbound_call import (
    OutboundAnswer,
    OutboundCall,
    OutboundResult,
    PeerMark,
)
from cordwood.broker.net.outbound.outbound_frames import OutboundFrames
from cordwood.broker.net.outbound.outbound_peer import OutboundPeer
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.errors import (
    AuthenticationFailedError,
    BrokerUnreachableError,
    LimitExceededError,
)
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import decode_response, encode_request, encode_response
from cordwood.security.clients.client_security import (
    PLAINTEXT,
    ClientProtocol,
    ClientSecurity,
)
from cordwood.security.secret import Secret

PATIENCE_S = 20


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    running = EventLoop("outbound")
    running.start()
    yield running
    running.stop()


class Results:
    """Answers and errors, in the order they came."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self.found: list[OutboundResult] = []

    def add(self, result: OutboundResult) -> None:
        with self._arrived:
            self.found.append(result)
            self._arrived.notify_all()

    def wait(self, count: int) -> list[OutboundResult]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.found) >= count, PATIENCE_S), self.found
            return self.found[:count]


def metadata_call(
    results: Results, *, timeout_s: float = 10, versions: tuple[int, int] = (0, 13)
) -> OutboundCall:
    return OutboundCall(
        api=ApiKey.METADATA,
        version_min=versions[0],
        version_max=versions[1],
        encode=lambda version: encode_request(ApiKey.METADATA, version, {"topics": None}),
        when_done=results.add,
        timeout_s=timeout_s,
    )


def send(loop: EventLoop, peer: OutboundPeer, *calls: OutboundCall) -> None:
    for call in calls:
        loop.call_soon(partial(peer.send, call))


@pytest.fixture
def peer_of(loop: EventLoop) -> Iterator[Callable[[str, int], OutboundPeer]]:
    made: list[OutboundPeer] = []

    def make(host: str, port: int) -> OutboundPeer:
        peer = OutboundPeer(loop, Target(host, port, PLAINTEXT, None), client_id="test")
        made.append(peer)
        return peer

    yield make
    closed = threading.Event()
    for peer in made:
        loop.call_soon(peer.close)
    loop.call_soon(closed.set)
    assert closed.wait(PATIENCE_S)


def test_requests_are_answered_in_their_order(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()
    with cordwood.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        peer = peer_of(host, int(port))

        send(loop, peer, *[metadata_call(results, versions=(at, at)) for at in (9, 12, 1)])
        found = results.wait(3)

    assert [getattr(each, "version", each) for each in found] == [9, 12, 1]
    assert isinstance(found[0], OutboundAnswer)
    assert decode_response(ApiKey.METADATA, 9, found[0].body).brokers


def test_a_request_that_cannot_be_encoded_gets_an_error_and_the_others_are_answered(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()

    def fails(_version: int) -> bytes:
        raise ValueError("a bug")

    with cordwood.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        broken = replace(metadata_call(results), encode=fails)

        send(loop, peer_of(host, int(port)), broken, metadata_call(results))
        found = results.wait(2)

    assert {type(each) for each in found} == {BrokerUnreachableError, OutboundAnswer}


def test_an_answer_that_nobody_can_deal_with_costs_no_other(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()

    def fails(_result: OutboundResult) -> None:
        raise ValueError("a bug")

    with cordwood.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        careless = replace(metadata_call(results), when_done=fails)

        send(loop, peer_of(host, int(port)), careless, metadata_call(results))
        (found,) = results.wait(1)

    assert isinstance(found, OutboundAnswer)


def test_a_version_that_the_server_lacks_is_an_error_that_names_the_versions(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()
    with cordwood.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        send(loop, peer_of(host, int(port)), metadata_call(results, versions=(99, 99)))
        (error,) = results.wait(1)

    assert "0 to 13 of Metadata, but this broker needs 99 to 99" in str(error)


def test_a_node_of_another_kind_is_not_asked_and_the_error_says_what_it_lacks(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()
    mark = PeerMark(ApiKey.BROKER_REGISTRATION, "it is not a controller")
    with cordwood.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        marked = replace(metadata_call(results), mark=mark)

        send(loop, peer_of(host, int(port)), marked, metadata_call(results))
        found = results.wait(2)

    [error] = [each for each in found if not isinstance(each, OutboundAnswer)]
    assert "it is not a controller" in str(error)


def test_a_closed_port_is_an_error_and_the_next_request_tries_again(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    results = Results()
    peer = peer_of("127.0.0.1", port)

    send(loop, peer, metadata_call(results))
    (error,) = results.wait(1)
    assert isinstance(error, BrokerUnreachableError)
    assert f"127.0.0.1:{port}" in str(error)

    with cordwood.Broker(config={"port": port}) as _:
        send(loop, peer, metadata_call(results))
        assert isinstance(results.wait(2)[1], OutboundAnswer)


def test_a_name_without_an_address_is_an_error(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer]
) -> None:
    results = Results()

    send(loop, peer_of("no-such-host.invalid", 9092), metadata_call(results))

    (error,) = results.wait(1)
    assert isinstance(error, BrokerUnreachableError)


class Server:
    """A server of the test's making: one connection, read and answered by hand."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._listening.settimeout(PATIENCE_S)

    def accept(self) -> socket.socket:
        connected, _ = self._listening.accept()
        connected.settimeout(PATIENCE_S)
        return connected

    def close(self) -> None:
        self._listening.close()


def read_request(connected: socket.socket) -> tuple[int, int, int]:
    size = struct.unpack(">i", connected.recv(4, socket.MSG_WAITALL))[0]
    body = connected.recv(size, socket.MSG_WAITALL)
    api_key, version, number = struct.unpack_from(">hhi", body)
    return api_key, version, number


def answer_versions(connected: socket.socket) -> None:
    _, version, number = read_request(connected)
    api = {"api_key": int(ApiKey.METADATA), "min_version": 0, "max_version": 13}
    frame = encode_response(ApiKey.API_VERSIONS, version, number, {"api_keys": [api]})
    connected.sendall(frame)


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


def test_a_server_that_never_answers_fails_every_request_in_time(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer], server: Server
) -> None:
    results = Results()
    send(
        loop,
        peer_of("127.0.0.1", server.port),
        metadata_call(results, timeout_s=0.2),
        metadata_call(results, timeout_s=60),
    )
    with server.accept() as connected:
        answer_versions(connected)

        errors = results.wait(2)

    assert all("did not answer in time" in str(error) for error in errors)


def test_a_server_that_leaves_fails_what_it_did_not_answer(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer], server: Server
) -> None:
    results = Results()
    send(loop, peer_of("127.0.0.1", server.port), metadata_call(results))
    with server.accept() as connected:
        answer_versions(connected)
        read_request(connected)

    (error,) = results.wait(1)
    assert "closed the connection" in str(error)


class HeldThread:
    """In place of a thread: what it would do waits until the test says so."""

    begun: ClassVar[list[HeldThread]] = []

    def __init__(
        self, *, target: Callable[..., None], args: tuple[object, ...], **_options: object
    ) -> None:
        self._work = partial(target, *args)

    def start(self) -> None:
        HeldThread.begun.append(self)

    def run(self) -> None:
        self._work()


def test_a_server_that_refuses_a_password_and_leaves_at_once_is_not_taken_for_one_that_only_left(
    loop: EventLoop, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_PLAINTEXT,
        mechanism="PLAIN",
        user="broker",
        password=Secret("wrong"),
    )
    target = Target("127.0.0.1", server.port, security, None)
    peer = OutboundPeer(loop, target, client_id="test")
    results = Results()
    HeldThread.begun.clear()
    monkeypatch.setattr(outbound_connection, "threading", SimpleNamespace(Thread=HeldThread))
    send(loop, peer, metadata_call(results))
    with server.accept() as connected:
        answer_versions(connected)
        _, version, number = read_request(connected)
        shaken = {"error_code": 0, "mechanisms": ["PLAIN"]}
        connected.sendall(encode_response(ApiKey.SASL_HANDSHAKE, version, number, shaken))
        await_true(lambda: len(HeldThread.begun) == 1)
        HeldThread.begun[0].run()
        _, version, number = read_request(connected)
        refused = {"error_code": 58, "error_message": "invalid credentials", "auth_bytes": b""}
        connected.sendall(encode_response(ApiKey.SASL_AUTHENTICATE, version, number, refused))
        connected.shutdown(socket.SHUT_WR)
        assert connected.recv(1) == b""  # the end was seen before the answer was looked at
    await_true(lambda: len(HeldThread.begun) == 2)
    assert not results.found
    HeldThread.begun[1].run()

    (error,) = results.wait(1)
    loop.call_soon(peer.close)
    assert isinstance(error, AuthenticationFailedError)
    assert "invalid credentials" in str(error)


def await_true(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, condition
        time.sleep(0.005)


def test_an_answer_to_no_request_ends_the_connection(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer], server: Server
) -> None:
    results = Results()
    send(loop, peer_of("127.0.0.1", server.port), metadata_call(results))
    with server.accept() as connected:
        answer_versions(connected)
        _, _, number = read_request(connected)
        connected.sendall(struct.pack(">iiB", 5, number + 7, 0))

        (error,) = results.wait(1)

    assert "the number" in str(error)


@pytest.mark.parametrize("size", [-1, 2, 2**31 - 1])
def test_an_answer_of_an_impossible_size_costs_no_memory(
    loop: EventLoop,
    peer_of: Callable[[str, int], OutboundPeer],
    server: Server,
    size: int,
) -> None:
    results = Results()
    send(loop, peer_of("127.0.0.1", server.port), metadata_call(results))
    with server.accept() as connected:
        answer_versions(connected)
        read_request(connected)
        connected.sendall(struct.pack(">i", size))

        (error,) = results.wait(1)

    assert "cannot be read" in str(error)


def test_an_answer_in_single_bytes_arrives_whole(
    loop: EventLoop, peer_of: Callable[[str, int], OutboundPeer], server: Server
) -> None:
    results = Results()
    send(loop, peer_of("127.0.0.1", server.port), metadata_call(results, versions=(1, 1)))
    with server.accept() as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer_versions(connected)
        _, version, number = read_request(connected)
        for byte in encode_response(ApiKey.METADATA, version, number, {"controller_id": 7}):
            connected.sendall(bytes((byte,)))

        (answer,) = results.wait(1)

    assert isinstance(answer, OutboundAnswer)
    assert decode_response(ApiKey.METADATA, 1, answer.body).controller_id == 7


@given(
    bodies=st.lists(st.binary(min_size=4, max_size=400), max_size=8),
    cuts=st.lists(st.integers(1, 300), min_size=1, max_size=30),
)
def test_frames_are_the_same_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    frames = OutboundFrames(1000)
    scratch = memoryview(bytearray(64))
    found: list[bytes] = []
    at = turn = 0

    while at < len(stream):
        room = frames.room(scratch)
        count = min(cuts[turn % len(cuts)], len(room), len(stream) - at)
        room[:count] = stream[at : at + count]
        found += [bytes(frame) for frame in frames.received(room, count)]
        at += count
        turn += 1

    assert found == bodies


def test_a_frame_above_the_limit_is_refused_before_memory_is_taken() -> None:
    frames = OutboundFrames(1000)
    scratch = memoryview(bytearray(64))
    scratch[:4] = struct.pack(">i", 1001)

    with pytest.raises(LimitExceededError):
        list(frames.received(scratch, 4))


def receive(frames: OutboundFrames, body: bytes, scratch: memoryview) -> list[memoryview]:
    """One frame, in as many pieces as there is room for."""
    stream = struct.pack(">i", len(body)) + body
    found: list[memoryview] = []
    while stream:
        room = frames.room(scratch)
        count = min(len(room), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        del room
        found += frames.received(frames.room(scratch)[:count], count)
    return found


@pytest.mark.parametrize("between", [0, 3, 20])
def test_large_frames_are_right_whatever_lies_between_them(between: int) -> None:
    frames = OutboundFrames(1 << 24)
    scratch = memoryview(bytearray(20_000))
    bodies: list[bytes] = []
    for number, size in enumerate((70_000, 300_000, 1_200_000, 90_000, 6_000_000, 70_000)):
        bodies.append(bytes((number,)) * size)
        bodies += [b"small"] * between

    found = [bytes(frame) for body in bodies for frame in receive(frames, body, scratch)]

    assert found == bodies


def test_a_large_frame_keeps_its_bytes_as_long_as_somebody_looks_at_it() -> None:
    frames = OutboundFrames(1 << 24)
    scratch = memoryview(bytearray(20_000))

    [first] = receive(frames, b"1" * 100_000, scratch)
    part = first[10:20]
    del first
    [second] = receive(frames, b"2" * 100_000, scratch)

    assert (bytes(part), bytes(second[:3])) == (b"1" * 10, b"222")


def test_the_memory_of_a_large_frame_is_used_again_when_nobody_looks_at_it() -> None:
    frames = OutboundFrames(1 << 24)
    scratch = memoryview(bytearray(20_000))
    memories: list[object] = []

    for _ in range(5):
        [frame] = receive(frames, b"1" * 100_000, scratch)
        memories.append(frame.obj)
        del frame

    assert all(memory is memories[0] for memory in memories)
