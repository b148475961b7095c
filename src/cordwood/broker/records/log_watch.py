"""Who waits for a log to move: produces for the disk, fetches for records.

Logs report from any thread, under their locks, and only say that something has moved. What that
means is found out in the data loop, once per turn, however often a log reported: that is what
makes one sync answer fifty producers.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from cordwood.broker.net.event_loop import EventLoop
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset


class PromiseWaiter(Protocol):
    """A produce whose records are appended and not yet as durable as they have to be."""

    def promise_kept(self, log: PartitionLog) -> None: ...


class ProgressWaiter(Protocol):
    """A fetch that waits for more bytes."""

    def log_moved(self, log: PartitionLog) -> None: ...


class _Watch:
    """Those who wait for one log."""

    __slots__ = ("fetches", "log", "promises", "reported")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.reported = False
        # In the order of the offsets they wait for, which is the order they were appended in.
        self.promises: deque[tuple[Offset, PromiseWaiter]] = deque()
        self.fetches: dict[ProgressWaiter, None] = {}


class LogWatch:
    """All waiting of the data loop. Belongs to that loop, except for what logs report."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._watches: dict[PartitionLog, _Watch] = {}
        self._moved: deque[_Watch] = deque()
        self._is_scheduled = False

    def await_promise(self, log: PartitionLog, end: Offset, waiter: PromiseWaiter) -> None:
        """Tell `waiter` when [.., end) of `log` is durable, or never will be."""
        self._watch(log).promises.append((end, waiter))
        # It may have happened between the look and the entry; then nobody would tell us.
        if log.promises.is_kept(end) or log.state.failure is not None or log.is_closed:
            self._report(self._watches[log])

    def await_progress(self, log: PartitionLog, waiter: ProgressWaiter) -> None:
        """Tell `waiter` each time `log` moves, until `forget`."""
        self._watch(log).fetches[waiter] = None

    def forget(self, log: PartitionLog, waiter: ProgressWaiter) -> None:
        watch = self._watches.get(log)
        if watch is not None:
            watch.fetches.pop(waiter, None)

    @property
    def waiting_promises(self) -> int:
        return sum(len(watch.promises) for watch in list(self._watches.values()))

    def _watch(self, log: PartitionLog) -> _Watch:
        watch = self._watches.get(log)
        if watch is None:
            watch = self._watches[log] = _Watch(log)
            log.promises.watch(self._reporter(watch))
        return watch

    def _reporter(self, watch: _Watch) -> Callable[[], None]:
        def report() -> None:
            if watch.promises or watch.fetches:
                self._report(watch)

        return report

    def _report(self, watch: _Watch) -> None:
        """Any thread. A report that is still to be looked at stands for this one too."""
        if watch.reported:
            return
        watch.reported = True
        self._moved.append(watch)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_scheduled = False
        moved = self._moved
        for _ in range(len(moved)):
            watch = moved.popleft()
            watch.reported = False
            self._keep_promises(watch)
            for waiter in list(watch.fetches):
                waiter.log_moved(watch.log)
            if watch.log.is_closed:
                self._watches.pop(watch.log, None)

    def _keep_promises(self, watch: _Watch) -> None:
        log, promises = watch.log, watch.promises
        is_over = log.state.failure is not None or log.is_closed
        while promises and (is_over or log.promises.is_kept(promises[0][0])):
            _, waiter = promises.popleft()
            waiter.promise_kept(log)
