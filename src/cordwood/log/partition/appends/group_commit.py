"""Group commit among the threads that append: many records per sync, without a thread of its own.

The first thread leads: it takes everything that is queued, writes and syncs it once, and wakes the
threads it served. What is queued meanwhile is led by the first of those. So a single thread pays
for its own sync and nothing else, and sixty-four threads share one.

The served threads are woken one after the other, each by the one before it, instead of all at
once: they would only queue up again for the interpreter's lock, and waking twice costs more than
the append itself.

If a thread is interrupted, the threads of its group that were not served queue up again. A batch
that was written already then only waits for its sync.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from cordwood.errors import (
    CordwoodError,
    DiskFullError,
    LogClosedError,
    UnexpectedOffsetError,
)
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.log.rules.interruption import insist
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS

_NOT_PLACED: Final = Offset(-1)
_NO_BATCH: Final = UnplacedBatch(0, 0, NO_TIMESTAMP)


class PendingAppend:
    """A batch that waits for its offset and its sync; without `data`, a wait for a sync alone.

    The leader sets `offset` or `error`, and `is_served` at last; nobody else touches it between
    `commit` and its return.
    """

    __slots__ = (
        "batch",
        "cut_count",
        "data",
        "error",
        "expected_offset",
        "is_served",
        "now_ms",
        "offset",
    )

    def __init__(
        self,
        data: bytearray | memoryview | None,
        batch: UnplacedBatch,
        now_ms: TimestampMs,
        expected_offset: int | None,
    ) -> None:
        self.data = data
        self.batch = batch
        self.now_ms = now_ms
        self.expected_offset = expected_offset
        self.offset = _NOT_PLACED
        self.cut_count = 0
        self.error: Exception | None = None
        self.is_served = False

    @property
    def is_unanswered(self) -> bool:
        """Whether it has a batch that was neither written nor refused yet."""
        return self.data is not None and self.offset == _NOT_PLACED and self.error is None

    @classmethod
    def sync_only(cls, now_ms: TimestampMs) -> "PendingAppend":
        return cls(None, _NO_BATCH, now_ms, None)


class _Group:
    """Threads that share a sync. They wait at `gate`, which opens for one at a time."""

    __slots__ = ("gate", "is_over", "items")

    def __init__(self) -> None:
        self.items: list[PendingAppend] = []
        self.is_over = False
        self.gate = threading.Lock()
        self.gate.acquire()

    def open(self) -> None:
        """Let one thread through. A gate that is open stays open."""
        try:  # noqa: SIM105 (suppress() would cost more than the rest)
            self.gate.release()
        except RuntimeError:
            pass


class CommitQueue:
    """Makes one of the threads that commit at the same time the leader of all.

    Invariant: while `_gathering` has items, a thread leads or its gate is open. `_entry` guards
    both fields and is held only to look.

    An interrupt may end any of the threads, wherever it is. Its group is then over, and the other
    threads of the group queue up again with the same items. Two threads may lead at once after
    that, even with the same item. `lead` must serve one group at a time, and each item once.
    """

    def __init__(self, lead: Callable[[list[PendingAppend]], None]) -> None:
        self._lead = lead
        self._entry = threading.Lock()
        self._gathering = _Group()
        self._is_led = False

    def commit(self, item: PendingAppend) -> None:
        """Return once `item` was served, by this thread or another."""
        while not item.is_served:
            self._join((item,))

    def commit_all(self, items: Sequence[PendingAppend]) -> None:
        """Return once all of them were served. They stay in order."""
        waiting = [item for item in items if not item.is_served]
        while waiting:
            self._join(waiting)
            waiting = [item for item in waiting if not item.is_served]

    def _join(self, items: Sequence[PendingAppend]) -> None:
        """Lead a group with `items` in it, or wait until another thread has led it."""
        group = self._gathering
        try:
            with self._entry:
                group = self._gathering
                group.items.extend(items)
                is_first = not self._is_led
                if is_first:
                    self._is_led = True
                    self._gathering = _Group()
            if not is_first:
                group.gate.acquire()
                if group.is_over:
                    group.gate.release()
                    return
                with self._entry:
                    if self._gathering is group:
                        self._gathering = _Group()
            self._lead(group.items)
            self._end(group)
        except BaseException:
            insist(lambda: self._end(group))
            raise

    def _end(self, group: _Group) -> None:
        """`group` is over. The first thread that waits leads next, or else the next that comes."""
        with self._entry:
            group.is_over = True
            if self._gathering is group:
                self._gathering = _Group()
            following = self._gathering
            self._is_led = bool(following.items)
        if following.items:
            following.open()
        group.open()


class GroupCommit:
    """Writes and syncs the appends of many threads together, for one log."""

    def __init__(self, holder: StateHolder, writer: BatchWriter, syncing: LogSync) -> None:
        self._groups = _GroupWriter(holder, writer, syncing)
        self._queue = CommitQueue(self._groups.serve)

    def commit(self, item: PendingAppend) -> None:
        """Return once `item` is written and synced, or has an error."""
        self._queue.commit(item)

    def commit_all(self, items: Sequence[PendingAppend]) -> None:
        """Return once each of them is written and synced, or has an error."""
        self._queue.commit_all(items)

    def place_all(self, items: list[PendingAppend]) -> None:
        """Write all of them, without a sync; each gets an offset or an error. Takes the lock."""
        self._groups.place_all(items)


class _GroupWriter:
    """What the leader of a group does for it. It does not know the queue."""

    def __init__(self, holder: StateHolder, writer: BatchWriter, syncing: LogSync) -> None:
        self._holder = holder
        self._writer = writer
        self._syncing = syncing

    def place_all(self, items: list[PendingAppend]) -> None:
        with self._holder.lock:
            self._place(items)

    def serve(self, group: list[PendingAppend]) -> None:
        """Write and sync the items; each is served afterwards."""
        with self._holder.sync_lock:
            if self._syncing.is_new and not self._settle(group):
                return
            with self._holder.lock:
                self._place([item for item in group if item.is_unanswered])
            self._syncing.run()
            state = self._holder.state
        for item in group:
            if item.error is None and item.data is not None:
                # An interrupt of an earlier leader may have left time for a truncation or a close.
                is_kept = item.offset < state.durable and item.cut_count == state.cut_count
                item.error = state.failure
                if item.error is None and not is_kept:
                    item.error = LogClosedError(self._holder.name)
            item.is_served = True

    def _settle(self, group: list[PendingAppend]) -> bool:
        """Settle a new log before anything is written; if that fails, refuse the group.

        A log that has records already is settled by its sync.
        """
        state = self._holder.state
        if state.end > 0 or not state.is_writable:
            return True
        try:
            self._syncing.settle()
        except OSError as error:
            is_full = error.errno in FULL_DISK_ERRNOS
            refusal = DiskFullError(self._holder.name) if is_full else error
            for item in group:
                item.error = item.error or refusal
                item.is_served = True
            return False
        return True

    def _place(self, items: list[PendingAppend]) -> None:
        """Write all of them; each gets an offset or an error. Holds the lock."""
        if not items:
            return
        try:
            self._holder.check_appendable()
        except CordwoodError as error:
            for item in items:
                item.error = error
            return
        batches, is_admitted = [], True
        for item in items:
            batches.append(item.batch)
            if item.expected_offset is not None:
                is_admitted = False
        answers: list[Offset | Exception] = []
        try:
            self._writer.write_group(
                _joined(items),
                batches,
                items[-1].now_ms,
                admit=lambda index: self._refusal(items[index]),
                is_admitted=is_admitted,
                answers=answers,
            )
            self._note(items, answers)
        except BaseException:
            # What was written must not be written again.
            insist(lambda: self._note(items, answers))
            raise

    def _note(self, items: list[PendingAppend], answers: list[Offset | Exception]) -> None:
        for item, answer in zip(items, answers, strict=False):
            if isinstance(answer, Exception):
                item.error = answer
            else:
                item.offset, item.cut_count = answer, self._holder.state.cut_count

    def _refusal(self, item: PendingAppend) -> Exception | None:
        end = self._holder.state.end
        if item.expected_offset is None or item.expected_offset == end:
            return None
        return UnexpectedOffsetError(expected=Offset(item.expected_offset), actual=end)


def _joined(items: list[PendingAppend]) -> bytearray | memoryview:
    if len(items) == 1:
        assert items[0].data is not None
        return items[0].data
    return bytearray().join([item.data for item in items if item.data is not None])
