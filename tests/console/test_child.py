"""`cordwood serve --console`: a child process that ends with the broker, whatever ends it."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from console.served_console import Visitor
from cordwood.cli.app import main
from cordwood.cli.commands.console_child import _reachable
from fakes.reserved_port import reserved_port
from wire.waiting import await_true


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as reserved:
        yield reserved


def status_of(port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_console_ends_with_its_broker(tmp_path: Path, port: int, end: signal.Signals) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    command = [sys.executable, "-m", "cordwood", "serve", "--dir", str(tmp_path / "data")]
    command += ["--port", "0", "--console", "--console-port", str(port)]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("CORDWOOD_")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as broker:
        try:
            await_true(lambda: status_of(port, "/topics/orders") == 200)
            assert status_of(port, "/settings") == 200
        finally:
            broker.send_signal(end)

    await_true(lambda: status_of(port, "/healthz") is None)


def test_a_secured_broker_has_a_console_with_its_users(tmp_path: Path, port: int) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "cordwood", "serve", "--dir", str(data), "--secure"]
    command += ["--console", "--console-port", str(port)]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("CORDWOOD_")}
    with (
        reserved_port() as broker_port,
        subprocess.Popen(
            [*command, "--port", str(broker_port)], cwd=tmp_path, env=environment
        ) as broker,
    ):
        try:
            await_true(lambda: status_of(port, "/login") == 200)
            admin = Visitor(port)
            assert admin.get("/topics").status == 303
            [password] = data.rglob("admin.password")
            fields = {"user": "admin", "password": "wrong", "token": admin.token("/login")}
            assert admin.post("/login", fields).status == 401
            fields["password"] = password.read_text().strip()
            assert admin.post("/login", fields).status == 303
            assert admin.get("/topics").status == 200
            assert "admin" in admin.get("/security").text
            assert admin.get("/settings").status == 200
        finally:
            broker.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "localhost:9092"),
        ("0.0.0.0", "localhost:9092"),
        ("::", "localhost:9092"),
        ("192.168.1.10", "192.168.1.10:9092"),
        ("2001:db8::1", "[2001:db8::1]:9092"),
        ("broker.example.org", "broker.example.org:9092"),
    ],
)
def test_the_console_asks_where_the_broker_listens(host: str, expected: str) -> None:
    assert _reachable(host, 9092) == expected


def test_ctrl_c_ends_a_console_with_open_tails(tmp_path: Path, port: int) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    command = [sys.executable, "-m", "cordwood", "console", "--at", str(tmp_path / "data")]
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path) as console:
        try:
            await_true(lambda: status_of(port, "/healthz") == 200)
            tail = socket.create_connection(("127.0.0.1", port), timeout=30)
            tail.sendall(b"GET /topics/orders/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in tail.recv(4096)
            second = subprocess.run(
                [*command, "--port", str(port)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert second.returncode != 0
            assert "in use" in second.stderr
            assert "Traceback" not in second.stderr
        finally:
            console.send_signal(signal.SIGINT)
        assert console.wait(30) == 0
        tail.close()


def test_a_console_that_had_no_descriptors_left_answers_again(tmp_path: Path, port: int) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    arguments = [sys.executable, "-m", "cordwood", "console", "--at", str(tmp_path / "data")]
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *arguments, "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path) as console:
        try:
            await_true(lambda: status_of(port, "/topics/orders") == 200)
            many = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(90)]
            for each in many:
                each.close()
            await_true(lambda: status_of(port, "/topics/orders") == 200)
        finally:
            console.send_signal(signal.SIGTERM)
        assert console.wait(30) == 0


def test_a_console_beside_access_rules_needs_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("--set", "authorizer.class.name=standard", "--set", "super.users=User:admin")

    with pytest.raises(SystemExit):
        main(["serve", "--dir", str(tmp_path / "data"), "--port", "0", "--console", *rules])

    assert "its first listener needs SASL" in capsys.readouterr().err
