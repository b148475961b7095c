"""A server without a log: it answers each request with zeros, which mean success.

python -m bench.null_server PORT

The rate of a client with this server is the limit of the client and of sockets on this machine. If
a real server comes close to it, the client was measured, not the server.
"""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.wire_load import HOST, connect
from cordwood.quantities import MIB

ROOT = Path(__file__).resolve().parent.parent
NULL: Final = "no log, answers at once"

_SIZE_PREFIX: Final = 4
# As long as Kafka's response to a Produce for one partition, all fields 0.
_ANSWER: Final = (96).to_bytes(4, "big") + bytes(96)
_START_TIMEOUT_S: Final = 30.0


class RequestCounter:
    """Counts the requests that end in its input, which may come in any portions."""

    def __init__(self) -> None:
        self._prefix = b""
        self._missing = 0  # bytes of the current request; 0 between two

    def feed(self, data: memoryview) -> int:
        """The number of requests completed by `data`."""
        completed = 0
        while data:
            if self._missing:
                taken = min(self._missing, len(data))
                self._missing -= taken
                completed += not self._missing
            else:
                taken = min(_SIZE_PREFIX - len(self._prefix), len(data))
                self._prefix += bytes(data[:taken])
                if len(self._prefix) == _SIZE_PREFIX:
                    self._missing = int.from_bytes(self._prefix, "big")
                    self._prefix = b""
            data = data[taken:]
        return completed


# --- called by the suite ----------------------------------------------------------------------


@contextmanager
def null_server(port: int, *, command_prefix: Sequence[str] = ()) -> Iterator[int]:
    """The server runs inside the `with`; yields its process id."""
    with subprocess.Popen(
        [*command_prefix, sys.executable, "-m", "bench.null_server", str(port)], cwd=ROOT
    ) as process:
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while True:
                try:
                    connect(port).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            yield process.pid
        finally:
            process.kill()


# --- in its process ---------------------------------------------------------------------------


def serve(port: int) -> None:
    """Serve until killed."""
    listener = socket.create_server((HOST, port), backlog=128)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    clients: dict[int, tuple[socket.socket, RequestCounter]] = {}
    buffer = memoryview(bytearray(MIB))
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = (client, RequestCounter())
                poll.register(client.fileno(), select.EPOLLIN)
                continue
            client, requests = clients[fd]
            received = 0
            with suppress(ConnectionError):
                received = client.recv_into(buffer)
            if not received:
                del clients[fd]
                poll.unregister(fd)
                client.close()
            elif completed := requests.feed(buffer[:received]):
                client.sendall(_ANSWER * completed)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        serve(int(sys.argv[1]))
