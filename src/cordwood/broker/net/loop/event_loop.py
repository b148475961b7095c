"""An event loop for sockets, timers and calls from other threads, with only what the broker needs.

Why not asyncio: a fetch answers with `sendfile` between two writes, a produce is appended from
the buffer it was received into, and a broker in a test has to start in milliseconds. All three
need the readiness of a socket, not a stream or a transport. See docs/decisions.

A turn of the loop: make the call that somebody wants before it waits, wait for sockets, receive
from those that are ready and in the row, all at once (`receive_together`), call the functions of
the others that are ready, make the calls that these left for afterwards, run due timers, run the
calls that other threads asked for, then those that were left for the end of the turn.
Everything but `call_soon` and `stop` belongs to the loop's own thread.
"""

import contextlib
import heapq
import logging
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cordwood.broker.net.memory.frame_pool import FramePool
from cordwood.fresh_pages import fresh_pages

logger = logging.getLogger(__name__)

READABLE: Final = 1
WRITABLE: Final = 4
HUNG_UP: Final = 0x2000  # EPOLLRDHUP, only on Linux: the other side sends no more
EDGES: Final = 0x8000_0000  # EPOLLET, only on Linux: tell of each news once
BROKEN: Final = 0x18  # EPOLLERR, EPOLLHUP: the next read or write reports what it is
_IDLE_WAIT_S: Final = 60.0
_TIMERS_MIN: Final = 1000
RECEIVE_BYTES: Final = 256 * 1024  # one receive; a larger frame gets a buffer of its own

ReadyFunction = Callable[[int], None]
Event = tuple[int, int]  # a descriptor, and what it is ready for
# Receives from all connections in the row that are ready; returns the other events. Never raises.
ReceivesTogether = Callable[[list[Event]], list[Event]]


class Timer:
    """A call at a certain time, unless it is cancelled before."""

    __slots__ = ("function", "is_cancelled", "when_s")

    def __init__(self, when_s: float, function: Callable[[], None]) -> None:
        self.when_s = when_s
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        # The loop keeps the timer until its time comes; what it would have called can go now.
        self.function = _do_nothing


def _do_nothing() -> None:
    pass


