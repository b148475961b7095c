"""Two ends of a TLS connection in one thread, turned by hand."""

import socket
import ssl
from pathlib import Path

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.security.tls_context import make_context
from fakes.tls_files import TlsFiles


class TlsPair:
    """After the handshake. `broker` is ours; `client` reads and writes without waiting."""

    def __init__(self, directory: Path, *, send_buffer_bytes: int = 16 * 1024) -> None:
        files = TlsFiles(directory)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        context = make_context(TlsConfig(ssl_keystore_location=files.broker)).context
        self.broker = TlsSocket(ours, context)
        self.client = files.client_context().wrap_socket(
            theirs, server_hostname="localhost", do_handshake_on_connect=False
        )
        waiting: list[TlsSocket | ssl.SSLSocket] = [self.broker, self.client]
        while waiting:
            for side in list(waiting):
                try:
                    side.do_handshake()
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                waiting.remove(side)

    def close(self) -> None:
        self.broker.close()
        self.client.close()

    def client_read(self, size: int) -> bytes:
        """What is there, maybe nothing."""
        try:
            return self.client.recv(size)
        except ssl.SSLWantReadError:
            return b""
