"""Writes the records of groups to ``__consumer_offsets``, on a thread of its own.

The control loop queues records and continues. The writer takes all queued records and makes one
append for each partition of the topic, so that many commits share a sync. Then it reports back
to the loop. The first record creates the topic.

In a cluster, records count when the other replicas have them. Meanwhile more records of the same
partition are collected for the next append, and those of other partitions go their way.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from cordwood.broker.groups.journal.group_shards import Commitments, GroupShards
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.errors import (
    FormatError,
    InvalidProducerEpochError,
    LogClosedError,
    LogError,
    NotLeaderError,
    StorageError,
    UnverifiedTransactionError,
)
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.topics.committed_offsets import CommittedOffsets, GroupRecord, LedAppend
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

Done = Callable[[ErrorCode], None]

_STOP_TIMEOUT_S: Final = 30.0  # a sync that takes longer hangs


class GroupLog(Protocol):
    """The port to the log of groups. For the control loop."""

    def append(self, group_id: str, records: Sequence[GroupRecord], done: Done) -> None:
        """Queue records. Records of one group keep their order; one call is all or none.

        `done` is called in the control loop, after `append` returned: with `none` once the
        records are durable, otherwise with the error code for the client.
        """
        ...

    def append_pending(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        producer: ProducerIdentity,
        done: Done,
        guard: VerificationGuard | None = None,
    ) -> None:
        """As `append`, for offsets that count once the transaction of `producer` does.

        In a cluster, the coordinator of the transaction agreed under `guard`.
        """
        ...

    def refresh(self, done: Done) -> None:
        """Read records that others appended, then call `done` in the same way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    group_id: str
    records: Sequence[GroupRecord]
    done: Done
    producer: ProducerIdentity | None = None  # whose transaction it is in
    guard: VerificationGuard | None = None
    shard: tuple[int, LeaderEpoch] | None = None  # partition and epoch, in a cluster


class _Wait:
    """Records that were appended, until the other replicas have them. Guarded by the condition."""

    __slots__ = ("appended", "deadline_s", "entries", "is_over")

    def __init__(self, entries: Sequence[_Entry], appended: LedAppend, deadline_s: float) -> None:
        self.entries = entries
        self.appended = appended
        self.deadline_s = deadline_s
        self.is_over = False


