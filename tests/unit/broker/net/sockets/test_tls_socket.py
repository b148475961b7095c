"""A TLS socket whose bytes arrive in pieces, as a network delivers them."""

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.security.tls_context import make_context
from fakes.tls_files import TlsFiles


class PiecemealSocket:
    """Gives at most so many bytes at a time, as if the next ones arrived a moment later."""

    def __init__(self, inner: socket.socket, piece_bytes: int) -> None:
        self._inner = inner
        self.piece_bytes = piece_bytes

    def recv(self, size: int) -> bytes:
        return self._inner.recv(min(size, self.piece_bytes))

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    made = socket.socketpair()
    for end in made:
        end.setblocking(False)
    yield made
    for end in made:
        end.close()


@pytest.mark.parametrize("piece_bytes", [1, 40, 64, 90, 100, 130, 150, 180, 260, 520, 4096])
def test_a_handshake_whose_bytes_arrive_in_pieces_goes_on_whenever_the_socket_is_readable(
    tmp_path: Path, ends: tuple[socket.socket, socket.socket], piece_bytes: int
) -> None:
    files = TlsFiles(tmp_path)
    ours, theirs = ends
    context = make_context(TlsConfig(ssl_keystore_location=files.broker)).context
    broker = TlsSocket(cast(socket.socket, PiecemealSocket(ours, piece_bytes)), context)
    client = files.client_context().wrap_socket(
        theirs, server_hostname="localhost", do_handshake_on_connect=False
    )
    is_done = is_handshaken(broker, ours, client)
    client.close()
    assert is_done, "the broker has all bytes, and waits for more"


def is_handshaken(broker: TlsSocket, ours: socket.socket, client: ssl.SSLSocket) -> bool:
    """Whether the handshake ends, if the broker goes on only when its socket is readable."""
    is_done, is_waiting = False, True
    while not is_done and is_waiting:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        is_waiting = False
        while not is_done and select.select([ours], [], [], 0)[0]:  # what the loop reports
            is_waiting = True
            try:
                broker.do_handshake()
            except BlockingIOError:
                continue
            is_done = True
    return is_done
