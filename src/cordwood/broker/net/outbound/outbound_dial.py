"""Finds a socket to another node: its name is looked up, then its addresses are tried in turn."""

import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address

from cordwood.broker.net.loop.event_loop import WRITABLE, EventLoop

Resolved = list[tuple[int, tuple[str, int]]]  # family and address


class OutboundDial:
    """One attempt to connect. Belongs to its stream, in the thread of `loop`.

    After `start` one of the two functions is called, once, unless `close` comes first. Whoever gets
    the connected socket owns it from then on; no loop has it. The other gets the reason.
    """

    def __init__(
        self,
        loop: EventLoop,
        host: str,
        port: int,
        *,
        when_connected: Callable[[socket.socket], None],
        when_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._host = host
        self._port = port
        self._when_connected = when_connected
        self._when_failed = when_failed
        self._socket: socket.socket | None = None  # that is being connected
        self._is_closed = False

    def start(self) -> None:
        try:
            family = socket.AF_INET6 if ip_address(self._host).version == 6 else socket.AF_INET
        except ValueError:
            thread = threading.Thread(target=self._resolve, name="cordwood-resolve", daemon=True)
            thread.start()
            return
        self._connect([(family, (self._host, self._port))])

    def close(self) -> None:
        """Give up, without a word. Safe to repeat; does nothing to a socket that was handed on."""
        self._is_closed = True
        self._drop()

    def _resolve(self) -> None:
        """In a thread of its own: a name server may take its time."""
        found: Resolved = []
        reason = "the name has no address"
        try:
            infos = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            found = [(info[0], (str(info[4][0]), int(info[4][1]))) for info in infos]
        except (OSError, UnicodeError) as error:
            reason = str(error)
        if found:
            self._loop.call_soon(partial(self._connect, found))
        else:
            self._loop.call_soon(partial(self._fail, reason))

    def _connect(self, addresses: Resolved) -> None:
        if self._is_closed:
            return
        (family, address), *others = addresses
        try:
            opened = socket.socket(family, socket.SOCK_STREAM)
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._socket = opened
        try:
            opened.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._next_address(error, others)
            return
        self._loop.register(opened.fileno(), WRITABLE, partial(self._decided, others))

    def _decided(self, others: Resolved, _mask: int) -> None:
        """The system has connected the socket, or has given up."""
        opened = self._socket
        assert opened is not None
        code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._next_address(OSError(code, os.strerror(code)), others)
            return
        self._loop.unregister(opened.fileno())
        self._socket = None
        self._when_connected(opened)

    def _next_address(self, error: OSError, others: Resolved) -> None:
        self._drop()
        if others:
            self._connect(others)
        else:
            self._fail(error.strerror or str(error))

    def _drop(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            self._loop.unregister(opened.fileno())
            opened.close()

    def _fail(self, reason: str) -> None:
        if not self._is_closed:
            self._when_failed(reason)
