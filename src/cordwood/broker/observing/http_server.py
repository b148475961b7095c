"""A small HTTP server for a few pages, which slow clients cannot occupy.

One event loop receives requests and sends answers, so a client that sends nothing, or takes its
answer byte by byte, costs a descriptor for a limited time and no thread. A thread is begun for a
request that has arrived whole, to make its page.

Every connection has one request and two time limits: for the request to arrive, and for the
answer to be taken. If a client has too many connections, or all clients together, the one that
waits longest for its request is closed. So a new client is always heard.
"""

import contextlib
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from cordwood.broker.net.loop.event_loop import READABLE, WRITABLE, EventLoop, Timer
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.observing.http_guard import HttpGuard
from cordwood.broker.security.tls_listener import TlsListener
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

_HEAD_BYTES_MAX: Final = 16 * 1024
_SEND_ONCE_BYTES: Final = 256 * 1024
_RECEIVE_S: Final = 5.0
_SEND_S: Final = 30.0
_CONNECTIONS_MAX: Final = 128
_CONNECTIONS_PER_CLIENT: Final = 32
_THREADS_PER_PAGE: Final = 4  # a scraper needs one
_BACKLOG: Final = 128
_ACCEPT_PAUSE_S: Final = 0.5  # when there are no descriptors left
_PLAIN: Final = "text/plain; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD"})
_SINGLE: Final = frozenset({"host", "authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An HTTP response."""

    content: bytes
    content_type: str = _PLAIN
    status: HTTPStatus = HTTPStatus.OK
    header: str = ""  # a further one, such as "WWW-Authenticate: Bearer"


Pages = Mapping[str, Callable[[], Page]]


def parse_request(head: bytes) -> tuple[str, str] | None:
    """The method and the path, without query, of a whole request; None if it is none."""
    line, _, _ = head.partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) != 3 or not words[2].startswith("HTTP/1"):
        return None
    return words[0], words[1].partition("?")[0]


def parse_headers(head: bytes) -> dict[str, str] | None:
    """The headers of a whole request, with names in lower case; None if one is malformed.

    A name that is there twice makes it malformed: two hosts are one too many.
    """
    lines = head.replace(b"\r\n", b"\n").partition(b"\n\n")[0].split(b"\n")[1:]
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        name = name.strip().lower()
        if not colon or not name or (name in _SINGLE and name in headers):
            return None
        headers[name] = value.strip()
    return headers


def render_response(page: Page, *, has_body: bool) -> bytes:
    further = f"{page.header}\r\n" if page.header else ""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Server: cordwood\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.content)}\r\n"
        f"Connection: close\r\n"
        f"{further}\r\n"
    )
    return head.encode("latin-1") + (page.content if has_body else b"")


