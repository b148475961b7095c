"""The coordinator of transactions of one broker in a cluster: a table for each partition it leads.

The state of a transactional id is in one partition of ``__transaction_state``. Its leader loads the
partition when it knows what earlier leaders committed, and coordinates its ids for one leader
epoch. That epoch goes into all markers, so a partition refuses a coordinator that was replaced.

    Ongoing [p]         committed before anyone may append to p: else, after the loss of a
                        coordinator, nobody would end the transaction in p
    PrepareCommit [p]   committed before the producer is answered, and before any marker
    markers             committed in each partition, by its leader
    CompleteCommit []   appended. Whatever the id does next is appended after it, and waited for

A record is committed when the replicas in sync have it, in the epoch in which it was appended. If
that epoch ends before, nobody knows: the producer asks the next coordinator.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final, NamedTuple, Protocol

from cordwood.broker.cluster.transactions.marker_sender import MarkerSender
from cordwood.broker.net.loop.scheduler import Scheduler, Timer
from cordwood.clock import Clock
from cordwood.errors import CordwoodError, NotLeaderError
from cordwood.format.transaction_records import transaction_partition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.state_budget import StateBudget
from cordwood.log.transactions.transaction_entry import Ask, Outcome, TransactionEntry
from cordwood.log.transactions.transaction_journal import (
    JournalEntry,
    JournalGroup,
    refusal_to_write,
)
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.log.transactions.transaction_requests import TransactionRequests
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.transaction_topic import read_transactions
from cordwood.log.transactions.transaction_work import give_id
from cordwood.log.transactions.work_queue import WorkQueue
from cordwood.quantities import LeaderEpoch, Offset, ProducerId

logger = logging.getLogger(__name__)

_RELOAD_S: Final = 5.0
_TICK_S: Final = 1.0


class LedPartitions(Protocol):
    """The partitions of ``__transaction_state``. Any thread may call it."""

    def count(self) -> int | None:
        """How many there are; None: the topic does not exist yet."""
        ...

    def log(self, number: int) -> PartitionLog | None:
        """The replica of this broker; None: it has none."""
        ...

    def refusal(self, number: int) -> Refusal | None:
        """Why records that somebody waits for are not appended; None if they are.

        This broker does not lead, or too few replicas are in sync.
        """
        ...

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        """True once records below `end` are committed; False if the leadership ends before."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Whether other brokers may coordinate, because the controllers are silent."""
        ...


class _LedEntry(NamedTuple):
    number: int
    epoch: LeaderEpoch
    entry: JournalEntry


class _Shard(NamedTuple):
    """One partition in one epoch. `table` is None while it is loaded."""

    epoch: LeaderEpoch
    table: "TransactionTable[ShardWork] | None"


class SharedWork:
    """What all tables of a broker have done: by one thread for records, one for producer ids."""

    def __init__(
        self,
        partitions: LedPartitions,
        sender: MarkerSender,
        loop: Scheduler,
        new_producer_id: Callable[[], ProducerId],
    ) -> None:
        self._partitions = partitions
        self._new_producer_id = new_producer_id
        self.sender = sender
        self.loop = loop
        self.records: WorkQueue[_LedEntry] = WorkQueue("cordwood-transaction-log", self._write)
        self.ids: WorkQueue[tuple[TransactionTable[ShardWork], Ask]] = WorkQueue(
            "cordwood-transaction-ids", self._give_ids
        )

    def _give_ids(self, asks: list[tuple["TransactionTable[ShardWork]", Ask]]) -> None:
        for table, ask in asks:
            give_id(table, ask, self._new_producer_id)

    def _write(self, entries: list[_LedEntry]) -> None:
        """Append records, in order; those who wait hear of it when replicas have them."""
        by_shard: dict[tuple[int, LeaderEpoch], list[JournalEntry]] = {}
        for number, epoch, entry in entries:
            by_shard.setdefault((number, epoch), []).append(entry)
        for (number, epoch), placed in by_shard.items():
            self._write_to(number, epoch, placed)

    def _write_to(self, number: int, epoch: LeaderEpoch, entries: Sequence[JournalEntry]) -> None:
        log = self._partitions.log(number)
        if log is None:
            _tell(entries, Refusal.NOT_COORDINATOR)
            return
        refusal = self._partitions.refusal(number)
        if refusal is not None:
            _tell(entries, refusal)
            entries = [entry for entry in entries if entry.written is None]
        group = JournalGroup(entries)
        for refused, error in group.refused:
            _tell([refused], _refusal(error))
        if not group.entries:
            return
        try:
            answers = log.batches.append_group(group.batches, led_in=epoch)
        except (CordwoodError, OSError) as error:
            _tell(group.entries, _refusal(error))
            return
        waiting: list[JournalEntry] = []
        end = Offset(0)
        for entry, answer in zip(group.entries, answers, strict=True):
            if isinstance(answer, Exception):
                _tell([entry], _refusal(answer))
            else:
                end = max(end, Offset(answer + 1))
                waiting.append(entry)
        if any(entry.written is not None for entry in waiting):
            future = self._partitions.await_committed(number, end, epoch)
            future.add_done_callback(partial(_committed, waiting))

    def stop(self) -> None:
        self.ids.stop(finishes=False)
        self.records.stop()


