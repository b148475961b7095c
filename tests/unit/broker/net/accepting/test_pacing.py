"""Programs on the same machine are sent to without pacing, others as the system wants."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.net.accepting import acceptor
from cordwood.broker.net.accepting.acceptor import bound_socket
from cordwood.broker.net.accepting.pacing import (
    congestion_control,
    is_of_this_machine,
    send_unpaced,
)
from cordwood.broker.server import BrokerServer
from cordwood.settings import settings_from
from cordwood.testing import TEST_CONFIG

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="only Linux lets a program choose"
)


class _Socket:
    """Has the algorithm `name`, and takes one of `permitted`; None: the option does not exist."""

    def __init__(self, name: bytes | None, *permitted: bytes) -> None:
        self.name = name
        self._permitted = permitted

    def getsockopt(self, _level: int, _option: int, size: int) -> bytes:
        if self.name is None:
            raise OSError("no such option")
        return self.name.ljust(size, b"\0")

    def setsockopt(self, _level: int, _option: int, name: bytes) -> None:
        if name not in self._permitted:
            raise OSError("not permitted")
        self.name = name


@pytest.mark.parametrize(
    ("before", "permitted", "after"),
    [
        (b"bbr", (b"cubic", b"reno"), b"cubic"),
        (b"bbr3", (b"cubic", b"reno"), b"cubic"),
        (b"bbr", (b"reno",), b"reno"),
        (b"bbr", (), b"bbr"),
        (b"dctcp", (b"cubic", b"reno"), b"dctcp"),
        (b"reno", (b"cubic", b"reno"), b"reno"),
        (None, (b"cubic", b"reno"), None),
    ],
)
def test_only_bbr_is_replaced_by_what_the_system_permits(
    before: bytes | None, permitted: tuple[bytes, ...], after: bytes | None
) -> None:
    found = _Socket(before, *permitted)

    send_unpaced(cast("Any", found))

    assert found.name == after


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, str]]:
    """The broker's end of a connection over a listener of all addresses, and the client's host."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, peer = listening.accept()
            with accepted:
                yield accepted, peer[0]


def test_a_client_with_the_address_that_it_connected_to_is_of_this_machine(
    connected: tuple[socket.socket, str],
) -> None:
    accepted, host = connected

    assert is_of_this_machine(accepted, host)
    assert not is_of_this_machine(accepted, "192.0.2.1")


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.1.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_a_client_with_a_loopback_address_is_of_this_machine_whatever_it_connected_to(
    connected: tuple[socket.socket, str], host: str, is_here: bool
) -> None:
    accepted, _ = connected

    assert is_of_this_machine(accepted, host) == is_here


def test_a_client_that_connected_to_another_loopback_address_is_of_this_machine() -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as listening,
        socket.create_connection(("127.0.1.1", listening.getsockname()[1])),
    ):
        accepted, peer = listening.accept()
        with accepted:
            assert accepted.getsockname()[0] == "127.0.1.1"
            assert is_of_this_machine(accepted, peer[0])


def test_a_client_that_is_gone_is_not_of_this_machine() -> None:
    closed = socket.socket()
    closed.close()

    assert not is_of_this_machine(closed, "127.0.0.1")


@pytest.mark.parametrize(("host", "is_unpaced"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_only_a_listener_of_this_machine_is_unpaced_itself(
    host: str, is_unpaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpaced: list[socket.socket] = []
    monkeypatch.setattr(acceptor, "send_unpaced", unpaced.append)
    config = BrokerConfig(host=host, port=0)
    (listener,) = SecurityConfig.assemble(config).listeners

    with bound_socket(listener, config) as listening:
        assert unpaced == ([listening] if is_unpaced else [])


def test_what_a_local_listener_accepts_does_not_pace() -> None:
    config = BrokerConfig(host="127.0.0.1", port=0)
    (listener,) = SecurityConfig.assemble(config).listeners

    with (
        bound_socket(listener, config) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert not congestion_control(accepted).startswith(b"bbr")


@pytest.mark.parametrize("is_here", [True, False])
def test_a_listener_for_all_addresses_unpaces_the_clients_of_this_machine(
    is_here: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unpaced: list[bytes] = []
    if not is_here:
        monkeypatch.setattr(acceptor, "is_of_this_machine", lambda *_: False)
    monkeypatch.setattr(
        acceptor, "send_unpaced", lambda connected: unpaced.append(congestion_control(connected))
    )
    settings = settings_from(
        {**TEST_CONFIG, "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://0.0.0.0:0",
         "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}
    )  # fmt: skip
    store = settings.store.open(settings.topic_defaults)
    server = BrokerServer(store, settings.broker, security=settings.security, owns_store=True)
    server.start()
    try:
        _, port = server._acceptors[0].address
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"\0\0\0\0")  # a request of no bytes: it is admitted, then refused
            assert client.recv(1) == b""
    finally:
        server.stop()

    assert len(unpaced) == is_here
