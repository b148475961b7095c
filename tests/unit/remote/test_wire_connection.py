"""One connection: what is asked, what comes back, and what does not."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

import cordwood
from cordwood.errors import BrokerUnreachableError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_response
from cordwood.remote import api_calls
from cordwood.remote.wire_connection import WireConnection

Conversation = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(conversation: Conversation) -> Iterator[tuple[str, int]]:
    """A server that holds one conversation, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listening.accept()
                with peer:
                    conversation(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def read_request(peer: socket.socket) -> tuple[int, int, int]:
    """API key, version and correlation id of a request."""
    size = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0]
    frame = peer.recv(size, socket.MSG_WAITALL)
    key, version, number = struct.unpack_from(">hhi", frame)
    return key, version, number


def answer_versions(
    peer: socket.socket, versions: dict[int, tuple[int, int]], error_code: int = 0
) -> None:
    key, version, number = read_request(peer)
    assert (key, version) == (ApiKey.API_VERSIONS, 0)
    keys = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in versions.items()
    ]
    answer = {"error_code": error_code, "api_keys": keys}
    peer.sendall(encode_response(ApiKey.API_VERSIONS, 0, number, answer))


def connect(address: tuple[str, int], **limits: float) -> WireConnection:
    return WireConnection(*address, **limits)  # type: ignore[arg-type]


def test_a_broker_answers_in_the_newest_version_both_know() -> None:
    with cordwood.Broker(topics=["orders"]) as broker, connect((broker.host, broker.port)) as wire:
        assert wire.version_of(ApiKey.METADATA) == 13
        assert wire.version_of(ApiKey.METADATA, at_most=5) == 5

        for version in range(1, 14):
            answer = wire.call(api_calls.METADATA({"topics": None}), at_most=version)
            assert [topic.name for topic in answer.topics] == ["orders"]


@pytest.mark.parametrize(
    ("conversation", "message"),
    [
        (lambda peer: None, "closed the connection|reset by peer|Broken pipe"),
        (lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not a Kafka broker"),
        (lambda peer: peer.sendall(struct.pack(">i", -5)), "not a Kafka broker"),
        (lambda peer: peer.sendall(struct.pack(">ii", 8, 99) + b"1234"), "answers request 99"),
        (lambda peer: peer.sendall(struct.pack(">iih", 6, 1, 0)), "not a Kafka broker"),
        (lambda peer: answer_versions(peer, {}, error_code=35), "error 35"),
    ],
    ids=["hangs up", "http", "negative size", "another answer", "cut short", "refused"],
)
def test_what_is_no_broker_is_told(conversation: Conversation, message: str) -> None:
    def after_the_question(peer: socket.socket) -> None:
        conversation(peer)
        with contextlib.suppress(OSError):
            peer.settimeout(5)
            while peer.recv(1000):
                pass

    chosen = conversation if message.startswith("closed") else after_the_question
    with server(chosen) as address, pytest.raises(BrokerUnreachableError, match=message):
        connect(address, answer_timeout_s=10)


def test_nobody_at_the_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()[:2]

    with pytest.raises(BrokerUnreachableError, match="Connection refused") as refused:
        connect(address)

    assert refused.value.address == f"127.0.0.1:{address[1]}"


def test_an_answer_that_does_not_come_in_time_is_told_and_the_connection_given_up() -> None:
    is_over = threading.Event()

    def silent(peer: socket.socket) -> None:
        answer_versions(peer, {ApiKey.METADATA: (0, 13)})
        read_request(peer)
        peer.sendall(b"\0")  # a start is no answer
        is_over.wait(30)

    with server(silent) as address, connect(address) as wire:
        try:
            with pytest.raises(BrokerUnreachableError, match=r"no answer to Metadata in 0\.1 s"):
                wire.call(api_calls.METADATA({"topics": []}), timeout_s=0.1)

            assert wire.is_broken
            with pytest.raises(BrokerUnreachableError, match="no answer to Metadata"):
                wire.call(api_calls.METADATA({"topics": []}))
        finally:
            is_over.set()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({}, "does not serve Fetch"),
        ({ApiKey.FETCH: (0, 3)}, "serves versions 0 to 3 of Fetch"),
        ({ApiKey.FETCH: (90, 99)}, "serves versions 90 to 99 of Fetch"),
    ],
)
def test_versions_that_do_not_meet_are_told(
    versions: dict[int, tuple[int, int]], message: str
) -> None:
    with (
        server(lambda peer: answer_versions(peer, versions)) as address,
        connect(address) as wire,
        pytest.raises(BrokerUnreachableError, match=message),
    ):
        wire.version_of(ApiKey.FETCH)


def test_an_answer_that_cannot_be_read_is_reported() -> None:
    def garbled(peer: socket.socket) -> None:
        answer_versions(peer, {ApiKey.METADATA: (0, 1)})
        _, _, number = read_request(peer)
        peer.sendall(struct.pack(">iii", 8, number, 2**30))

    with (
        server(garbled) as address,
        connect(address) as wire,
        pytest.raises(BrokerUnreachableError, match="cannot be read"),
    ):
        wire.call(api_calls.METADATA({"topics": []}))


def test_an_answer_larger_than_allowed_costs_no_memory() -> None:
    def large(peer: socket.socket) -> None:
        answer_versions(peer, {ApiKey.METADATA: (0, 1)})
        read_request(peer)
        peer.sendall(struct.pack(">i", 2_000_000))

    with (
        server(large) as address,
        connect(address, frame_bytes_max=1_000_000) as wire,
        pytest.raises(BrokerUnreachableError, match="of 2000000 exceeds the limit of 1000000"),
    ):
        wire.call(api_calls.METADATA({"topics": []}))


def test_closing_may_be_repeated() -> None:
    with cordwood.Broker() as broker:
        wire = connect((broker.host, broker.port))
        wire.close()
        wire.close()

        with pytest.raises(BrokerUnreachableError, match="the connection was closed"):
            wire.call(api_calls.METADATA({"topics": []}))
