"""Ports that stay a test's own while its server is away."""

import socket
import sys

import pytest

from fakes.reserved_port import reserved_port


def test_a_reserved_port_refuses_clients_until_a_server_listens_and_again_after_it() -> None:
    with reserved_port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=30)

            with (
                socket.create_server(("127.0.0.1", port)) as server,
                socket.create_connection(("127.0.0.1", port), timeout=30),
            ):
                server.accept()[0].close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a port that way")
def test_nobody_else_gets_a_reserved_port() -> None:
    with (
        reserved_port() as port,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind(("127.0.0.1", port))