class HttpServer:
    """Serves `pages` from the moment it is made until it is stopped.

    `port` 0 takes any free port: see `address`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Pages,
        *,
        guard: HttpGuard | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        """Without a `guard` every request is answered; `tls` encrypts as that listener does."""
        self._pages = pages
        self._guard = HttpGuard() if guard is None else guard
        self._tls = tls
        self.scratch = memoryview(bytearray(_HEAD_BYTES_MAX))  # connections receive into it
        self._busy: Counter[str] = Counter()  # threads that make a page, by its path
        self._connections: dict[_Connection, None] = {}  # oldest first
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, reuse_port=False
        )
        self._socket.setblocking(False)
        self._loop = EventLoop("cordwood-http")
        self._loop.register(self._socket.fileno(), READABLE, self._on_ready)
        self._loop.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def stop(self) -> None:
        """Close all connections. Requests under way get no answer."""
        self._loop.call_soon(self._close_all)
        self._loop.stop()

    # --- connections -------------------------------------------------------------------------

    def _on_ready(self, _mask: int) -> None:
        try:
            accepted, address = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.warning("the HTTP endpoint cannot accept a connection: %s", error)
            self._loop.unregister(self._socket.fileno())
            self._loop.call_later(_ACCEPT_PAUSE_S, self._listen_again)
            return
        client = str(address[0])
        mine = [c for c in self._connections if c.client == client]
        if len(mine) >= _CONNECTIONS_PER_CLIENT:
            self._make_room(mine)
        elif len(self._connections) >= _CONNECTIONS_MAX:
            self._make_room(list(self._connections))
        connection = _Connection(self, self._loop, accepted, client)
        self._connections[connection] = None
        connection.start(self._tls)

    def _listen_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.register(self._socket.fileno(), READABLE, self._on_ready)

    def _make_room(self, connections: "list[_Connection]") -> None:
        """Close the oldest one that has sent no whole request; if all have, simply the oldest."""
        waiting = [c for c in connections if c.is_receiving]
        (waiting or connections)[0].close()

    def forget(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def _close_all(self) -> None:
        self._loop.unregister(self._socket.fileno())
        self._socket.close()
        for connection in list(self._connections):
            connection.close()

    # --- pages -------------------------------------------------------------------------------

    def answer(self, connection: "_Connection", head: bytes) -> None:
        """Answer a request that has arrived whole."""
        request, headers = parse_request(head), parse_headers(head)
        if request is None or headers is None:
            connection.send(_error_page(HTTPStatus.BAD_REQUEST), has_body=True)
            return
        method, path = request
        has_body = method != "HEAD"
        make = self._pages.get(path)
        refusal = self._guard.refusal(path, headers)
        if refusal is not None:
            connection.send(_refused_page(*refusal), has_body=has_body)
        elif method not in _METHODS:
            connection.send(_error_page(HTTPStatus.NOT_IMPLEMENTED), has_body=True)
        elif make is None:
            known = "\n".join(self._pages)
            page = Page(content=f"{known}\n".encode(), status=HTTPStatus.NOT_FOUND)
            connection.send(page, has_body=has_body)
        elif self._busy[path] >= _THREADS_PER_PAGE:
            connection.send(_error_page(HTTPStatus.SERVICE_UNAVAILABLE), has_body=has_body)
        else:
            self._busy[path] += 1

            def run() -> None:
                page = _made(path, make)
                self._loop.call_soon(lambda: self._made(path, connection, page, has_body))

            threading.Thread(target=run, name="cordwood-http-page", daemon=True).start()

    def _made(self, path: str, connection: "_Connection", page: Page, has_body: bool) -> None:
        self._busy[path] -= 1
        connection.send(page, has_body=has_body)


class _Connection:
    """One request and its answer. Belongs to the server's loop."""

    def __init__(
        self, server: HttpServer, loop: EventLoop, accepted: socket.socket, client: str
    ) -> None:
        self.client = client
        self.is_receiving = True
        self._server = server
        self._loop = loop
        self._socket: socket.socket | TlsSocket = accepted
        self._handshake: TlsSocket | None = None  # while it is under way
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._timer: Timer | None = None
        self._is_closed = False

    def start(self, tls: TlsListener | None) -> None:
        assert isinstance(self._socket, socket.socket)
        self._socket.setblocking(False)
        if tls is not None:
            self._socket = self._handshake = TlsSocket(self._socket, tls.context)
        self._loop.register(self._socket.fileno(), READABLE, self._on_ready)
        self._timer = self._loop.call_later(_RECEIVE_S, self.close)

    def _on_ready(self, _mask: int) -> None:
        try:
            if self._handshake is not None:
                self._shake_hands(self._handshake)
            elif self.is_receiving:
                self._receive()
            elif self._unsent:
                self._send()
            else:
                self._note_departure()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _shake_hands(self, tls: TlsSocket) -> None:
        try:
            tls.do_handshake()
        except BlockingIOError:
            self._loop.modify(tls.fileno(), WRITABLE if tls.read_waits_for_room else READABLE)
            return
        self._handshake = None
        self._loop.modify(tls.fileno(), READABLE)
        if tls.has_more:
            self._receive()

    def _receive(self) -> None:
        data = self._read()
        self._received += data
        is_whole = b"\r\n\r\n" in self._received or b"\n\n" in self._received
        if is_whole:
            self.is_receiving = False
            self._server.answer(self, bytes(self._received))
        elif not data or len(self._received) > _HEAD_BYTES_MAX:
            self.close()

    def _note_departure(self) -> None:
        """More bytes while the page is made; or the client has closed its side."""
        if not self._read():
            self._loop.modify(self._socket.fileno(), 0)

    def _read(self) -> memoryview:
        scratch = self._server.scratch
        return scratch[: self._socket.recv_into(scratch)]

    def send(self, page: Page, *, has_body: bool) -> None:
        if self._is_closed:
            return
        self._unsent = memoryview(render_response(page, has_body=has_body))
        assert self._timer is not None
        self._timer.cancel()
        self._timer = self._loop.call_later(_SEND_S, self.close)
        self._loop.modify(self._socket.fileno(), WRITABLE)

    def _send(self) -> None:
        # If TLS does not take it, the same bytes are offered again.
        self._unsent = self._unsent[self._socket.send(self._unsent[:_SEND_ONCE_BYTES]) :]
        if not self._unsent:
            if isinstance(self._socket, socket.socket):
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)
            self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._socket.fileno() >= 0:
            self._loop.unregister(self._socket.fileno())
        self._socket.close()
        self._server.forget(self)


def _made(path: str, make: Callable[[], Page]) -> Page:
    try:
        return make()
    except Exception as error:
        # For example the broker stops meanwhile: answer, and do not break the connection.
        logger.warning("request for %s failed", path, exc_info=True)
        text = f"{type(error).__name__}: {error}\n"
        return Page(content=text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


def _error_page(status: HTTPStatus) -> Page:
    return Page(content=f"{status.phrase}\n".encode(), status=status)


def _refused_page(status: HTTPStatus, reason: str) -> Page:
    challenge = "WWW-Authenticate: Bearer" if status is HTTPStatus.UNAUTHORIZED else ""
    return Page(content=f"{reason}\n".encode(), status=status, header=challenge)
