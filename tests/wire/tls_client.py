"""A `RawClient` that speaks TLS, and one whose bytes a test passes on itself."""

import select
import socket
import ssl
import threading
from collections.abc import Callable

from wire.raw_client import TIMEOUT_S, RawClient

_RECORD_BYTES = 16384


class TlsClient(RawClient):
    """After its handshake. `ConnectionError` or `ssl.SSLError` if the broker refuses it.

    One thread may send while another receives. OpenSSL does not allow that, and Python has no lock
    for it before 3.13: so only one of them is in OpenSSL, and none waits there for the broker.
    """

    def __init__(
        self, address: str, context: ssl.SSLContext, *, receive_buffer_bytes: int | None = None
    ) -> None:
        super().__init__(address, receive_buffer_bytes=receive_buffer_bytes)
        # A request takes several records. Without this, the last one may wait in the client for an
        # acknowledgement, and be discarded if the client leaves without reading its answers.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = _wrapped(self.socket, context)
        self._turn = threading.Lock()

    def send_bytes(self, data: bytes) -> None:
        for start in range(0, len(data), _RECORD_BYTES):
            self._await(select.POLLOUT)  # then there is room for a record
            with self._turn:
                self.socket.sendall(data[start : start + _RECORD_BYTES])

    def _receive(self, size: int) -> bytes:
        while True:
            with self._turn:
                self.socket.settimeout(0)
                try:
                    return self.socket.recv(size)
                except ssl.SSLWantReadError:
                    pass
                finally:
                    self.socket.settimeout(TIMEOUT_S)
            self._await(select.POLLIN)

    def _await(self, event: int) -> None:
        waiting = select.poll()
        waiting.register(self.socket, event)
        if not waiting.poll(TIMEOUT_S * 1000):
            raise TimeoutError("the broker neither reads nor answers")

    @property
    def tls(self) -> ssl.SSLSocket:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket


def _wrapped(plain: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname="localhost")
    except BaseException:
        plain.close()
        raise


class CutTlsClient:
    """TLS in memory: the test decides how the encrypted bytes are cut on their way."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def close(self) -> None:
        self._socket.close()

    def handshake(self, send: Callable[[socket.socket, bytes], None]) -> None:
        self._until_done(self._tls.do_handshake, send)

    def exchange(self, request: bytes, send: Callable[[socket.socket, bytes], None]) -> bytes:
        """Send a framed request in one record; return the frame of the answer."""
        self._tls.write(request)
        send(self._socket, self._out.read())
        answer = bytearray()
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            self._until_done(lambda: answer.extend(self._tls.read(65536)), send)
        return bytes(answer)

    def _until_done(
        self, step: Callable[[], object], send: Callable[[socket.socket, bytes], None]
    ) -> None:
        while True:
            try:
                step()
            except ssl.SSLWantReadError:
                pending = self._out.read()
                if pending:
                    send(self._socket, pending)
                received = self._socket.recv(65536)
                if not received:
                    raise ConnectionResetError("closed by the broker") from None
                self._in.write(received)
            else:
                pending = self._out.read()
                if pending:
                    send(self._socket, pending)
                return
