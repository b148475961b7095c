"""Redis as a peer: a stream, with every command written to a file.

"os": `appendfsync everysec`, its default: a command is written to the file before the response and
synced within a second. "disk": `appendfsync always`: it is synced before the response.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.broker_servers import OS, free_port
from bench.peer_process import PeerProcess
from bench.redis_wire import STREAM, command, is_added, xadd
from bench.wire_load import HOST, connect


class RedisUnavailableError(Exception):
    """Redis cannot run here; the message has the reason."""


def redis_version() -> str:
    """The version of the redis-server on the PATH."""
    program = shutil.which("redis-server")
    if program is None:
        raise RedisUnavailableError("redis-server not found; install the package redis-server")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=([\d.]+)", said.stdout)
    if found is None:
        raise RedisUnavailableError(f"{program} --version says {said.stdout!r}")
    return found[1]


class RedisServer:
    """A server with one level of durability for all streams."""

    def __init__(
        self, directory: Path, durability: str, *, command_prefix: Sequence[str] = ()
    ) -> None:
        level = "everysec" if durability == OS else "always"
        self.name = f"Redis {redis_version()}, appendfsync {level}"
        self.port = free_port()
        self._directory = directory
        options = (
            *("--appendonly", "yes", "--appendfsync", level, "--save", ""),
            # No background rewriting of the file: the other servers do not clean up either.
            *("--auto-aof-rewrite-percentage", "0"),
        )
        where = ("--port", str(self.port), "--bind", HOST, "--dir", str(directory))
        self._process = PeerProcess([*command_prefix, "redis-server", *where, *options], directory)

    @property
    def pid(self) -> int:
        return self._process.pid

    def launch(self) -> None:
        self._process.launch()

    def wait_until_serving(self) -> None:
        self._process.wait_until(lambda: self._ask(command(b"PING")).startswith(b"+PONG"))

    def wait_until_read(self, entry_id: bytes) -> None:
        """Wait until that entry can be read: Redis refuses with -LOADING while it loads."""
        request = command(b"XRANGE", STREAM, entry_id, entry_id)
        self._process.wait_until(lambda: entry_id in self._ask(request))

    def wait_until_written(self, value: bytes) -> None:
        self._process.wait_until(lambda: is_added(self._ask(xadd(STREAM, value))))

    def flush_all(self) -> None:
        """Delete every stream."""
        self._ask(command(b"FLUSHALL"))

    def last_entry_id(self) -> bytes:
        """The id of the last entry."""
        said = self._ask(command(b"XREVRANGE", STREAM, b"+", b"-", b"COUNT", b"1"))
        return said.split(b"\r\n")[3]

    def kill(self) -> None:
        self._process.kill()

    def remove_data(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ask(self, request: bytes) -> bytes:
        """The first part of its response, which is all of it if it is short."""
        with connect(self.port) as connection:
            connection.sendall(request)
            return connection.recv(4096)
