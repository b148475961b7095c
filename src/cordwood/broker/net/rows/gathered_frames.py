"""Small requests that come in the same turn of the loop are handled together.

A connection that owes nothing, and receives a whole small request, leaves it behind those of the
other connections, in one buffer, unless its socket is the only one that is ready. When every ready
socket has had its turn, one call takes all of them: with fifty clients that send a record each,
that is one check and one append. A request that is not taken goes the usual way, as if it had just
been received.

Connections that did so before are in the row (`socket_rows`): one call receives from all of those
that are ready, without a look at each.

The order of the requests of one connection is kept: a socket is ready once in a turn, and nothing
is received from it before its request was handed over.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cordwood.broker.net.loop.event_loop import RECEIVE_BYTES, EventLoop
from cordwood.broker.net.requests.answer import Connection
from cordwood.broker.net.rows.row_transfers import receive_row
from cordwood.broker.net.rows.socket_rows import RowMember, SocketRows
from cordwood.fresh_pages import fresh_pages

logger = logging.getLogger(__name__)

SMALL_BYTES_MAX: Final = 16 * 1024  # what is larger gains nothing from company
_GATHERED_BYTES_MAX: Final = 128 * 1024  # then they are handed over, before the turn ends


class Gathering(Connection, RowMember, Protocol):
    """A connection that leaves requests here. `rows` are those of its loop."""

    rows: SocketRows


class TakesFrames(Protocol):
    """The short way of small produces."""

    def __call__(
        self,
        connections: Sequence[Gathering],
        data: memoryview,
        ends: list[int],
        start: Callable[[int], None],
    ) -> None:
        """Take requests that will be answered; call `start` with the index of each other one.

        The frames lie one behind the other in `data`, each behind its size; `ends` has their ends.
        Each has a connection, which owes nothing. They are handled in this order. What a connection
        has received may also be less or more than a frame: then `start` is called.
        """
        ...


class GatheredFrames:
    """What the connections of one loop have received in this turn. Belongs to that loop.

    `room` is where the next bytes of a connection are received, always as many as one receive
    takes. A connection calls `add` if it leaves them there, and has handled them otherwise.
    `rows` are the connections that leave them there again and again.
    """

    __slots__ = (
        "_buffer",
        "_connections",
        "_ends",
        "_first_room",
        "_loop",
        "_size",
        "_take_all",
        "room",
        "rows",
    )

    def __init__(self, loop: EventLoop, take_all: TakesFrames) -> None:
        self._loop = loop
        self._take_all = take_all
        self.rows = SocketRows()
        self._buffer = memoryview(fresh_pages(_GATHERED_BYTES_MAX + RECEIVE_BYTES))
        self._connections: list[Gathering] = []
        self._ends: list[int] = []
        self._size = 0
        self._first_room = self._buffer[:RECEIVE_BYTES]
        self.room = self._first_room

    def add(self, connection: Gathering, size: int) -> None:
        """`connection` received so many bytes into `room`, and leaves them until all are taken."""
        self._loop.receive_together = self.receive
        if not self._size:
            self._loop.call_after_sockets(self.hand_over)
        self._size = end = self._size + size
        self._connections.append(connection)
        self._ends.append(end)
        self.room = self._buffer[end : end + RECEIVE_BYTES]
        if end > _GATHERED_BYTES_MAX:
            self.hand_over()

    def receive(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Receive from all connections in the row that are ready; return the other events."""
        rest: list[tuple[int, int]] = []
        while events:
            if self._size > _GATHERED_BYTES_MAX:
                self.hand_over()
            try:
                events, others = self._receive(events)
            except Exception:  # a bug of ours: no client is left waiting
                logger.exception("%s: a receive failed", self._loop.name)
                for connection in self._connections:
                    connection.close("the broker failed")
                self._clear()
                return rest + events  # those that are not closed are received from one by one
            rest = rest + others if rest else others
        return rest

    def _receive(
        self, events: list[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Receive as much as the buffer takes; return what it did not take, and other events."""
        loop, before, data = self._loop, self._size, self._buffer
        connections, rows = self._connections, self.rows
        end, unusual, waiting, others = receive_row(
            events,
            rows.members,
            data,
            before,
            _GATHERED_BYTES_MAX,
            SMALL_BYTES_MAX,
            rows.table,
            loop.turn_s,
            connections,
            self._ends,
        )
        if end > before:
            if not before:
                loop.call_after_sockets(self.hand_over)
            self._size = end
            connections[-1].counts.received += end - before
            self.room = data[end : end + RECEIVE_BYTES]
        for connection, result in unusual:
            if result > 0:
                connection.counts.received += result
                connection.last_active_s = loop.turn_s
                connection.start_gathered(data[end : end + result])
            else:
                connection.receive_failed(-result)
        return waiting, others

    def _clear(self) -> None:
        self._connections, self._ends, self._size = [], [], 0
        self.room = self._first_room

    def hand_over(self) -> None:
        """Start all requests that were gathered."""
        connections, ends, data = self._connections, self._ends, self._buffer
        if not ends:
            return
        self._clear()

        def start(index: int) -> None:
            begin = ends[index - 1] if index else 0
            connections[index].start_gathered(data[begin : ends[index]])

        try:
            self._take_all(connections, data, ends, start)
        except Exception:  # a bug of ours: no client is left waiting
            logger.exception("%s: %d requests failed", self._loop.name, len(ends))
            for connection in connections:
                connection.close("the broker failed")
