"""Waiting for the disk without holding up the data loop.

The loop begins each sync and takes note of its end. In between the kernel is at it, where it
offers that (`storage.kernel_syncs`), or a thread that does nothing but wait. While it lasts the
loop receives and writes what the next sync will serve: that is the group commit.
"""

import itertools
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

from cordwood.broker.net.event_loop import READABLE, EventLoop
from cordwood.log.partition.log_sync import SyncUnderWay
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.storage.kernel_syncs import KernelSyncs

_THREADS: Final = 4  # logs that are synced side by side: what a solid-state disk makes use of


class DiskSyncs:
    """Belongs to the data loop. A log is synced once at a time; asked meanwhile, once more."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._under_way: dict[PartitionLog, SyncUnderWay] = {}
        self._again: set[PartitionLog] = set()
        self._kernel: KernelSyncs | None = None
        self._has_asked_kernel = False
        self._numbers = itertools.count(1)
        self._in_kernel: dict[int, PartitionLog] = {}
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._when_finished: Callable[[PartitionLog], None] | None = None

    def when_finished(self, function: Callable[[PartitionLog], None]) -> None:
        """Have `function` called after each sync, before anyone is told of it."""
        self._when_finished = function

    def is_under_way(self, log: PartitionLog) -> bool:
        return log in self._under_way

    def request(self, log: PartitionLog) -> None:
        """Have all that was appended to `log` synced; those who watch it are told."""
        if log in self._under_way:
            self._again.add(log)
            return
        sync = log.syncing.begin()
        if sync is None:
            log.syncing.request()
            return
        self._under_way[log] = sync
        if not self._submit(log, sync):
            self._hand_to_thread(log, sync)

    def stop(self) -> None:
        """Finish what was begun. Called when the loop has ended, from another thread."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._kernel is not None:
            for number, error in self._kernel.wait_for_all():
                self._under_way.pop(self._in_kernel.pop(number)).finish(error)
            self._kernel.close()
            self._kernel = None
        for sync in self._under_way.values():
            sync.finish(sync.wait())  # the loop ended before it could say so
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
                self._loop.register(self._kernel.fd, READABLE, self._on_kernel)
        number = next(self._numbers)
        if self._kernel is None or not self._kernel.submit(descriptor, number):
            return False
        self._in_kernel[number] = log
        return True

    def _on_kernel(self, _mask: int) -> None:
        if self._kernel is not None:
            for number, error in self._kernel.finished():
                self._finish(self._in_kernel.pop(number), error)

    # --- by threads --------------------------------------------------------------------------

    def _hand_to_thread(self, log: PartitionLog, sync: SyncUnderWay) -> None:
        if len(self._threads) < min(_THREADS, len(self._under_way)):
            thread = Thread(
                target=self._run, name=f"cordwood-sync-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

        def wait() -> None:
            error = sync.wait()
            self._loop.call_soon(lambda: self._finish(log, error))

        self._queue.put(wait)

    def _run(self) -> None:
        while (wait := self._queue.get()) is not None:
            wait()

    def _finish(self, log: PartitionLog, error: OSError | None) -> None:
        sync = self._under_way.pop(log, None)
        if sync is None:
            return  # finished by `stop`
        sync.finish(error)
        if self._when_finished is not None:
            self._when_finished(log)  # what it appends has the disk busy while we answer
        if log in self._again:
            self._again.discard(log)
            if not log.is_closed and log.state.durable < log.end_offset:
                self.request(log)
