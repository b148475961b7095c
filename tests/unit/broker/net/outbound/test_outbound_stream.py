"""The stream to another node: which address is taken, TLS, and how it ends. Real sockets."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_stream import OutboundStream
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.broker.security.peer_tls import PeerTls
from cordwood.errors import BrokerNotTrustedError, BrokerUnreachableError
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol, ClientSecurity
from fakes.tls_files import TlsFiles

PATIENCE_S = 20
FRAME = b"\0\0\0\x08" + b"answered"


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    running = EventLoop("outbound")
    running.start()
    yield running
    running.stop()


class Watched:
    """A stream, and what it told its owner, in order."""

    def __init__(self, loop: EventLoop, target: Target) -> None:
        self.told: SimpleQueue[object] = SimpleQueue()
        self._loop = loop
        self.stream = OutboundStream(
            loop,
            target,
            frame_bytes_max=1 << 24,
            when_open=lambda: self.told.put("open"),
            when_frame=lambda frame: self.told.put(bytes(frame)),
            when_ended=lambda reason: self.told.put(("ended", reason)),
            when_failed=self.told.put,
        )
        loop.call_soon(self.stream.start)

    def next(self) -> object:
        return self.told.get(timeout=PATIENCE_S)

    def send(self, data: bytes) -> None:
        def send() -> None:
            self.stream.unsent.append(data)
            self.stream.send()

        self._loop.call_soon(send)

    def close(self) -> None:
        closed = threading.Event()
        self._loop.call_soon(self.stream.close)
        self._loop.call_soon(closed.set)
        assert closed.wait(PATIENCE_S)


@pytest.fixture
def watched(loop: EventLoop) -> Iterator[Callable[[Target], Watched]]:
    made: list[Watched] = []

    def make(target: Target) -> Watched:
        made.append(Watched(loop, target))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE_S)
        yield made


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def accepted(listening: socket.socket) -> socket.socket:
    connected, _ = listening.accept()
    connected.settimeout(PATIENCE_S)
    return connected


def plain_target(listening: socket.socket, host: str = "127.0.0.1") -> Target:
    return Target(host, listening.getsockname()[1], PLAINTEXT, None)


def tls_target(listening: socket.socket, authority: str) -> Target:
    security = ClientSecurity(
        protocol=ClientProtocol.SSL,
        trust=CertificateStore(option="ssl.truststore.location", location=authority),
    )
    return Target("127.0.0.1", listening.getsockname()[1], security, PeerTls("test", security))


def tls_server(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.broker)
    return context


def test_the_next_address_of_a_name_is_tried_if_one_refuses(
    watched: Callable[[Target], Watched],
    listening: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusing = taken.getsockname()
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
        for address in (refusing, listening.getsockname())
    ]
    look_up, name = socket.getaddrinfo, "two-addresses.test"
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **options: found if host == name else look_up(host, *rest, **options),
    )

    stream = watched(plain_target(listening, name))

    assert stream.next() == "open"
    accepted(listening).close()


def test_if_every_address_refuses_the_error_names_the_target(
    watched: Callable[[Target], Watched],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        target = plain_target(taken)

    error = watched(target).next()

    assert isinstance(error, BrokerUnreachableError)
    assert str(target) in str(error)


def test_frames_pass_through_tls_in_both_directions(
    watched: Callable[[Target], Watched], listening: socket.socket, files: TlsFiles
) -> None:
    stream = watched(tls_target(listening, files.ca))
    large = bytes(range(256)) * 8192  # more than a socket takes at once

    with tls_server(files).wrap_socket(accepted(listening), server_side=True) as connected:
        opened = stream.next()
        stream.send(large)
        received = b""
        while len(received) < len(large):
            received += connected.recv(1 << 16)
        connected.sendall(len(large).to_bytes(4) + large + FRAME)

        assert opened == "open"
        assert received == large
        assert [stream.next(), stream.next()] == [large, b"answered"]


def test_a_node_with_a_certificate_of_another_authority_is_not_trusted(
    watched: Callable[[Target], Watched], listening: socket.socket, files: TlsFiles, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(files.other.cert_pem.bytes())
    stream = watched(tls_target(listening, str(other)))

    with accepted(listening) as connected, pytest.raises(ssl.SSLError):
        tls_server(files).wrap_socket(connected, server_side=True)

    assert isinstance(stream.next(), BrokerNotTrustedError)


def test_what_came_before_the_end_comes_first(
    watched: Callable[[Target], Watched], listening: socket.socket
) -> None:
    stream = watched(plain_target(listening))
    with accepted(listening) as connected:
        connected.sendall(FRAME)

    assert [stream.next() for _ in range(3)] == ["open", b"answered", ("ended", None)]


def test_a_stream_that_is_closed_says_nothing_more(
    loop: EventLoop, watched: Callable[[Target], Watched], listening: socket.socket
) -> None:
    stream = watched(plain_target(listening))
    with accepted(listening) as connected:
        assert stream.next() == "open"

        stream.close()
        stream.close()

        assert connected.recv(1) == b""
    assert stream.told.empty()
