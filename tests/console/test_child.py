"""`cordwood serve --console`: a child process that ends with the broker, whatever ends it."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.app import main
from wire.waiting import await_true


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


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
def test_the_console_ends_with_its_broker(tmp_path: Path, end: signal.Signals) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    port = free_port()
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


def test_a_console_beside_access_rules_needs_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("--set", "authorizer.class.name=standard", "--set", "super.users=User:admin")

    with pytest.raises(SystemExit):
        main(["serve", "--dir", str(tmp_path / "data"), "--port", "0", "--console", *rules])

    assert "its first listener needs SASL" in capsys.readouterr().err
