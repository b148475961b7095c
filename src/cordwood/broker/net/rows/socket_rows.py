"""Connections that are received from together, and answered together.

A connection is *in the row* while nothing but small requests, each of which was received with those
of others, has happened on it. Then its next request needs no look at the connection: all that can
be said of it is known. In the row, a connection is in one of two states:

    a member   it owes nothing, nothing is left over from before, nothing waits to be sent
    owing      its request was received; its queue has one answer at most, that of its row

Whatever else happens on it (it is ready for something else, it is muted, closed, or has to be sent
the rest of an answer) takes it out of the row first. It comes back with its next small request.
The kernel `row_transfers` moves connections between the two states, and does nothing else to them.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, Protocol

from cordwood.broker.net.rows.row_transfers import send_row

NOT_IN_ROW: Final = -(2**31)  # the result of a send to a connection that has left the row

_COLUMNS: Final = 2  # of the kernel's table
_LINES_MIN: Final = 1024  # sockets in one call: as many as an epoll reports at most


class AnswerQueue(Protocol):
    """What a connection owes its client."""

    def clear(self) -> None: ...


class RowMember(Protocol):
    """A connection with a plain socket. Belongs to the thread of its loop."""

    fd: int
    is_in_row: bool
    last_active_s: float

    @property
    def answers(self) -> AnswerQueue: ...

    def leave_row(self) -> None:
        """Whatever happens next, look at the connection itself. Does nothing outside the row."""
        ...

    def start_gathered(self, data: memoryview) -> None:
        """Start the requests in `data`, which was received in this turn. Never raises."""
        ...

    def receive_failed(self, code: int) -> None:
        """Nothing was received: the client sends no more (0), or that error. Never raises."""
        ...

    def send_failed(self, frame: bytes, result: int) -> int:
        """Less than all of `frame` was sent: `result` bytes, or the negative code of an error.

        Returns the number of bytes that were sent.
        """
        ...


class SocketRows:
    """The connections of one loop that are in the row. Belongs to that loop.

    Invariant: what `members` has for a descriptor is a member, and has that descriptor.

    table    what the kernel `row_transfers` notes for each socket of a call
    """

    __slots__ = ("members", "table")

    def __init__(self) -> None:
        self.members: list[Any] = []  # by descriptor; None: nobody
        self.table = array("q", bytes(8 * _COLUMNS * _LINES_MIN))

    def make_room(self, fd: int) -> None:
        """A connection with that descriptor comes into the row, owing."""
        missing = fd + 1 - len(self.members)
        if missing > 0:
            self.members += [None] * missing

    def forget(self, fd: int) -> None:
        """The connection with that descriptor leaves the row."""
        self.members[fd] = None

    def send(
        self, connections: Sequence[RowMember], frames: bytearray, size: int, turn_s: float
    ) -> list[tuple[int, int]]:
        """Send each its `size` bytes of `frames`: see `row_transfers.send_row`."""
        if len(connections) * _COLUMNS > len(self.table):
            self.table = array("q", bytes(8 * _COLUMNS * len(connections)))
        return send_row(connections, frames, size, self.table, self.members, turn_s)
