"""Disk work of replicas, off the data loop.

Appends that start a segment, truncations and new epochs wait for the disk, so threads run them, and
the appends of followers that catch up. Those of one log take turns in the log itself. Syncs are
shared with those of produces (`disk_syncs`).
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset

T = TypeVar("T")
_THREADS: Final = 4  # logs that are written side by side: what a solid-state disk makes use of


class ReplicaDisk:
    """A `DiskJobs`. Belongs to the data loop. Call `log_moved` whenever a log has moved."""

    def __init__(
        self, loop: EventLoop, syncs: DiskSyncs, *, after_job: Callable[[PartitionLog], None]
    ) -> None:
        """`after_job` is called in the loop when what a job led to was done: roles may change."""
        self._after_job = after_job
        self._loop = loop
        self._syncs = syncs
        self._waits: dict[PartitionLog, list[tuple[Offset, Callable[[], None]]]] = {}
        self._jobs: set[int] = set()  # those under way, by number
        self._numbers = itertools.count(1)
        self.steps = 0  # jobs that are over; any thread may read it
        self._after: list[tuple[set[int], Callable[[], None]]] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cordwood-replica")

    def run(
        self,
        log: PartitionLog,
        job: Callable[[], T],
        when_done: Callable[[T | Exception], None],
    ) -> None:
        number = next(self._numbers)
        self._jobs.add(number)

        def work() -> None:
            result: T | Exception
            try:
                result = job()
            except Exception as error:
                result = error

            def done() -> None:
                nonlocal result
                try:
                    when_done(result)
                    self._after_job(log)
                finally:
                    # An error has this frame in its traceback, and with it the files that the job
                    # used: in a ring they would stay open, and a disk full, until garbage is
                    # collected. An idle broker does that after hours.
                    del result
                    self._over(number)

            self._loop.call_soon(done)

        self._threads.submit(work)

    def after_jobs(self, then: Callable[[], None]) -> None:
        """Call `then` in the loop once the jobs that are under way now are done."""
        if self._jobs:
            self._after.append((set(self._jobs), then))
        else:
            self._loop.call_soon(then)

    def _over(self, number: int) -> None:
        self.steps += 1
        self._jobs.discard(number)
        due = [then for jobs, then in self._after if jobs == {number}]
        self._after = [(jobs - {number}, then) for jobs, then in self._after if jobs != {number}]
        for then in due:
            self._loop.call_soon(then)

    def sync(self, log: PartitionLog, when_done: Callable[[], None]) -> None:
        self._waits.setdefault(log, []).append((log.end_offset, when_done))
        self._syncs.request(log)
        self.log_moved(log)

    def log_moved(self, log: PartitionLog) -> None:
        """Tell those who wait for a sync of `log`, if it is done or never will be."""
        waits = self._waits.get(log)
        if not waits:
            return
        state = log.state
        is_over = state.failure is not None or state.is_closed
        # What was cut off meanwhile need not be waited for.
        kept = [
            (end, when_done)
            for end, when_done in waits
            if not is_over and state.durable < min(end, state.end)
        ]
        done = [when_done for end, when_done in waits if (end, when_done) not in kept]
        if kept:
            self._waits[log] = kept
        else:
            del self._waits[log]
        for when_done in done:
            self._loop.call_soon(when_done)

    def stop(self) -> None:
        """Finish what was begun. Called when the loop has ended, from another thread."""
        self._threads.shutdown()
