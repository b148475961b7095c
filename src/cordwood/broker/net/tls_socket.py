"""A socket that speaks TLS, with the manners of a plain one: `BlockingIOError` means "not now".

What differs from a plain socket, and who must know it:

    bytes inside       OpenSSL may hold decrypted bytes, or the news that the client sends no more,
                       while the socket itself is silent: `has_more`. See `TlsRegistration`.
    crossed waiting    reading may wait until the socket takes bytes, and writing until it has some
                       (TLS 1.3 changes keys in mid-stream): `read_waits_for_room` and
                       `write_waits_for_bytes` say so after a `BlockingIOError`.
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
_RECORD_BYTES: Final = 16 * KIB  # of a full record
_LOOK_EVERY: Final = 8
_LOOKS: Final = 32
_SOL_TLS: Final = 282
_TLS_TX: Final = 1
_CRYPTO_INFO_BYTES: Final = 4  # version and cipher; the kernel tells no more, and no keys


class TlsSocket:
    """A connection after its handshake. Belongs to the thread of its connection."""

    __slots__ = (
        "_left",
        "_looks_due",
        "_tls",
        "read_waits_for_room",
        "write_waits_for_bytes",
    )

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._left: OSError | bool = False  # what the next read reports; True: the end
        self._looks_due = 0  # for further records; negative: only now and then
        self.read_waits_for_room = False
        self.write_waits_for_bytes = False

    def fileno(self) -> int:
        return self._tls.fileno()

    @property
    def is_crossed(self) -> bool:
        """One direction waits for the other."""
        return self.read_waits_for_room or self.write_waits_for_bytes

    @property
    def has_more(self) -> bool:
        """A read would report something, even if the socket is silent."""
        return self._left is not False or self._tls.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what is there; 0: no more will come; `BlockingIOError`: nothing is there.

        OpenSSL gives one record of at most 16 KiB at a time, so this reads several. Behind a
        record that is not full there is seldom another, and finding nothing costs as much as
        reading one: it looks for more where it has found more lately, and now and then.
        """
        filled, room = 0, min(len(buffer), _RECEIVE_ONCE_BYTES)
        if self._left is not False:
            return self._report_left()
        self._looks_due -= 1
        is_patient = self._looks_due < 0 and self._looks_due % _LOOK_EVERY
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        try:
            while filled < room:
                count = read(room - filled, buffer[filled:room])
                if not count:
                    self._left = True
                    break
                if is_patient and count < _RECORD_BYTES and not filled:
                    self.read_waits_for_room = False
                    return count  # the loop reports if more is there, or `has_more`
                if filled:
                    self._looks_due = _LOOKS
                filled += count
        except ssl.SSLWantReadError:
            self.read_waits_for_room = False
        except ssl.SSLWantWriteError:
            self.read_waits_for_room = True
        except OSError as error:
            self._left = error
        if filled:
            return filled
        if self._left is not False:
            return self._report_left()
        raise BlockingIOError

    def _report_left(self) -> int:
        if isinstance(self._left, OSError):
            raise self._left
        return 0

    def recv(self, size: int, flags: int) -> bytes:
        """Look whether anything is there, without receiving it: ``recv(1, MSG_PEEK)``."""
        assert flags == socket.MSG_PEEK, flags
        if self._tls.pending() > 0:
            return b"\0" * size
        if self._left is not False:
            return b"" if self._report_left() == 0 else b"\0"
        return socket.socket.recv(self._tls, size, flags)  # the bytes before they are decrypted

    def send(self, data: bytes | memoryview) -> int:
        """Send all of `data`. After a `BlockingIOError` it must be repeated with the same bytes."""
        try:
            return self._tls.write(data)
        except ssl.SSLWantWriteError:
            self.write_waits_for_bytes = False
        except ssl.SSLWantReadError:
            self.write_waits_for_bytes = True
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise ConnectionResetError(str(error)) from error
        raise BlockingIOError

    def close(self) -> None:
        """Say farewell, if the socket takes it at once, and close."""
        if self._left is False:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self._tls.close()

    def kernel_side(self) -> "KernelSide | None":
        """The socket as its kernel encrypts it; None: only OpenSSL can.

        Linux does with the module ``tls``, if OpenSSL was built for it and the cipher suits.
        """
        try:
            self._tls.getsockopt(_SOL_TLS, _TLS_TX, _CRYPTO_INFO_BYTES)
        except OSError:
            return None
        return KernelSide(self._tls)


class KernelSide:
    """Sending on a TLS connection that the kernel encrypts: as on a plain socket, with `sendfile`.

    OpenSSL must have nothing of its own to send, which is so after the handshake.
    """

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls

    def fileno(self) -> int:
        return self._tls.fileno()

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        return socket.socket.send(self._tls, data, flags)
