"""All open connections, by the loop they live in: counting, draining, closing idle ones."""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.session import Session

_DRAIN_CHECK_S: Final = 0.01
_SWEEP_S_MAX: Final = 2.0
_FRAME_STALL_S: Final = 30.0  # a frame that stops arriving holds memory that others wait for


class OpenConnection(Protocol):
    """A connection as the registry sees it, in the thread of the connection's loop."""

    loop: EventLoop
    session: Session
    last_active_s: float
    muted_until_s: float

    def unmute(self) -> None: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def is_owed(self) -> bool: ...
    @property
    def is_receiving(self) -> bool: ...
    def is_too_slow(self, now_s: float) -> bool: ...
    def close(self, reason: str) -> None: ...


class ConnectionRegistry:
    """Each loop's own thread adds and removes its connections; any thread may count them.

    Every client that connects asks for the counts, also one that is refused: so they are kept.
    Invariant, under the lock: they are those of `_all`.
    """

    def __init__(self, loops: Iterable[EventLoop]) -> None:
        self._connections: dict[EventLoop, set[OpenConnection]] = {loop: set() for loop in loops}
        self._lock = threading.Lock()
        self._all: set[OpenConnection] = set()  # also those between two loops
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return len(self._all)

    def count_from(self, client_host: str) -> int:
        """How many connections a host has. Any thread."""
        return self._by_host[client_host]

    @property
    def muted_count(self) -> int:
        """How many connections are muted because of a quota. Any thread."""
        return sum(
            connection.muted_until_s > 0
            for connections in self._connections.values()
            for connection in connections.copy()
        )

    def count_on(self, listener: str) -> int:
        """How many connections a listener has. Any thread."""
        return self._by_listener[listener]

    def unmute_all(self, loop: EventLoop) -> None:
        """Read from every connection of `loop` again, soon: quotas have changed. Any thread."""

        def unmute() -> None:
            for connection in self.in_loop(loop):
                connection.unmute()

        loop.call_soon(unmute)

    def in_loop(self, loop: EventLoop) -> list[OpenConnection]:
        """The connections that live in `loop`. Only for the loop's own thread."""
        return list(self._connections[loop])

    def add(self, connection: OpenConnection) -> None:
        self._connections[connection.loop].add(connection)
        with self._lock:
            if connection not in self._all:
                self._all.add(connection)
                self._by_host[connection.session.client_host] += 1
                self._by_listener[connection.session.listener.name] += 1

    def move(self, connection: OpenConnection, target: EventLoop) -> None:
        """The connection leaves its loop, in that loop's thread, for `target`."""
        self._connections[connection.loop].discard(connection)
        target.call_soon(lambda: self._connections[target].add(connection))

    def remove(self, connection: OpenConnection) -> None:
        self._connections[connection.loop].discard(connection)
        session = connection.session
        with self._lock:
            if connection in self._all:
                self._all.remove(connection)
                _count_down(self._by_host, session.client_host)
                _count_down(self._by_listener, session.listener.name)

    # --- any thread --------------------------------------------------------------------------

    def drain(self, loop: EventLoop) -> threading.Event:
        """An event that is set once no connection of `loop` has a request or answer under way."""
        drained = threading.Event()

        def look() -> None:
            if all(connection.is_idle for connection in self._connections[loop]):
                drained.set()
            else:
                loop.call_later(_DRAIN_CHECK_S, look)

        loop.call_soon(look)
        return drained

    def close_all(self, loop: EventLoop) -> None:
        """Close every connection of `loop`, soon."""

        def close() -> None:
            for connection in self.in_loop(loop):
                connection.close("")

        loop.call_soon(close)

    def sweep(self, loop: EventLoop, idle_s: float) -> None:
        """From now on close connections of `loop` that are idle or stop in the middle of a frame.

        A connection is idle after `idle_s` without bytes, unless we owe it an answer. One whose
        client does not authenticate in time is closed, too. Buffers that the loop does not need any
        more are freed.
        """

        def look() -> None:
            now_s = loop.now_s()
            for connection in self.in_loop(loop):
                quiet_s = now_s - connection.last_active_s
                gate = connection.session.gate
                late = None if gate is None else gate.overdue(now_s)
                if late is not None:
                    connection.close(late)
                elif quiet_s >= _FRAME_STALL_S and connection.is_receiving:
                    connection.close(f"a request stopped arriving {quiet_s:.0f} s ago")
                elif connection.is_too_slow(now_s):
                    connection.close("a request arrives too slowly while others wait for memory")
                elif quiet_s >= idle_s and not connection.is_owed:
                    connection.close("")
            loop.frames.trim()
            loop.call_later(min(idle_s / 4, _SWEEP_S_MAX), look)

        loop.call_soon(look)


def _count_down(counts: Counter[str], name: str) -> None:
    """What is not there any more is forgotten: anybody may connect, from anywhere."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
