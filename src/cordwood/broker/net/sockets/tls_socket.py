"""A socket that speaks TLS, with the manners of a plain one: `BlockingIOError` means "not now".

OpenSSL works in memory here, and this class moves the bytes between it and the socket. If OpenSSL
read the socket itself, a client could keep it busy for as long as it likes: it handles messages
without content, such as changes of keys, one after the other and returns when the socket is empty.
So OpenSSL gets a limited number of bytes at a time, and a client that sends many of them without
any content is disconnected.

What differs from a plain socket, and who must know it:

    bytes inside       there may be bytes that were received, or the news that the client sends no
                       more, while the socket itself is silent: `has_more`. See `TlsRegistration`.
    crossed waiting    reading may wait until the socket takes bytes, because OpenSSL has to answer
                       a change of keys: `read_waits_for_room` says so after a `BlockingIOError`.
    repeated writes    a write that was not finished must be repeated with the same bytes. See
                       `TlsOutbox`.

A client that ends the TCP connection without TLS's own farewell has left like any other: frames
have sizes, so a part that is missing cannot be mistaken for the end.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from cordwood.quantities import KIB

_RECEIVE_ONCE_BYTES: Final = 512 * KIB  # then other connections have their turn
_RAW_BYTES: Final = 64 * KIB  # received at once
_FRUITLESS_BYTES_MAX: Final = 64 * KIB  # without content; a record has at most 17 KiB
_UNSENT_BYTES_MAX: Final = 256 * KIB  # more than a chunk of an answer
_HANDSHAKE_STEPS: Final = 4  # of one turn
_NOTHING: Final = memoryview(b"")


class TlsSocket:
    """One client, during its handshake and after it. Belongs to the thread of its connection.

    Invariant: while `_offered` is not 0, what that many bytes were encrypted to is in `_unsent`.
    """

    __slots__ = (
        "_fruitless_bytes",
        "_in",
        "_left",
        "_offered",
        "_out",
        "_socket",
        "_unsent",
        "read_waits_for_room",
        "tls",
    )

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, *, server_name: str | None = None
    ) -> None:
        """The server's side; with `server_name`, the side of a client that wants this server."""
        self._socket = connected
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._in,
            self._out,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self._unsent = _NOTHING  # encrypted
        self._offered = 0
        self._left: OSError | bool = False  # what the next read reports; True: the end
        self._fruitless_bytes = 0
        self.read_waits_for_room = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """A read would report something, even if the socket is silent."""
        return self._left is not False or self._in.pending > 0 or self.tls.pending() > 0

    # --- the handshake -----------------------------------------------------------------------

    def do_handshake(self) -> None:
        """Go on with the handshake; `BlockingIOError`: it is not over yet. Raises `OSError`."""
        for steps_left in reversed(range(_HANDSHAKE_STEPS)):
            self._await_room()
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._await_room()
                if steps_left:  # else more bytes stay in the socket: the loop reports only these
                    self._fill()
                continue
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert
                raise
            self._flush()
            return
        raise BlockingIOError

    def _await_room(self) -> None:
        self.read_waits_for_room = not self._flush()
        if self.read_waits_for_room:
            raise BlockingIOError

    # --- receiving ---------------------------------------------------------------------------

    def _fill(self) -> int:
        """Give OpenSSL what the socket has. Raises `BlockingIOError` if that is nothing."""
        data = self._socket.recv(_RAW_BYTES)
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()
        return len(data)

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what is there; 0: no more will come; `BlockingIOError`: nothing is there."""
        if self._left is not False:
            return self._report_left()
        if not self._reply():
            raise BlockingIOError
        filled = self._decrypt_into(buffer[: min(len(buffer), _RECEIVE_ONCE_BYTES)])
        if self._out.pending:
            self._reply()
        if filled:
            self._fruitless_bytes = 0
            return filled
        if self._fruitless_bytes > _FRUITLESS_BYTES_MAX:
            self._left = ConnectionAbortedError("the client sends TLS messages without content")
        if self._left is not False:
            return self._report_left()
        raise BlockingIOError

    def _reply(self) -> bool:
        """Send what OpenSSL answers by itself. Returns whether reading may go on.

        It waits if too much is unsent. But a client that takes no answers any more may have sent
        requests before.
        """
        try:
            self._flush()
        except OSError:
            self._unsent = _NOTHING
        self.read_waits_for_room = len(self._unsent) > _UNSENT_BYTES_MAX
        return not self.read_waits_for_room

    def _decrypt_into(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as there are bytes. Sets `_left` at the end, or after an error."""
        filled, room, received = 0, len(buffer), _RAW_BYTES
        read: Callable[[int, memoryview], int] = self.tls.read  # type: ignore[assignment]
        try:
            while filled < room:
                if not self._in.pending and not self.tls.pending():
                    if received < _RAW_BYTES or self._fruitless_bytes > _FRUITLESS_BYTES_MAX:
                        break  # the loop reports if more is there
                    received = self._fill()
                    self._fruitless_bytes += received
                count = read(room - filled, buffer[filled:])
                if not count:
                    self._left = True
                    break
                filled += count
                self._fruitless_bytes = 0
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._left = error
        return filled

    def _report_left(self) -> int:
        if isinstance(self._left, OSError):
            raise self._left
        return 0

    def recv(self, size: int, flags: int) -> bytes:
        """Look whether anything is there, without receiving it: ``recv(1, MSG_PEEK)``."""
        assert flags == socket.MSG_PEEK, flags
        if self._in.pending or self.tls.pending():
            return b"\0" * size
        if self._left is not False:
            return b"" if self._report_left() == 0 else b"\0"
        return self._socket.recv(size, flags)  # the bytes before they are decrypted

    # --- sending -----------------------------------------------------------------------------

    def _flush(self) -> bool:
        """Send what was encrypted. Returns whether the socket took all of it."""
        if self._out.pending:
            new = self._out.read()
            self._unsent = memoryview(bytes(self._unsent) + new if self._unsent else new)
        while self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    def send(self, data: bytes | memoryview) -> int:
        """Send all of `data`. After a `BlockingIOError` it must be repeated with the same bytes."""
        if not self._offered:
            if self._unsent and not self._flush():
                raise BlockingIOError
            try:
                self.tls.write(data)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                raise ConnectionResetError(str(error)) from error
            self._offered = len(data)
        assert self._offered == len(data), "another write before the last one was finished"
        if not self._flush():
            raise BlockingIOError
        self._offered = 0
        return len(data)

    def close(self) -> None:
        """Say farewell, if the socket takes it at once, and close."""
        if self._left is False or self._left is True:
            with contextlib.suppress(OSError, ValueError):
                self.tls.unwrap()
            with contextlib.suppress(OSError):
                self._flush()
        self._socket.close()
