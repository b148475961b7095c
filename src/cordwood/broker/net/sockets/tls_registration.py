"""The place of a TLS connection in an event loop.

A loop reports what the socket is ready for; a connection wants to know what *it* can do. The two
differ in TLS. Bytes may wait inside OpenSSL while the socket is silent, and reading may wait for
the socket to take bytes.

Invariant: while a connection listens and OpenSSL holds something for it, a call is due in its loop.
"""

from cordwood.broker.net.loop.event_loop import (
    BROKEN,
    HUNG_UP,
    READABLE,
    WRITABLE,
    EventLoop,
    ReadyFunction,
)
from cordwood.broker.net.sockets.registration import Registration
from cordwood.broker.net.sockets.tls_socket import TlsSocket

_ROUNDS = 4  # a connection reads so often in one turn; then others have theirs


class TlsRegistration(Registration):
    """As `Registration`: what the connection asks for is `interest`. Belongs to the same thread."""

    __slots__ = ("_asked", "_connection_ready", "_is_entered", "_looking_in", "_tls")

    def __init__(self, tls: TlsSocket, ready: ReadyFunction, loop: EventLoop) -> None:
        super().__init__(tls.fileno(), self._on_event, loop)
        self._tls = tls
        self._connection_ready = ready
        self._asked = 0  # of the loop
        self._is_entered = False
        self._looking_in: EventLoop | None = None  # where a look into OpenSSL is due

    def enter(self, loop: EventLoop) -> None:
        self._loop = loop
        if self.interest & READABLE or not self.is_lost:
            self._asked = self._needed()
            loop.register(self._fd, self._asked, self._ready)
            self._is_entered = True  # after `_loop`: see `_is_mine`
            self._look_soon()

    def leave(self) -> None:
        self._is_entered = False
        super().leave()

    def end(self) -> None:
        super().end()
        self._connection_ready = self._ready

    def _set(self, interest: int) -> None:
        super()._set(interest)
        self._look_soon()

    def _modify(self) -> None:
        needed = self._needed()
        if needed != self._asked:
            self._asked = needed
            self._loop.modify(self._fd, needed)

    def _needed(self) -> int:
        """What to ask the loop for, so that the connection gets what it is interested in."""
        if self.interest & READABLE and self._tls.read_waits_for_room:
            return self.interest & ~READABLE | WRITABLE
        return self.interest

    def _is_mine(self, loop: EventLoop) -> bool:
        """Whether the connection is still in `loop`, whose thread asks.

        A connection leaves in its own thread. If it has entered another loop since, `_loop` was
        set before `_is_entered`.
        """
        return self._is_entered and self._loop is loop

    def _on_event(self, mask: int) -> None:
        tls, loop = self._tls, self._loop
        if mask == READABLE == self.interest and not tls.read_waits_for_room:  # the usual case
            self._connection_ready(READABLE)
            if (
                self._is_entered
                and self._loop is loop
                and (tls.has_more or tls.read_waits_for_room)
            ):
                self._read_on(loop)
            return
        can = mask & (READABLE | HUNG_UP | BROKEN)
        if mask & WRITABLE:
            can |= self.interest & WRITABLE
            if tls.read_waits_for_room:
                can |= self.interest & READABLE
        if can:
            self._connection_ready(can)
        self._read_on(loop)

    def _read_on(self, loop: EventLoop) -> None:
        for _ in range(_ROUNDS):
            if not (self._is_mine(loop) and self.is_listening and self._tls.has_more):
                break
            self._connection_ready(READABLE)
        if self._is_mine(loop):
            self._modify()
            self._look_soon()

    def _look_soon(self) -> None:
        loop = self._loop
        if (
            self._is_entered
            and self.is_listening
            and self._looking_in is not loop
            and self._tls.has_more
        ):
            self._looking_in = loop
            loop.call_soon(lambda: self._look(loop))

    def _look(self, loop: EventLoop) -> None:
        if self._loop is not loop:
            return  # it belongs to another thread by now
        self._looking_in = None
        self._read_on(loop)