class GroupLogWriter:
    """Writes to the store. The loop calls `append` and `refresh`, its owner `start` and `stop`.

    `ensure_topic` creates the topic if it does not exist. With `shards` the broker is one of a
    cluster: records are told to be durable when the other replicas have them, in the epoch in
    which they were queued.
    """

    def __init__(
        self,
        offsets: CommittedOffsets,
        scheduler: Scheduler,
        ensure_topic: Callable[[], object],
        shards: GroupShards | None = None,
        commit_timeout_s: float = 5.0,
    ) -> None:
        self._shards = shards
        self._commit_timeout_s = commit_timeout_s
        self._offsets = offsets
        self._scheduler = scheduler
        self._ensure_topic = ensure_topic
        self._condition = threading.Condition()
        self._queue: list[_Entry] = []
        self._refreshes: list[Done] = []
        self._waits: list[_Wait] = []
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="cordwood-group-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Append all queued records, then end the thread. Later calls are refused.

        In a cluster, the replicas are waited for, but not for long.
        """
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def append(self, group_id: str, records: Sequence[GroupRecord], done: Done) -> None:
        shard = None if self._shards is None else self._shards.led_in(group_id)
        if self._shards is not None and shard is None:
            self._tell([done], ErrorCode.not_coordinator)
            return
        self._put(_Entry(group_id=group_id, records=records, done=done, shard=shard))

    def append_pending(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        producer: ProducerIdentity,
        done: Done,
        guard: VerificationGuard | None = None,
    ) -> None:
        shard = None if self._shards is None else self._shards.led_in(group_id)
        if self._shards is not None and shard is None:
            self._tell([done], ErrorCode.not_coordinator)
            return
        self._put(
            _Entry(
                group_id=group_id,
                records=records,
                done=done,
                producer=producer,
                guard=guard,
                shard=shard,
            )
        )

    def _put(self, entry: _Entry) -> None:
        with self._condition:
            if not self._is_stopped:
                self._queue.append(entry)
                self._condition.notify()
                return
        self._tell([entry.done], ErrorCode.coordinator_not_available)

    def refresh(self, done: Done) -> None:
        with self._condition:
            if not self._is_stopped:
                self._refreshes.append(done)
                self._condition.notify()
                return
        self._tell([done], ErrorCode.coordinator_not_available)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                late: list[_Wait] = []
                entries: list[_Entry] = []
                refreshes: list[Done] = []
                while not (late or entries or refreshes):
                    if self._is_stopped and not (self._queue or self._refreshes or self._waits):
                        return
                    late, entries = self._late(), self._free_entries()
                    refreshes, self._refreshes = self._refreshes, []
                    if not (late or entries or refreshes):
                        self._condition.wait(self._next_deadline_s())
            for wait in late:
                # It may count later: then it is read from the log.
                self._tell([e.done for e in wait.entries], ErrorCode.coordinator_not_available)
            if entries and self._shards is not None:
                self._append_led(entries, self._shards.commitments)
            elif entries:
                self._append_all(entries)
            if refreshes:
                self._tell(refreshes, self._attempt(self._offsets.groups))

    def _free_entries(self) -> list[_Entry]:
        """Take what may be appended: not of partitions that wait. The caller holds the lock."""
        if not self._waits:
            entries, self._queue = self._queue, []
            return entries
        busy = {wait.appended.partition for wait in self._waits}
        queue, self._queue = self._queue, []
        free: list[_Entry] = []
        for entry in queue:
            is_busy = entry.shard is not None and entry.shard[0] in busy
            (self._queue if is_busy else free).append(entry)
        return free

    def _late(self) -> list[_Wait]:
        """Give up those that have waited for too long. The caller holds the lock."""
        now_s = time.monotonic()
        late = [wait for wait in self._waits if wait.deadline_s <= now_s]
        for wait in late:
            self._end(wait)
        return late

    def _next_deadline_s(self) -> float | None:
        if not self._waits:
            return None
        return max(min(wait.deadline_s for wait in self._waits) - time.monotonic(), 0)

    def _end(self, wait: _Wait) -> None:
        """The caller holds the lock."""
        wait.is_over = True
        self._waits.remove(wait)
        self._condition.notify()

    def _append_all(self, entries: list[_Entry]) -> None:
        by_partition: dict[int, list[_Entry]] = {}

        def place() -> None:
            self._ensure_topic()
            for entry in entries:
                number = self._offsets.partition_of(entry.group_id)
                by_partition.setdefault(number, []).append(entry)

        code = self._attempt(place)
        if code is not ErrorCode.none:
            self._tell([entry.done for entry in entries], code)
            return
        for number, placed in by_partition.items():
            for is_pending, run in itertools.groupby(placed, lambda e: e.producer is not None):
                if is_pending:
                    for entry in run:
                        self._append_pending(number, entry)
                else:
                    self._append(number, list(run))

    def _append_led(self, entries: list[_Entry], commitments: Commitments) -> None:
        """One append for each shard. Who waits hears of it when the other replicas have it."""
        by_shard: dict[tuple[int, LeaderEpoch], list[_Entry]] = {}
        for entry in entries:
            assert entry.shard is not None
            by_shard.setdefault(entry.shard, []).append(entry)
        for (number, epoch), placed in by_shard.items():
            refused = commitments.refusal(number, epoch)
            if refused is not None:
                # Before the append: groups of other shards would wait for its time-out.
                self._tell([entry.done for entry in placed], refused)
                continue
            for together in self._batches(number, epoch, placed):
                wait = _Wait(*together, time.monotonic() + self._commit_timeout_s)
                with self._condition:
                    self._waits.append(wait)
                future = commitments.await_committed(number, wait.appended.end, epoch)
                future.add_done_callback(partial(self._settled, wait))

    def _settled(self, wait: _Wait, future: Future[bool]) -> None:
        """The replicas have the records, or the leadership is over. Any thread."""
        is_committed = not future.cancelled() and future.exception() is None and future.result()
        with self._condition:
            if wait.is_over:
                return
            if is_committed:
                self._offsets.note_committed(wait.appended)
            self._end(wait)
        code = ErrorCode.none if is_committed else ErrorCode.not_coordinator
        self._tell([entry.done for entry in wait.entries], code)

    def _batches(
        self, number: int, epoch: LeaderEpoch, entries: list[_Entry]
    ) -> list[tuple[list[_Entry], LedAppend]]:
        """Append all entries of a shard together, or, if that is refused, each by itself.

        Those in a transaction are batches of their own.
        """
        runs = itertools.groupby(entries, lambda entry: entry.producer is not None)
        appended: list[tuple[list[_Entry], LedAppend]] = []
        for is_pending, run in runs:
            if is_pending:
                for entry in run:
                    appended += self._append_pending_led(number, epoch, entry)
            else:
                appended += self._append_together(number, epoch, list(run))
        return appended

    def _append_pending_led(
        self, number: int, epoch: LeaderEpoch, entry: _Entry
    ) -> list[tuple[list[_Entry], LedAppend]]:
        found: list[LedAppend] = []
        producer = entry.producer
        assert producer is not None

        def append() -> None:
            found.append(
                self._offsets.append_pending_led(
                    number,
                    entry.records,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    led_in=epoch,
                    guard=entry.guard,
                )
            )

        code = self._attempt(append)
        if code is ErrorCode.none:
            return [([entry], found[0])]
        self._tell([entry.done], code)
        return []

    def _append_together(
        self, number: int, epoch: LeaderEpoch, entries: list[_Entry]
    ) -> list[tuple[list[_Entry], LedAppend]]:
        found: list[LedAppend] = []
        records = [record for entry in entries for record in entry.records]
        if not records:
            self._tell([entry.done for entry in entries], ErrorCode.none)
            return []

        def append() -> None:
            found.append(self._offsets.append_led(number, records, led_in=epoch))

        code = self._attempt(append)
        if code is ErrorCode.none:
            return [(entries, found[0])]
        if code is ErrorCode.unknown_server_error and len(entries) > 1:
            # One entry is invalid; the others must not fail with it.
            return [
                each for entry in entries for each in self._append_together(number, epoch, [entry])
            ]
        self._tell([entry.done for entry in entries], code)
        return []

    def _append_pending(self, partition: int, entry: _Entry) -> None:
        producer = entry.producer
        assert producer is not None
        code = self._attempt(
            lambda: self._offsets.append_pending(
                partition,
                entry.records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            )
        )
        self._tell([entry.done], code)

    def _append(self, partition: int, entries: list[_Entry]) -> None:
        records = [record for entry in entries for record in entry.records]
        code = self._attempt(lambda: self._offsets.append(partition, records))
        if code is ErrorCode.unknown_server_error and len(entries) > 1:
            # One entry is invalid; the others must not fail with it.
            for entry in entries:
                self._append(partition, [entry])
            return
        self._tell([entry.done for entry in entries], code)

    def _attempt(self, function: Callable[[], object]) -> ErrorCode:
        try:
            function()
        except (LogError, StorageError, FormatError, OSError) as error:
            logger.warning("__consumer_offsets: %s", error)
            return append_error(error)
        except Exception:
            logger.exception("__consumer_offsets: unexpected error")
            return ErrorCode.unknown_server_error
        return ErrorCode.none

    def _tell(self, listeners: list[Done], code: ErrorCode) -> None:
        def tell() -> None:
            for done in listeners:
                done(code)

        self._scheduler.call_soon(tell)


def append_error(error: Exception) -> ErrorCode:
    """The error code for members when the topic could not be written.

    They look up the coordinator and retry, as with Kafka when a disk fails.
    """
    if isinstance(error, LogClosedError):
        return ErrorCode.coordinator_not_available
    if isinstance(error, NotLeaderError):
        return ErrorCode.not_coordinator
    if isinstance(error, InvalidProducerEpochError):
        return ErrorCode.invalid_producer_epoch
    if isinstance(error, UnverifiedTransactionError):
        return ErrorCode.invalid_txn_state
    if isinstance(error, (StorageError, OSError)):
        return ErrorCode.not_coordinator
    return ErrorCode.unknown_server_error
