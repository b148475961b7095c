"""Ports of servers that a test starts, stops and starts again at the same address."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of the loopback address that nobody gets by chance, until the block ends.

    A socket is bound to it and does not listen: clients are refused, and the system gives the port
    neither to another server nor to a connection. A server that asks for it by its number, with
    SO_REUSEADDR, may listen. Only Linux allows that; elsewhere the port is merely free now.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield port