class EventLoop:
    """The sockets and timers of one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Connections receive into this buffer, and copy what they have to keep.
        self.scratch = memoryview(fresh_pages(RECEIVE_BYTES))
        self.frames = FramePool()
        self.receive_together: ReceivesTogether | None = None
        self.before_waiting: Callable[[], None] | None = None  # what is called first in each turn
        self.turn_s = time.monotonic()  # when this turn began; precise enough for most purposes
        self.ready_count = 0  # sockets that are ready in this turn
        self.together_count = 0  # those of them that were received from together
        self.turns = 0  # grows while the loop is alive; health checks look at it
        self._poller: _Poller = _EpollPoller() if hasattr(select, "epoll") else _AnyPoller()
        self._ready: dict[int, ReadyFunction] = {}
        # The number orders timers of the same time, so that tuples are compared without Python.
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._timers_max = _TIMERS_MIN  # with so many timers, drop the cancelled ones
        self._soon: deque[Callable[[], None]] = deque()
        self._last: deque[Callable[[], None]] = deque()
        self._after_sockets: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_stopped = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self.register(self._wake_reader.fileno(), READABLE, self._woken)
        self._thread: threading.Thread | None = None
        self._thread_id = 0  # 0 while the loop does not run

    # --- any thread --------------------------------------------------------------------------

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call `function` in the loop's own thread, after all earlier calls."""
        self._soon.append(function)
        # The loop's own thread looks at `_soon` before it waits again.
        if not self._is_woken and threading.get_ident() != self._thread_id:
            self._is_woken = True
            # A full pipe wakes the loop too; a closed one needs no waking.
            with contextlib.suppress(OSError):
                self._wake_writer.send(b"\0")

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop after this turn, and wait until it has ended."""

        def end() -> None:
            self._is_stopped = True

        if self._thread is None and not self.turns:
            self._close()  # it never ran
            return
        self.call_soon(end)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this loop's thread."""
        return threading.get_ident() == self._thread_id

    @property
    def has_own_thread(self) -> bool:
        """Whether it runs in a thread that was started for it."""
        return self._thread is not None

    now_s = staticmethod(time.monotonic)

    # --- the loop's own thread ---------------------------------------------------------------

    def register(self, fd: int, interest: int, ready: ReadyFunction) -> None:
        self._poller.register(fd, interest)
        self._ready[fd] = ready

    def modify(self, fd: int, interest: int) -> None:
        self._poller.modify(fd, interest)

    def unregister(self, fd: int) -> None:
        if self._ready.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        when_s = time.monotonic() + delay_s
        timer = Timer(when_s, function)
        if len(self._timers) >= self._timers_max:
            self._drop_cancelled()
        self._timer_count += 1
        heapq.heappush(self._timers, (when_s, self._timer_count, timer))
        return timer

    def call_last(self, function: Callable[[], None]) -> None:
        """Call `function` at the end of this turn; at the end of the next, if this is the end."""
        self._last.append(function)

    def call_after_sockets(self, function: Callable[[], None]) -> None:
        """Call `function` when every socket that is ready in this turn has had its call."""
        self._after_sockets.append(function)

    def _drop_cancelled(self) -> None:
        """So a fetch that may wait for an hour and was answered at once is not kept that long."""
        timers = self._timers
        timers[:] = [entry for entry in timers if not entry[2].is_cancelled]
        heapq.heapify(timers)
        self._timers_max = max(_TIMERS_MIN, 2 * len(timers))

    def run(self) -> None:
        """Turn until stopped. An exception in a callback is logged and affects no other."""
        self._thread_id = threading.get_ident()
        try:
            while not self._is_stopped:
                self._turn()
        finally:
            self._thread_id = 0
            self._close()

    def _turn(self) -> None:
        self.turns += 1
        if self.before_waiting is not None:
            self._call(self.before_waiting)
        ready = self._ready
        events = self._poller.wait(self._wait_s())
        self.ready_count = len(events)
        self.turn_s = time.monotonic()
        if self.receive_together is not None:
            events = self.receive_together(events)
        self.together_count = self.ready_count - len(events)
        for fd, mask in events:
            function = ready.get(fd)
            if function is None:
                continue  # closed by a callback earlier in this turn
            try:
                function(mask | READABLE if mask & BROKEN else mask)
            except Exception:
                logger.exception("%s: a callback failed", self.name)
        if self._after_sockets:
            self._run_all(self._after_sockets)
        timers = self._timers
        if timers and timers[0][0] <= self.turn_s:
            self._run_timers()
        if self._soon:
            self._run_all(self._soon)
        if self._last:
            self._run_all(self._last)

    def _wait_s(self) -> float:
        if self._soon or self._last or self._after_sockets:
            return 0.0
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            return _IDLE_WAIT_S
        return min(max(timers[0][0] - time.monotonic(), 0.0), _IDLE_WAIT_S)

    def _run_timers(self) -> None:
        timers = self._timers
        now = time.monotonic()
        while timers and (timers[0][2].is_cancelled or timers[0][0] <= now):
            _, _, timer = heapq.heappop(timers)
            if not timer.is_cancelled:
                self._call(timer.function)

    def _run_all(self, calls: deque[Callable[[], None]]) -> None:
        for _ in range(len(calls)):  # calls that these add run in the next turn, after the sockets
            function = calls.popleft()
            try:  # as `_call`, which would be one more call for each
                function()
            except Exception:
                logger.exception("%s: a callback failed", self.name)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            logger.exception("%s: a callback failed", self.name)

    def _woken(self, _mask: int) -> None:
        # Empty the pipe, then clear the flag, then (in `_turn`) run the calls. In the other order
        # a byte that is written in between would be read while the flag stays set, and no thread
        # would wake the loop again.
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        self._is_woken = False

    def _close(self) -> None:
        self._poller.close()
        self._wake_reader.close()
        self._wake_writer.close()


class _Poller:
    """Finds the sockets that are ready. Interests and results are epoll's bits."""

    def register(self, fd: int, interest: int) -> None:
        raise NotImplementedError

    def modify(self, fd: int, interest: int) -> None:
        raise NotImplementedError

    def unregister(self, fd: int) -> None:
        raise NotImplementedError

    def wait(self, timeout_s: float) -> list[Event]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _EpollPoller(_Poller):
    """Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def register(self, fd: int, interest: int) -> None:
        self._epoll.register(fd, interest)

    def modify(self, fd: int, interest: int) -> None:
        self._epoll.modify(fd, interest)

    def unregister(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)

    def wait(self, timeout_s: float) -> list[Event]:
        return self._epoll.poll(timeout_s)

    def close(self) -> None:
        self._epoll.close()


class _AnyPoller(_Poller):
    """Other systems. Selectors have no empty interest: a socket without interest is removed."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, interest: int) -> None:
        events = (selectors.EVENT_READ if interest & READABLE else 0) | (
            selectors.EVENT_WRITE if interest & WRITABLE else 0
        )
        if events:
            self._selector.register(fd, events)

    def modify(self, fd: int, interest: int) -> None:
        self.unregister(fd)
        self.register(fd, interest)

    def unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError, OSError):
            self._selector.unregister(fd)

    def wait(self, timeout_s: float) -> list[Event]:
        return [
            (
                key.fd,
                (READABLE if events & selectors.EVENT_READ else 0)
                | (WRITABLE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in self._selector.select(timeout_s)
        ]

    def close(self) -> None:
        self._selector.close()
