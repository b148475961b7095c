"""Waiting for logs: groups for the end of a sync, produces for the disk, fetches for records.

A log calls its watcher from any thread, with its locks held, when its high watermark moves, a sync
ends or the log closes. That is the only announcement. What it means is found out in the data loop,
once per turn however often a log reported: so one sync answers fifty producers.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)


class PromiseWaiter(Protocol):
    """A produce whose records are appended and not yet as durable as they have to be."""

    def promise_settled(self, log: PartitionLog) -> None: ...


class ProgressWaiter(Protocol):
    """A fetch that waits for more bytes."""

    def log_moved(self, log: PartitionLog) -> None: ...


class _Watch:
    """Everything that waits for one log."""

    __slots__ = (
        "append_held",
        "fetches",
        "log",
        "promises",
        "reported",
        "when_closed",
        "when_moved",
    )

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.reported = False
        self.append_held: Callable[[], None] | None = None
        # In the order of the offsets they wait for, which is the order they were appended in.
        self.promises: deque[tuple[Offset, PromiseWaiter, Callable[[], None] | None]] = deque()
        self.fetches: dict[ProgressWaiter, None] = {}
        self.when_closed: list[Callable[[], None]] = []
        self.when_moved: Callable[[], None] | None = None


class LogWatch:
    """All waiting in the data loop. Belongs to that loop, except for the reports of logs.

    A closed log is forgotten, so that topics that come and go leave nothing behind.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._watches: dict[PartitionLog, _Watch] = {}
        self._moved: deque[_Watch] = deque()
        self._is_scheduled = False

    def await_sync(self, log: PartitionLog, append_held: Callable[[], None]) -> None:
        """Call `append_held` at the next report of `log`, before any other waiter.

        So the next sync begins before the requests of the last one are answered.
        """
        self._watch(log).append_held = append_held

    def await_promise(
        self,
        log: PartitionLog,
        end: Offset,
        waiter: PromiseWaiter,
        when_kept: Callable[[], None] | None = None,
    ) -> None:
        """Tell `waiter` when [.., end) of `log` is durable, or never will be.

        If it is durable, `when_kept` may be called before: see `tell_early`.
        """
        self._watch(log).promises.append((end, waiter, when_kept))
        # It may have become durable before the waiter was entered; then no report follows.
        if log.promises.is_kept(end) or not log.state.is_writable:
            self._report(self._watches[log])

    def await_progress(self, log: PartitionLog, waiter: ProgressWaiter) -> None:
        """Tell `waiter` each time `log` moves, until `forget`."""
        watch = self._watch(log)
        watch.fetches[waiter] = None
        if log.is_closed:  # then no report follows
            self._report(watch)

    def await_close(self, log: PartitionLog, when_closed: Callable[[], None]) -> None:
        """Call `when_closed` once `log` is closed."""
        watch = self._watch(log)
        watch.when_closed.append(when_closed)
        if log.is_closed:
            self._report(watch)

    def forget(self, log: PartitionLog, waiter: ProgressWaiter) -> None:
        watch = self._watches.get(log)
        if watch is not None:
            watch.fetches.pop(waiter, None)

    def await_moves(self, log: PartitionLog, when_moved: Callable[[], None]) -> None:
        """Call `when_moved` each time `log` grew or was synced, before any other waiter.

        For logs with other replicas. One per log.
        """
        self._watch(log).when_moved = when_moved

    def _watch(self, log: PartitionLog) -> _Watch:
        watch = self._watches.get(log)
        if watch is None:
            watch = self._watches[log] = _Watch(log)
            log.promises.watch(self._reporter(watch))
        return watch

    def _reporter(self, watch: _Watch) -> Callable[[], None]:
        def report() -> None:
            if (
                watch.promises
                or watch.fetches
                or watch.append_held is not None
                or watch.when_moved is not None
                or watch.log.state.is_closed
            ):
                self._report(watch)

        return report

    def _report(self, watch: _Watch) -> None:
        """Any thread. Reports that come before the loop has looked are one."""
        if watch.reported:
            return
        watch.reported = True
        self._moved.append(watch)
        if not self._is_scheduled:
            self._is_scheduled = True
            if self._loop.is_current:
                self._loop.call_last(self._look)
            else:
                self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_scheduled = False
        moved = self._moved
        for _ in range(len(moved)):
            watch = moved.popleft()
            watch.reported = False
            log = watch.log
            was_closed = log.state.is_closed  # first: a log that closes later reports it
            if watch.when_moved is not None:
                self._tell(watch, watch.when_moved)
            append_held, watch.append_held = watch.append_held, None
            if append_held is not None:
                self._tell(watch, append_held)
            self._settle_promises(watch)
            for waiter in list(watch.fetches):
                try:
                    waiter.log_moved(log)
                except Exception:  # a bug of ours: it affects no other waiter
                    self._failed(watch)
            if was_closed:
                self._watches.pop(log, None)
                log.promises.watch(None)  # the watch refers to the log: neither would be freed
                when_closed, watch.when_closed = watch.when_closed, []
                for tell in when_closed:
                    self._tell(watch, tell)

    def tell_early(self) -> None:
        """Tell who wants to hear early of records that have become durable in this turn."""
        for watch in list(self._moved):  # other threads may report meanwhile
            log = watch.log
            for end, _, when_kept in list(watch.promises):
                if not log.state.is_writable or not log.promises.is_kept(end):
                    break
                if when_kept is not None:
                    self._tell(watch, when_kept)

    def _settle_promises(self, watch: _Watch) -> None:
        log, promises = watch.log, watch.promises
        is_over = not log.state.is_writable
        while promises and (is_over or log.promises.is_kept(promises[0][0])):
            _, waiter, _ = promises.popleft()
            try:
                waiter.promise_settled(log)
            except Exception:  # as above
                self._failed(watch)

    def _tell(self, watch: _Watch, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # as above
            self._failed(watch)

    @staticmethod
    def _failed(watch: _Watch) -> None:
        logger.exception("%s: who waited for it failed", watch.log.name)
