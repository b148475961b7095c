"""Syncs several logs at once and waits for all of them.

The kernel syncs side by side by itself, if it can (`storage.disk.kernel_syncs`): no thread is
started, and none contends for the interpreter. Otherwise a few threads do.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.writing.log_sync import SyncUnderWay
from cordwood.quantities import Offset
from cordwood.storage.disk.kernel_syncs import KernelSyncs

_THREADS: Final = 4  # logs that are synced side by side: what a solid-state disk makes use of


class LogSyncs:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._kernel: KernelSyncs | None = None
        self._has_asked_kernel = False
        self._is_busy = False

    def await_kept(self, ends: Mapping[PartitionLog, Offset]) -> dict[PartitionLog, Exception]:
        """Wait until each log keeps its promise below its end; the result has those that failed."""
        waiting = [log for log, end in ends.items() if not log.promises.is_kept(end)]
        if len(waiting) > 1:
            self._sync_together(waiting)
        failures: dict[PartitionLog, Exception] = {}
        for log in waiting:
            # After a sync of ours there is nothing to wait for, but perhaps a failure to report.
            try:
                log.promises.await_kept(ends[log])
            except (CordwoodError, OSError) as error:
                failures[log] = error
        return failures

    def close(self) -> None:
        """Safe to repeat. While a sync hangs, the kernel's resources are left to the system."""
        if self._is_busy:
            return
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            kernel.close()

    def _sync_together(self, logs: list[PartitionLog]) -> None:
        """Sync those logs that nobody else is syncing, once each."""
        begun: list[SyncUnderWay] = []
        errors: dict[int, OSError | None] = {}
        in_kernel: set[int] = set()
        self._is_busy = True
        try:
            for log in logs:
                sync = log.syncing.begin()
                if sync is None:
                    continue
                begun.append(sync)
                if self._submit(sync, len(begun) - 1):
                    in_kernel.add(len(begun) - 1)
            others = [number for number in range(len(begun)) if number not in in_kernel]
            _wait_in_threads(begun, others, errors)
        finally:
            # Whatever happens: nobody else can sync a log before its sync is finished.
            if self._kernel is not None:
                errors.update(self._kernel.wait_for_all())
            for number, sync in enumerate(begun):
                sync.finish(errors[number] if number in errors else sync.wait())
            self._is_busy = False

    def _submit(self, sync: SyncUnderWay, number: int) -> bool:
        descriptor = sync.descriptor
        if descriptor is None:
            return False
        if not self._has_asked_kernel:
            self._has_asked_kernel = True
            self._kernel = KernelSyncs.open()
        return self._kernel is not None and self._kernel.submit(descriptor, number)


def _wait_in_threads(
    begun: list[SyncUnderWay], numbers: list[int], errors: dict[int, OSError | None]
) -> None:
    if not numbers:
        return
    if len(numbers) == 1:
        errors[numbers[0]] = begun[numbers[0]].wait()
        return

    def wait(number: int) -> None:
        errors[number] = begun[number].wait()

    threads = min(_THREADS, len(numbers))
    # If the system has no thread to give, the caller waits for the rest itself.
    with (
        suppress(RuntimeError),
        ThreadPoolExecutor(threads, thread_name_prefix="cordwood-marker-sync") as pool,
    ):
        for number in numbers:
            pool.submit(wait, number)