def _committed(entries: Sequence[JournalEntry], future: Future[bool]) -> None:
    is_committed = not future.cancelled() and future.exception() is None and future.result()
    _tell(entries, None if is_committed else Refusal.NOT_COORDINATOR)


def _tell(entries: Sequence[JournalEntry], reason: Refusal | None) -> None:
    for entry in entries:
        if entry.written is None:
            continue
        try:
            entry.written(reason)
        except Exception:  # a bug of ours: the others must hear of their records
            logger.exception("the state of a transaction was written, and then")


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, NotLeaderError):
        return Refusal.NOT_COORDINATOR
    logger.warning("the state of a transaction could not be written: %s", error)
    return refusal_to_write(error)


class ShardWork:
    """The work of one table. See `TransactionWork`."""

    def __init__(
        self,
        table: "TransactionTable[ShardWork]",
        shared: SharedWork,
        number: int,
        epoch: LeaderEpoch,
    ) -> None:
        self._table = table
        self._shared = shared
        self._number = number
        self._epoch = epoch
        self.has_threads = True

    def write(self, entry: JournalEntry, *, is_urgent: bool) -> None:
        led = _LedEntry(self._number, self._epoch, entry)
        if not self._shared.records.put(led, is_urgent=is_urgent) and entry.written is not None:
            # Not here: the table holds its lock.
            self._shared.loop.call_soon(partial(entry.written, Refusal.NOT_COORDINATOR))

    def mark(self, entry: TransactionEntry) -> None:
        self._shared.loop.call_soon(partial(self._shared.sender.send, self._table, entry))

    def give_id(self, ask: Ask) -> None:
        self._shared.ids.put((self._table, ask))

    def hurry(self) -> None:
        self._shared.records.hurry()

    def run_here(self) -> bool:
        return False

    def stop(self, *, finishes: bool) -> None:
        """The records that wait are refused by the log, if another broker leads it."""


