"""Clients that are slow, silent, many or gone do not keep the console from others."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cordwood
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.console_server import ConsoleServer
from cordwood.console.web import record_routes
from cordwood.console.web.client_connection import ClientConnection
from wire.waiting import await_true


@contextmanager
def connection_to(console: ServedConsole) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as opened:
        yield opened


def is_closed_by_server(client: socket.socket) -> bool:
    try:
        while client.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /logout HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
        b"Content-Length: 100\r\n\r\ntoken=",
    ],
)
def test_a_request_that_does_not_end_is_ended(
    console: ServedConsole, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(ClientConnection, "request_s", 0.3)
    with connection_to(console) as client:
        client.sendall(sent)

        assert is_closed_by_server(client)
    assert console.get("/healthz").status == 200


def test_a_client_that_does_not_read_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientConnection, "stalled_s", 0.3)
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("large").append(b"x" * 900_000)
    with served(ConsoleConfig(directories=(str(tmp_path / "data"),), port=0)) as console:
        with connection_to(console) as client:
            request = b"GET /topics/large/messages/0/0/value HTTP/1.1\r\nHost: localhost\r\n\r\n"
            client.sendall(20 * request)
            server = console.server._server
            assert server is not None
            connections = server.server_state.connections

            await_true(lambda: not connections)
        assert console.get("/healthz").status == 200


def test_tails_that_were_left_give_their_place_to_others(console: ServedConsole) -> None:
    request = b"GET /topics/orders/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(3):
        clients = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(30)]
        for client in clients:
            client.sendall(request)
        for client in clients:
            client.close()  # some of them before the first byte was sent

    def is_free() -> bool:
        with connection_to(console) as client:
            client.sendall(request)
            return b"200 OK" in client.recv(4096)

    await_true(is_free)


def test_too_many_tails_are_refused_and_pages_go_on(console: ServedConsole) -> None:
    request = b"GET /topics/orders/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(100)]
    try:
        for client in clients:
            client.sendall(request)
        answers = [client.recv(4096) for client in clients]

        assert sum(b"200 OK" in answer for answer in answers) <= record_routes.STREAMS_MAX
        assert any(b"503" in answer and b"Too many" in answer for answer in answers)
        assert console.get("/topics").status == 200
    finally:
        for client in clients:
            client.close()


def test_an_export_that_nobody_reads_any_more_ends(console: ServedConsole) -> None:
    def is_served() -> bool:
        return console.get("/topics/orders/export?q=value.id+%3D+3").status == 200

    for _ in range(40):
        with connection_to(console) as client:
            client.sendall(
                b"GET /topics/orders/export?q=value.id+%3D+-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
    await_true(is_served)


def test_a_tail_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    with cordwood.Broker(tmp_path / "data", topics=["news"], durability="os") as broker:
        broker.store.topic("news").append_many([(None, b"%d" % n) for n in range(10)])
        config = ConsoleConfig(directories=(broker.data_dir,), port=0, interval_s=0.3)
        with served(config) as console:
            connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=30)
            connection.request("GET", "/topics/news/tail", headers={"Last-Event-ID": "0:7"})
            answer = connection.getresponse()
            lines: list[str] = []
            while not any("records" in line for line in lines[:-1]):
                lines.append(answer.readline().decode())
            connection.close()

    assert [line for line in lines if line.startswith("id: ")] == ["id: 0:7\n", "id: 0:10\n"]
    step = json.loads(lines[-1].removeprefix("data: "))
    assert [row["offset"] for row in step["rows"]] == [7, 8, 9]


def test_a_second_console_on_a_port_fails_at_once(console: ServedConsole, seeded: Path) -> None:
    with pytest.raises(OSError, match="in use"):
        ConsoleServer(ConsoleConfig(directories=(str(seeded),), port=console.port))


def test_a_console_that_was_never_run_can_be_stopped(seeded: Path) -> None:
    server = ConsoleServer(ConsoleConfig(directories=(str(seeded),), port=0))
    server.stop()
    thread = threading.Thread(target=server.run)
    thread.start()
    thread.join(60)

    assert not thread.is_alive()
