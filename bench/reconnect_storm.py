"""Many TLS clients that connect at once: `python -m bench.reconnect_storm PORT CA COUNT`.

A process of its own, of low priority: the client whose requests are timed must not wait for it.
It prints a line when it begins, and at the end the seconds from the first connection to the last
answer. Every client is connected before the first one begins its handshake.
"""

import os
import select
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Final

from bench.kafka_wire import api_versions_frame
from bench.tls_files import ClientTls, client_tls
from bench.wire_load import HOST

_PRIORITY: Final = 15
_TIMEOUT_S: Final = 120.0


class _Client:
    """One connection: its handshake, its request, its answer."""

    def __init__(self, port: int, tls: ClientTls) -> None:
        connected = socket.create_connection((HOST, port), timeout=_TIMEOUT_S)
        connected.setblocking(False)
        self.socket = tls.begun(connected)
        self._is_asked = False

    def go_on(self) -> int | None:
        """The events to wait for; None: it has its answer."""
        try:
            if not self._is_asked:
                self.socket.do_handshake()
                self.socket.send(api_versions_frame())
                self._is_asked = True
            if not self.socket.recv(4096):
                raise ConnectionResetError("the server closed the connection")
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        return None


def storm_seconds(port: int, tls: ClientTls, count: int) -> float:
    started = time.perf_counter()
    clients = [_Client(port, tls) for _ in range(count)]
    poll = select.epoll()
    waiting: dict[int, _Client] = {}
    try:
        for client in clients:
            events = client.go_on()
            if events is not None:
                waiting[client.socket.fileno()] = client
                poll.register(client.socket, events)
        while waiting:
            ready = poll.poll(_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"{len(waiting)} of {count} clients were not answered")
            for fd, _ in ready:
                events = waiting[fd].go_on()
                if events is None:
                    poll.unregister(fd)
                    del waiting[fd]
                else:
                    poll.modify(fd, events)
        return time.perf_counter() - started
    finally:
        poll.close()
        for client in clients:
            client.socket.close()


def main(arguments: list[str]) -> None:
    port, ca, count = arguments
    tls = client_tls(Path(ca))
    os.nice(_PRIORITY)
    print("begins", flush=True)
    print(storm_seconds(int(port), tls, int(count)))


if __name__ == "__main__":
    main(sys.argv[1:])
