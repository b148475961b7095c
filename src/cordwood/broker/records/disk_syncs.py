"""Waiting for the disk without holding up the data loop.

The loop begins each sync and notes its end. In between the kernel does the work by itself, if it
can (`storage.disk.kernel_syncs`), or a thread waits for it. Meanwhile the loop receives and writes
the records that the next sync will serve: that is the group commit. The log itself announces the
end of a sync, to its watcher (`log_watch`).

When the loop has nothing to do but such records, and the sync will end in a moment, the loop waits
for its end rather than for sockets. A turn for the few records that came since would take as long,
and the next group gets them anyway. Then most answers leave before the next group is appended:
their clients' next records join it, so groups are larger and there are fewer of them. The other
answers leave while the disk works on it.
"""

import itertools
import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

from cordwood.broker.net.loop.event_loop import EDGES, READABLE, EventLoop
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.writing.log_sync import SyncUnderWay
from cordwood.storage.disk.kernel_syncs import KernelSyncs
from cordwood.storage.disk.time_slices import yield_to_short_slices

logger = logging.getLogger(__name__)

_THREADS: Final = 4  # logs that are synced side by side: what a solid-state disk makes use of
_MOMENT_S: Final = 60e-6  # about what a turn of the loop costs
_WAIT_S_MAX: Final = 100e-6  # if the sync does not end as expected, the loop goes on
_USUAL_WEIGHT: Final = 1 / 8  # of the last sync, in how long one usually takes


class DiskSyncs:
    """Belongs to the data loop. A log has one sync at a time; requests meanwhile cause one more."""

    def __init__(self, loop: EventLoop, tell_early: Callable[[], None] = lambda: None) -> None:
        """`tell_early` is called if the loop has waited for the end of a sync."""
        self._loop = loop
        self._tell_early = tell_early
        self._under_way: dict[PartitionLog, SyncUnderWay] = {}
        self._again: set[PartitionLog] = set()
        self._kernel: KernelSyncs | None = None
        self._has_asked_kernel = False
        self._numbers = itertools.count(1)
        self._in_kernel: dict[int, PartitionLog] = {}
        self._began_s = 0.0  # when the last sync was submitted
        self._has_ended = False  # whether the kernel told of an end that was not noted yet
        self._usual_s = 1.0  # how long a sync usually takes, until the loop notes its end
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def is_under_way(self, log: PartitionLog) -> bool:
        return log in self._under_way

    def request(self, log: PartitionLog) -> None:
        """Sync everything that was appended to `log`. Its watcher is called afterwards."""
        if log in self._under_way:
            self._again.add(log)
            return
        self._again.discard(log)
        sync = log.syncing.begin()
        if sync is None:
            log.syncing.request()
            return
        self._under_way[log] = sync
        if not self._submit(log, sync):
            self._hand_to_thread(log, sync)

    def stop(self) -> None:
        """Finish what was begun. Called when the loop has ended, from another thread.

        Until then jobs that wait for a log whose sync is under way do not end. Safe to repeat.
        """
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self._kernel is not None:
            for number, error in self._kernel.wait_for_all():
                self._under_way.pop(self._in_kernel.pop(number)).finish(error)
            self._kernel.close()
            self._kernel = None
        for sync in self._under_way.values():
            sync.finish(sync.wait())  # the loop ended before it noted the end
        self._under_way.clear()

    # --- by the kernel -----------------------------------------------------------------------

    def _submit(self, log: PartitionLog, sync: SyncUnderWay) -> bool:
        descriptor = sync.descriptor
        if descriptor is None:
            return False
        if not self._has_asked_kernel:
            self._has_asked_kernel = True
            self._kernel = KernelSyncs.open()
            if self._kernel is not None:
                self._loop.register(self._kernel.fd, READABLE | EDGES, self._on_kernel)
                if self._loop.has_own_thread:
                    yield_to_short_slices()
        number = next(self._numbers)
        if self._kernel is None or not self._kernel.submit(descriptor, number):
            return False
        self._in_kernel[number] = log
        self._began_s = self._loop.now_s()
        self._loop.before_waiting = self._await_end
        return True

    def _on_kernel(self, _mask: int) -> None:
        if self._kernel is None or not self._in_kernel:
            return
        if self._is_waited_for():
            self._has_ended = True  # `_await_end` notes it, before the loop waits again
        else:
            self._note_ends(self._kernel.finished())

    def _is_waited_for(self) -> bool:
        """Whether one sync is under way, and nothing but small produces was ready in this turn.

        One more may be ready: the descriptor by which the kernel tells of the end.
        """
        loop = self._loop
        return len(self._in_kernel) == 1 and 0 < loop.together_count >= loop.ready_count - 1

    def _await_end(self) -> None:
        """Wait for the end of the only sync, if that is near and the loop has no other work."""
        loop, kernel = self._loop, self._kernel
        has_ended, self._has_ended = self._has_ended, False
        if kernel is None or not self._in_kernel:
            loop.before_waiting = None
        elif has_ended or (
            self._is_waited_for() and self._usual_s - (loop.now_s() - self._began_s) < _MOMENT_S
        ):
            self._note_ends(kernel.finished_within(_WAIT_S_MAX))
            self._tell_early()

    def _note_ends(self, ended: list[tuple[int, OSError | None]]) -> None:
        for number, error in ended:
            took_s = self._loop.now_s() - self._began_s
            self._usual_s += (took_s - self._usual_s) * _USUAL_WEIGHT
            self._finish(self._in_kernel.pop(number), error)

    # --- by threads --------------------------------------------------------------------------

    def _hand_to_thread(self, log: PartitionLog, sync: SyncUnderWay) -> None:
        if len(self._threads) < min(_THREADS, len(self._under_way)):
            self._start_thread()

        def wait() -> None:
            error = sync.wait()
            self._loop.call_soon(lambda: self._finish(log, error))

        if self._threads:
            self._queue.put(wait)
        else:
            wait()  # here: a slow loop is better than a sync that never ends

    def _start_thread(self) -> None:
        """One more thread, if the system has one to give."""
        name = f"cordwood-sync-{len(self._threads)}"
        thread = Thread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("%s cannot start: %s", name, error)
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        while (wait := self._queue.get()) is not None:
            wait()

    def _finish(self, log: PartitionLog, error: OSError | None) -> None:
        sync = self._under_way.pop(log, None)
        if sync is None:
            return  # finished by `stop`
        sync.finish(error)
        if log in self._again:
            # After the watcher's waiters: a group that waited for this sync joins the next one.
            self._loop.call_soon(lambda: self._sync_again(log))

    def _sync_again(self, log: PartitionLog) -> None:
        if log in self._again and log not in self._under_way:
            self._again.discard(log)
            if not log.is_closed and log.state.durable < log.end_offset:
                self.request(log)
