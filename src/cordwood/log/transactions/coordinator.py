"""The coordinator: carries out what the machine decides, for the library and the broker alike.

Order of durable writes, for a transaction over partitions p and q:

    1  Ongoing [p, q]        written soon, not synced (see `transaction_machine.decide_add`)
    2  records in p and q    as durable as their topics promise, before their producer hears of it
    3  PrepareCommit [p, q]  durable; this is the commit. The producer is answered now
    4  markers in p and q    durable
    5  CompleteCommit []     written soon, not synced

    a crash after   is found as                                      and then
    1               Ongoing without records                          goes on, or times out
    2               Ongoing; or records that no record of 1 covers   goes on (`reconciliation`)
    3               PrepareCommit, markers in none or some           markers are written to all
    4               PrepareCommit, markers in all                    markers are written again
    5               CompleteCommit; or PrepareCommit                 nothing; or as in 4

A transaction of the library that has one partition has a shorter way: see `lone_commit`.

"Soon" is with the next record that somebody waits for, and within about a second. The records stay
in order. So a death of the process may take what a power cut may take, and the table above holds
for both.

The machine decides (`transaction_machine`), the table carries it out (`transaction_table`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from cordwood.clock import Clock
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.lone_commit import LoneCommit
from cordwood.log.transactions.marker_writer import MarkerWriter
from cordwood.log.transactions.reconciliation import OpenTransaction
from cordwood.log.transactions.transaction_entry import Lease, Outcome
from cordwood.log.transactions.transaction_journal import TransactionJournal
from cordwood.log.transactions.transaction_machine import Refusal
from cordwood.log.transactions.transaction_metadata import ProducerIdentity, TransactionMetadata
from cordwood.log.transactions.transaction_recovery import admit_log, recover_transactions
from cordwood.log.transactions.transaction_requests import TransactionRequests
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.transaction_topic import TransactionTopic
from cordwood.log.transactions.transaction_work import LocalWork
from cordwood.quantities import ProducerId

logger = logging.getLogger(__name__)


class TransactionCoordinator(TransactionRequests):
    """Transactions of a store that is alone. Any thread may call it."""

    def __init__(
        self,
        *,
        topic: TransactionTopic,
        find_log: Callable[[str, int], PartitionLog | None],
        offsets: CommittedOffsets,
        new_producer_id: Callable[[], ProducerId],
        clock: Clock,
        has_threads: bool = True,
    ) -> None:
        """`find_log` returns None for a partition that was deleted, and may raise for others."""
        super().__init__(lambda ask: self._table.proceed([ask]), clock)
        self.markers = MarkerWriter(find_log, offsets, clock)
        self._topic = topic

        def make_work(table: TransactionTable[LocalWork]) -> LocalWork:
            return LocalWork(
                table,
                journal=TransactionJournal(lambda id_: topic.log_of(id_, self.config)),
                markers=self.markers,
                new_producer_id=new_producer_id,
                has_threads=has_threads,
            )

        self._table = TransactionTable(clock, make_work)
        self._next_abort_s = self._next_expiry_s = clock.monotonic()

    def begin_append_now(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
    ) -> Lease | None:
        """The lease that `begin_append` gives, if it need not wait; None: nothing was done."""
        decide = self._decide_append(producer, partitions, client_version=client_version)
        granted = self._table.grant_now(transactional_id, decide)
        return None if granted is None else granted.lease

    def begin_alone(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        leases: list[Lease],
    ) -> bool:
        """Begin a transaction that may become a lone one: see `TransactionTable.begin_alone`."""
        return self._table.begin_alone(transactional_id, producer, place, leases)

    def lone_commit(self, log: PartitionLog) -> LoneCommit:
        """A commit by a marker in `log`, of a transaction that `begin_alone` began."""
        return LoneCommit(self._table, self._clock, log)

    @property
    def work(self) -> LocalWork:
        """What writes its records and markers."""
        return self._table.work

    # --- looking -----------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id. A prepared transaction has only the partitions without a marker."""
        return self._table.find(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        """The state of all ids, in order."""
        return self._table.all()

    def refusal(self, transactional_id: str) -> Refusal | None:
        """Never one: a store that is alone coordinates all ids."""
        return None

    @property
    def is_loading(self) -> bool:
        return False  # it was loaded before anyone could ask

    @property
    def unwritten_count(self) -> int:
        return self.markers.unwritten_count

    @property
    def failure_count(self) -> int:
        return self.markers.failure_count

    @contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile no marker is written, and no transaction begins in a log. For a short moment.

        So every transaction has its markers in all partitions or in none, except in those that
        cannot be written.
        """
        with self.markers.turns.still(), self._table.still:
            yield

    # --- time and life -----------------------------------------------------------------------

    def tick(self) -> None:
        """Time-outs, expiry, and what failed before. To be called about once a second."""
        self._table.retry()
        self._topic.request_sync()
        now_s = self._clock.monotonic()
        if now_s >= self._next_abort_s:
            self._next_abort_s = now_s + self.config.abort_interval_ms / 1000
            for transactional_id in self._table.timed_out():
                self.abort_late(transactional_id, _ignore)
        if now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + self.config.expiry_interval_ms / 1000
            count = self._table.forget_expired(self.config.id_expiration_ms)
            if count:
                logger.info("%d transactional ids expired", count)

    def recover(
        self,
        logs: Iterable[PartitionLog],
        is_adopted: Callable[[str], bool],
        *,
        has_all: bool = True,
    ) -> list[OpenTransaction]:
        """Load all ids, finish what was prepared, and deal with what is open in logs.

        Called once, before anyone else uses the store. Returns what an operator has to decide.
        """
        return recover_transactions(
            self._table,
            self._topic.load(),
            list(logs),
            markers=self.markers,
            is_adopted=is_adopted,
            is_whole=self._topic.is_whole,
            now_ms=self._clock.now_ms(),
            has_all=has_all,
        )

    def admit(self, log: PartitionLog, *, is_adopted: bool) -> None:
        """Deal with what is open in a log that comes online late, before anyone uses it.

        Raises `OSError` if that cannot be done now.
        """
        admit_log(
            self._table,
            log,
            is_adopted=is_adopted,
            is_whole=self._topic.is_whole,
            now_ms=self._clock.now_ms(),
        )

    def close(self, *, finishes: bool = True) -> None:
        """Refuse new requests, write what is decided, end the threads. Safe to repeat.

        Unless `finishes`, nothing more is written, as in a crash.
        """
        self._table.close(finishes=finishes)


def _ignore(_outcome: Outcome) -> None:
    """Nobody waits."""
