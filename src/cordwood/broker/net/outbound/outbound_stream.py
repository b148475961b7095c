"""The bytes between this broker and another node: connected, secured, sent, cut into frames.

The stream does not know what the frames mean; that is `outbound_connection`.
"""

import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from cordwood.broker.net.loop.event_loop import READABLE, WRITABLE, EventLoop
from cordwood.broker.net.outbound.outbound_dial import OutboundDial
from cordwood.broker.net.outbound.outbound_frames import OutboundFrames
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.errors import CordwoodError, FormatError

_RECEIVES_PER_TURN: Final = 16  # then other sockets have their turn


class OutboundStream:
    """One stream, from `start` to `close`. Belongs to its connection, in the thread of `loop`.

    `when_open`    the node was reached, and TLS is set up if the target has it
    `when_frame`   gets each frame, in order; may raise `FormatError`, and may close the stream
    `when_ended`   nothing more will come; the reason, or None if the node closed its side
    `when_failed`  the stream is of no use

    The owner appends to `unsent` and calls `send`. It closes the stream after its end or failure.
    """

    def __init__(
        self,
        loop: EventLoop,
        target: Target,
        *,
        frame_bytes_max: int,
        when_open: Callable[[], None],
        when_frame: Callable[[memoryview], None],
        when_ended: Callable[[str | None], None],
        when_failed: Callable[[CordwoodError], None],
    ) -> None:
        self._loop = loop
        self._target = target
        self._frames = OutboundFrames(frame_bytes_max)
        self._when_open = when_open
        self._when_frame = when_frame
        self._when_ended = when_ended
        self._when_failed = when_failed
        self._dial = OutboundDial(
            loop,
            target.host,
            target.port,
            when_connected=self._connected,
            when_failed=lambda reason: when_failed(target.unreachable(reason)),
        )
        self._socket: socket.socket | TlsSocket | None = None  # while it is connected
        self._is_secured = False  # or need not be
        self._interest = 0
        self.unsent: deque[bytes | memoryview] = deque()

    def start(self) -> None:
        self._dial.start()

    def close(self) -> None:
        """Close without a word to anybody. Safe to repeat."""
        self._dial.close()
        self.unsent.clear()
        connected, self._socket = self._socket, None
        if connected is not None:
            if connected.fileno() >= 0:
                self._loop.unregister(connected.fileno())
            connected.close()

    def send(self) -> bool:
        """Send what is unsent: now what the socket takes, later the rest. False: it has failed."""
        unsent = self.unsent
        assert self._socket is not None
        try:
            while unsent:
                piece = unsent[0]
                count = self._socket.send(piece)
                if count == len(piece):
                    unsent.popleft()
                else:
                    unsent[0] = memoryview(piece)[count:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._when_failed(self._target.unreachable(error.strerror or str(error)))
            return False
        self._set_interest()
        return True

    def _connected(self, opened: socket.socket) -> None:
        self._socket = opened
        tls = self._target.tls
        if tls is not None:
            name = self._target.host.partition("%")[0]
            self._socket = TlsSocket(opened, tls.context, server_name=name)
        self._interest = READABLE
        self._loop.register(opened.fileno(), READABLE, self._ready)
        if tls is None:
            self._open()
        else:
            self._secure()

    def _secure(self) -> None:
        assert isinstance(self._socket, TlsSocket)
        try:
            self._socket.do_handshake()
        except BlockingIOError:
            self._set_interest()
            return
        except OSError as error:
            self._when_failed(self._target.not_secured(error))
            return
        self._open()

    def _open(self) -> None:
        self._is_secured = True
        self._when_open()

    def _ready(self, mask: int) -> None:
        if not self._is_secured:
            self._secure()
            return
        if mask & WRITABLE and not self.send():
            return
        if mask & READABLE or self._has_more():
            self._receive()
        self._set_interest()

    def _has_more(self) -> bool:
        return isinstance(self._socket, TlsSocket) and self._socket.has_more

    def _receive(self) -> None:
        scratch, connected = self._loop.scratch, self._socket
        if connected is None:
            return
        for _ in range(_RECEIVES_PER_TURN):
            room = self._frames.room(scratch)
            try:
                count = connected.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self._when_ended(error.strerror or str(error))
                return
            if not count:
                self._when_ended(None)
                return
            try:
                for frame in self._frames.received(room, count):
                    self._when_frame(frame)
                    if self._socket is not connected:
                        return
            except FormatError as error:
                reason = f"its answer cannot be read: {error}"
                self._when_failed(self._target.unreachable(reason))
                return
            if count < len(room) and not self._has_more():
                return
        if self._has_more():  # else the loop reports the socket again
            self._loop.call_soon(partial(self._ready, READABLE))

    def _set_interest(self) -> None:
        if self._socket is None:
            return
        interest = READABLE
        if self.unsent or (
            isinstance(self._socket, TlsSocket) and self._socket.read_waits_for_room
        ):
            interest |= WRITABLE
        if interest != self._interest:
            self._interest = interest
            self._loop.modify(self._socket.fileno(), interest)