class TransactionShards(TransactionRequests):
    """All tables of this broker. Any thread may ask; shards begin and end in the control loop."""

    def __init__(
        self,
        partitions: LedPartitions,
        shared: SharedWork,
        *,
        loop: Scheduler,
        workers: Executor,
        clock: Clock,
    ) -> None:
        super().__init__(self._ask_shard, clock, has_leases=False)
        self._partitions = partitions
        self._shared = shared
        self._loop = loop
        self._workers = workers
        self._lock = threading.Lock()
        self._budget = StateBudget(clock)
        self._shards: dict[int, _Shard] = {}
        self._timer: Timer | None = None
        self._is_closed = False
        self._next_abort_s = self._next_expiry_s = clock.monotonic()

    # --- questions ---------------------------------------------------------------------------

    def _ask_shard(self, ask: Ask) -> None:
        found = self._table_of(ask.transactional_id)
        if isinstance(found, Refusal):
            ask.done(Refused(found))
        else:
            found.proceed([ask])

    def _table_of(self, transactional_id: str) -> "TransactionTable[ShardWork] | Refusal":
        if self._is_closed:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        count = self._partitions.count()
        if count is None or self._partitions.is_fenced:
            return Refusal.NOT_COORDINATOR
        shard = self._shards.get(transaction_partition(transactional_id, count))
        if shard is None:
            return Refusal.NOT_COORDINATOR
        return shard.table or Refusal.COORDINATOR_LOAD_IN_PROGRESS

    def refusal(self, transactional_id: str) -> Refusal | None:
        """Why this broker does not coordinate an id; None if it does."""
        found = self._table_of(transactional_id)
        return found if isinstance(found, Refusal) else None

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id that is coordinated here."""
        found = self._table_of(transactional_id)
        return None if isinstance(found, Refusal) else found.find(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        """The state of all ids that are coordinated here, in order."""
        found = [metadata for table in self._tables() for metadata in table.all()]
        return sorted(found, key=lambda metadata: metadata.transactional_id)

    @property
    def is_loading(self) -> bool:
        """Whether ids are missing in `all` that are about to be there."""
        return any(shard.table is None for shard in list(self._shards.values()))

    @property
    def unwritten_count(self) -> int:
        return self._shared.sender.unwritten_count

    @property
    def failure_count(self) -> int:
        return self._shared.sender.failure_count

    def _tables(self) -> "list[TransactionTable[ShardWork]]":
        return [shard.table for shard in list(self._shards.values()) if shard.table is not None]

    # --- leadership, in the control loop -----------------------------------------------------

    def begin_shard(self, number: int, epoch: LeaderEpoch) -> None:
        """This broker leads a partition of the topic: load its ids."""
        self.end_shard(number)
        if not self._is_closed:
            self._shards[number] = _Shard(epoch, None)
            self._workers.submit(self._load, number, epoch)

    def _load(self, number: int, epoch: LeaderEpoch) -> None:
        """In a worker."""
        try:
            log = self._partitions.log(number)
            loaded = [] if log is None else read_transactions([log])
        except Exception:
            logger.exception("__transaction_state-%d could not be loaded", number)
            self._loop.call_soon(partial(self._load_again, number, epoch))
        else:
            self._loop.call_soon(partial(self._install, number, epoch, loaded))

    def _load_again(self, number: int, epoch: LeaderEpoch) -> None:
        def again() -> None:
            if self._is_current(number, epoch):
                self._workers.submit(self._load, number, epoch)

        self._loop.call_later(_RELOAD_S, again)

    def _is_current(self, number: int, epoch: LeaderEpoch) -> bool:
        shard = self._shards.get(number)
        return not self._is_closed and shard is not None and shard.epoch == epoch

    def _install(
        self, number: int, epoch: LeaderEpoch, loaded: Sequence[TransactionMetadata]
    ) -> None:
        if not self._is_current(number, epoch):
            return
        table = TransactionTable(
            self._clock,
            lambda table: ShardWork(table, self._shared, number, epoch),
            lock=self._lock,
            budget=self._budget,
            coordinator_epoch=epoch,
            is_replicated=True,
        )
        count = table.load_late(loaded)
        self._shards[number] = _Shard(epoch, table)
        logger.info(
            "coordinates __transaction_state-%d in epoch %d: loaded %d transactional ids",
            number,
            epoch,
            count,
        )

    def end_shard(self, number: int) -> None:
        """Another epoch began: forget the ids of the partition, and send producers away."""
        shard = self._shards.pop(number, None)
        if shard is not None and shard.table is not None:
            shard.table.close(finishes=False, reason=Refusal.NOT_COORDINATOR)

    # --- time and life -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for time-outs. Any thread."""
        self._loop.call_soon(self._plan_tick)

    def _plan_tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._plan_tick()  # first: whatever goes wrong in this one, the next one follows
        self._shared.sender.look_again()
        tables = self._tables()
        for table in tables:
            table.retry()
        now_s = self._clock.monotonic()
        if now_s >= self._next_abort_s:
            self._next_abort_s = now_s + self.config.abort_interval_ms / 1000
            for table in tables:
                for transactional_id in table.timed_out():
                    self.abort_late(transactional_id, _ignore)
        if now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + self.config.expiry_interval_ms / 1000
            count = sum(table.forget_expired(self.config.id_expiration_ms) for table in tables)
            if count:
                logger.info("%d transactional ids expired", count)

    def close(self) -> None:
        """Refuse new requests, and write what is decided. Any thread; safe to repeat."""
        self._is_closed = True
        for table in self._tables():
            table.close(finishes=True)
        self._shared.stop()


def _ignore(_outcome: Outcome) -> None:
    """Nobody waits."""
