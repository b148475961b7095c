"""Redis as a peer that acknowledges what is on the disk: a stream, and `appendfsync always`."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.broker_servers import ServerFailedError, free_port
from bench.redis_wire import command
from bench.wire_load import HOST, connect

_START_TIMEOUT_S = 30.0


class RedisUnavailableError(Exception):
    """Redis cannot run here; the message says what is missing."""


def redis_version() -> str:
    """The version of the redis-server on the PATH."""
    program = shutil.which("redis-server")
    if program is None:
        raise RedisUnavailableError("there is no redis-server; Debian's package has that name")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=([\d.]+)", said.stdout)
    if found is None:
        raise RedisUnavailableError(f"{program} --version says {said.stdout!r}")
    return found[1]


@contextmanager
def redis_server(directory: Path, *, command_prefix: Sequence[str] = ()) -> Iterator[int]:
    """A server whose answers mean that the disk has the bytes; yields its port."""
    directory.mkdir(parents=True)
    port = free_port()
    # No rewriting of the file in the background: in a few seconds nothing else here tidies up.
    options = (
        *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
        *("--auto-aof-rewrite-percentage", "0"),
    )
    where = ("--port", str(port), "--bind", HOST, "--dir", str(directory))
    with subprocess.Popen(
        [*command_prefix, "redis-server", *where, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_until_serving(port, process)
            yield port
        finally:
            process.kill()
    shutil.rmtree(directory)


def flush_all(port: int) -> None:
    """Forget every stream."""
    _ask(port, command(b"FLUSHALL"))


def _wait_until_serving(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            answer = _ask(port, command(b"PING"))
        except OSError:
            answer = b""
        if answer.startswith(b"+PONG"):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerFailedError(f"redis-server did not start: {answer!r}")
        time.sleep(0.02)


def _ask(port: int, request: bytes) -> bytes:
    connection: socket.socket
    with connect(port) as connection:
        connection.sendall(request)
        return connection.recv(4096)
