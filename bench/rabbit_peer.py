"""RabbitMQ streams as a peer: one node, one stream of one replica.

"os": a message is confirmed when it is in the file of the stream. RabbitMQ does not sync streams,
so it has no row for "disk".

The node runs in a private directory, with its own name, cookie and port mapper (epmd), and listens
on the loopback address only.
"""

import os
import re
import secrets
import shutil
import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.broker_servers import free_port
from bench.peer_process import PeerProcess
from bench.rabbit_wire import (
    Frames,
    authenticate,
    check_response,
    create_stream,
    delete_stream,
    is_tune,
    open_host,
    peer_properties,
    sasl_handshake,
    tune,
)
from bench.wire_load import HOST, connect

# Debian's own start script changes to another user; this one is behind it.
_PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONFIG: Final = """\
listeners.tcp = none
stream.listeners.tcp.default = {host}:{port}
log.file = false
log.console = true
log.console.level = error
"""
_ERL_ARGS: Final = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
_ANSWER_BYTES: Final = 64 * 1024


class RabbitUnavailableError(Exception):
    """RabbitMQ cannot run here; the message has the reason."""


def rabbit_version() -> str:
    if not _PROGRAM.exists() or shutil.which("epmd") is None:
        raise RabbitUnavailableError(
            "rabbitmq-server not found; install Debian's package rabbitmq-server"
        )
    plugins = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"))
    found = [re.search(r"rabbitmq_server-(\d[\d.]*)", str(path)) for path in plugins]
    if not found or found[-1] is None:
        raise RabbitUnavailableError("rabbitmq-server has no plugins in /usr/lib/rabbitmq/lib")
    if not list(plugins[-1].glob("rabbitmq_stream-*")):
        raise RabbitUnavailableError(f"RabbitMQ {found[-1][1]} has no streams")
    return found[-1][1]


class RabbitServer:
    """A node with streams. Its processes are killed, never asked: its data is not used again."""

    def __init__(self, directory: Path, *, command_prefix: Sequence[str] = ()) -> None:
        self.name = f"RabbitMQ {rabbit_version()} streams"
        self.port = free_port()
        self._directory = directory
        self._mapper_port = free_port()
        home = directory / "home"
        home.mkdir(parents=True)
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        config = directory / "rabbitmq.conf"
        config.write_text(_CONFIG.format(host=HOST, port=self.port))
        (directory / "plugins").write_text("[rabbitmq_stream].\n")
        environment = {
            **os.environ,
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the server
            "RABBITMQ_NODENAME": f"bench-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "no-such-file"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERL_ARGS,
        }
        mapper = ["epmd", "-port", str(self._mapper_port), "-address", HOST]
        self._mapper = PeerProcess(mapper, directory / "epmd")
        self._process = PeerProcess(
            [*command_prefix, str(_PROGRAM)], directory, environment=environment
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        self._mapper.launch()
        self._mapper.wait_until(self._maps)
        self._process.launch()

    def wait_until_serving(self) -> None:
        self._process.wait_until(self._greets)

    def kill(self) -> None:
        self._process.kill()
        self._mapper.kill()

    def remove_data(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def create_stream(self) -> None:
        self._ask(create_stream())

    def delete_stream(self) -> None:
        self._ask(delete_stream())

    def _maps(self) -> bool:
        connect(self._mapper_port).close()
        return True

    def _greets(self) -> bool:
        connect_rabbit(self.port).close()
        return True

    def _ask(self, request: bytes) -> None:
        with closing(connect_rabbit(self.port)) as connection:
            ask_rabbit(connection, request)


def connect_rabbit(port: int) -> socket.socket:
    """A connection after its handshake."""
    connection = connect(port)
    try:
        ask_rabbit(connection, peer_properties())
        ask_rabbit(connection, sasl_handshake())
        ask_rabbit(connection, authenticate("guest", "guest"), until_tuned=True)
        connection.sendall(tune())
        ask_rabbit(connection, open_host())
    except BaseException:
        connection.close()
        raise
    return connection


def ask_rabbit(connection: socket.socket, request: bytes, *, until_tuned: bool = False) -> None:
    """Send a request and wait for its response; with `until_tuned`, also for the tuning."""
    connection.sendall(request)
    frames, is_answered, is_tuned = Frames(), False, not until_tuned
    while not (is_answered and is_tuned):
        data = connection.recv(_ANSWER_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        for frame in frames.feed(data):
            if is_tune(frame):
                is_tuned = True
            else:
                is_answered = check_response(frame) or is_answered
