"""A socket's place in an event loop: what the loop reports about it."""

from cordwood.broker.net.loop.event_loop import (
    HUNG_UP,
    READABLE,
    WRITABLE,
    EventLoop,
    ReadyFunction,
)


def _nobody(mask: int) -> None:
    """The connection is closed."""


class Registration:
    """What is reported of one connection. Belongs to the thread of its loop.

    A loop reports a broken socket in every turn, whatever it was asked for. So a connection that is
    lost is registered only while it is read.
    """

    __slots__ = ("_fd", "_loop", "_ready", "interest", "is_lost")

    def __init__(self, fd: int, ready: ReadyFunction, loop: EventLoop) -> None:
        self._fd = fd
        self._ready = ready
        self._loop = loop
        self.interest = READABLE
        self.is_lost = False  # nothing can be sent any more

    @property
    def is_listening(self) -> bool:
        return bool(self.interest & READABLE)

    def enter(self, loop: EventLoop) -> None:
        """Have the loop report from now on."""
        self._loop = loop
        if self.interest & READABLE or not self.is_lost:
            loop.register(self._fd, self.interest, self._ready)

    def leave(self) -> None:
        self._loop.unregister(self._fd)

    def end(self) -> None:
        """Leave for good, and forget the connection.

        The connection refers to this object. If both referred to each other, a closed connection
        would stay in memory until a search for garbage, which is rare.
        """
        self.leave()
        self._ready = _nobody

    def listen(self) -> None:
        self._set(self.interest | READABLE)

    def stop_listening(self) -> None:
        """Leave further bytes in the socket."""
        self._set(self.interest & ~READABLE)

    def await_hang_up(self) -> None:
        """Leave bytes in the socket, but report when the client closes its side."""
        self._set((self.interest & ~READABLE) | HUNG_UP)

    def stop_awaiting_hang_up(self) -> None:
        self._set(self.interest & ~HUNG_UP)

    def await_room(self) -> None:
        """Report when the socket takes more bytes."""
        self._set(self.interest | WRITABLE)

    def stop_awaiting_room(self) -> None:
        self._set(self.interest & ~WRITABLE)

    def lose(self) -> None:
        """The other side is gone."""
        self.leave()
        self.is_lost = True
        self.interest &= ~(WRITABLE | HUNG_UP)
        self.enter(self._loop)

    def _set(self, interest: int) -> None:
        if interest == self.interest:
            return
        self.interest = interest
        if not self.is_lost:
            self._modify()
        elif interest & READABLE:
            self.enter(self._loop)
        else:
            self.leave()

    def _modify(self) -> None:
        self._loop.modify(self._fd, self.interest)
