"""Another node that this broker talks to: connected when there is something to say, and again."""

import random
from collections import deque
from functools import partial
from typing import Final

from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundCall
from cordwood.broker.net.outbound.outbound_connection import WAITING_MAX, OutboundConnection
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.errors import CordwoodError

_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


class OutboundPeer:
    """One node at one address. Belongs to the thread of `loop`.

    A connection that fails gives every request that waits its error; nothing is repeated by
    itself. The next request connects again, after a pause that grows with each failure in a row.
    """

    def __init__(self, loop: EventLoop, target: Target, *, client_id: str) -> None:
        self._loop = loop
        self.target = target
        self._client_id = client_id
        self._connection: OutboundConnection | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._delayed: deque[OutboundCall] = deque()
        self._timer: Timer | None = None
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        inside = 0 if self._connection is None else self._connection.waiting_count
        return inside + len(self._delayed)

    def send(self, call: OutboundCall) -> None:
        """Send a request; `call.when_done` gets the answer or the error."""
        if self._is_closed or len(self._delayed) >= WAITING_MAX:
            reason = "it was closed" if self._is_closed else f"{WAITING_MAX} requests wait for it"
            error = self.target.unreachable(reason)
            self._loop.call_soon(partial(call.when_done, error))
            return
        if self._connection is None:
            pause_s = self._not_before_s - self._loop.now_s()
            if pause_s > 0:
                self._delayed.append(call)
                if self._timer is None:
                    self._timer = self._loop.call_later(pause_s, self._resume)
                return
            self._connect()
        assert self._connection is not None
        self._connection.send(call)

    def give_up(self, reason: str) -> None:
        """Close the connection for good; requests that wait get an error."""
        error = self.target.unreachable(reason)
        for call in self._delayed:
            self._loop.call_soon(partial(call.when_done, error))
        if self._connection is not None:
            self._connection.give_up(error)
        self.close()

    def close(self) -> None:
        """Close the connection and forget the requests. Safe to repeat."""
        self._is_closed = True
        self._delayed.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        self._connection = OutboundConnection(
            self._loop, self.target, client_id=self._client_id, when_closed=self._closed
        )

    def _resume(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        delayed, self._delayed = self._delayed, deque()
        for call in delayed:
            self.send(call)

    def _closed(self, _error: CordwoodError) -> None:
        connection, self._connection = self._connection, None
        was_ready = connection is not None and connection.was_ready
        self._failures = 0 if was_ready else self._failures + 1
        pause_s = min(_PAUSE_MIN_S * 2 ** min(self._failures, 10), _PAUSE_MAX_S)
        self._not_before_s = self._loop.now_s() + pause_s * random.uniform(0.8, 1.2)
