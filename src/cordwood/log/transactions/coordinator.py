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

"Soon" is with the next record that somebody waits for, and within about a second. The records stay
in order. So a death of the process may take what a power cut may take, and the table above holds
for both.

The machine decides (`transaction_machine`), the table carries it out (`transaction_table`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

from cordwood.clock import Clock
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.marker_writer import MarkerWriter
from cordwood.log.transactions.reconciliation import OpenTransaction
from cordwood.log.transactions.transaction_config import TransactionConfig
from cordwood.log.transactions.transaction_entry import Ask, Decide, Done, Outcome
from cordwood.log.transactions.transaction_journal import TransactionJournal
from cordwood.log.transactions.transaction_machine import (
    Decision,
    Refusal,
    Refused,
    Unchanged,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    decide_verification,
    is_timed_out,
)
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
)
from cordwood.log.transactions.transaction_recovery import admit_log, recover_transactions
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.transaction_topic import TransactionTopic
from cordwood.quantities import ProducerId, TimestampMs

logger = logging.getLogger(__name__)

WAIT_S: Final = 30.0  # clients give up a request after 30 s or more


class TransactionCoordinator:
    """Transactions of a store. Any thread may call it; nothing waits for the disk.

    Answers come through `done`, at once in the caller's thread or later in another one. `done`
    must return at once. `config` may be replaced at any time. A request that `gives_up` is refused
    if markers that it waits for cannot be written now; others wait for the next tries.
    """

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
        self.config = TransactionConfig()
        self.markers = MarkerWriter(find_log, offsets, clock)
        self._topic = topic
        self._clock = clock
        self._table = TransactionTable(
            journal=TransactionJournal(lambda id_: topic.log_of(id_, self.config)),
            markers=self.markers,
            new_producer_id=new_producer_id,
            clock=clock,
            has_threads=has_threads,
        )
        self._next_abort_s = self._next_expiry_s = clock.monotonic()

    # --- requests ----------------------------------------------------------------------------

    def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        done: Done,
        gives_up: bool = False,
    ) -> None:
        """Give a producer its id and epoch, after the transaction of an earlier one is aborted."""
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            done(Refused(Refusal.INVALID_TRANSACTION_TIMEOUT))
            return
        self._ask(
            transactional_id,
            lambda current, now_ms, fresh_id: decide_init(
                current,
                transactional_id,
                expected=expected,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
                fresh_id=fresh_id,
            ),
            done,
            gives_up=gives_up,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
    ) -> None:
        """Make partitions part of the transaction, which begins if it has not."""
        self._ask(
            transactional_id,
            lambda current, now_ms, _: decide_add(
                current, producer, partitions, client_version=client_version, now_ms=now_ms
            ),
            done,
        )

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
        verify_only: bool = False,
        gives_up: bool = False,
    ) -> None:
        """Allow an append to partitions. `done` gets a lease, to be released after the append.

        Clients of version 2 add the partitions by it; older ones must have added them before.
        """
        adds = not verify_only and (
            client_version >= EPOCH_BUMPING_VERSION or not self.config.verifies_partitions
        )

        def decide(
            current: TransactionMetadata | None, now_ms: TimestampMs, _: ProducerId | None
        ) -> Decision:
            if adds:
                return decide_add(
                    current, producer, partitions, client_version=client_version, now_ms=now_ms
                )
            return decide_verification(current, producer, partitions)

        self._ask(transactional_id, decide, done, takes_lease=True, gives_up=gives_up)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        client_version: int,
        done: Done,
    ) -> None:
        """Commit or abort. `done` is called when the decision is durable, before the markers."""
        self._ask(
            transactional_id,
            lambda current, now_ms, fresh_id: decide_end(
                current,
                producer,
                is_commit=is_commit,
                client_version=client_version,
                now_ms=now_ms,
                fresh_id=fresh_id,
            ),
            done,
        )

    def abort(self, transactional_id: str, done: Done) -> None:
        """Abort the open transaction of an id and fence its producer."""
        self._ask(transactional_id, _decide_abort, done, is_fencing=True)

    def settle(self, transactional_id: str, done: Done) -> None:
        """Call `done` once no transaction of the id is being completed, or its markers fail."""

        def decide(
            current: TransactionMetadata | None, _now: TimestampMs, _id: ProducerId | None
        ) -> Decision:
            if current is None:
                return Refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
            if current.is_prepared:
                return Refused(Refusal.CONCURRENT_TRANSACTIONS)
            return Unchanged(current.identity)

        self._ask(transactional_id, decide, done, gives_up=True)

    def _ask(
        self,
        transactional_id: str,
        decide: Decide,
        done: Done,
        *,
        takes_lease: bool = False,
        is_fencing: bool = False,
        gives_up: bool = False,
    ) -> None:
        ask = Ask(
            transactional_id=transactional_id,
            decide=decide,
            done=done,
            deadline_s=self._clock.monotonic() + WAIT_S,
            takes_lease=takes_lease,
            is_fencing=is_fencing,
            gives_up=gives_up,
        )
        self._table.proceed([ask])

    # --- looking -----------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id. A prepared transaction has only the partitions without a marker."""
        return self._table.find(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        """The state of all ids, in order."""
        return self._table.all()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile no marker is written, and no transaction begins in a log. For a short moment.

        So every transaction has its markers in all partitions or in none, except in those that
        cannot be written.
        """
        with self.markers.turn, self._table.still:
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
                self._ask(transactional_id, _decide_time_out, _ignore, is_fencing=True)
        if now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + self.config.expiry_interval_ms / 1000
            count = self._table.forget_expired(self.config.id_expiration_ms)
            if count:
                logger.info("%d transactional ids expired", count)

    def recover(
        self, logs: Iterable[PartitionLog], is_adopted: Callable[[str], bool]
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


def _decide_abort(
    current: TransactionMetadata | None, now_ms: TimestampMs, fresh_id: ProducerId | None
) -> Decision:
    if current is None:
        return Refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)


def _decide_time_out(
    current: TransactionMetadata | None, now_ms: TimestampMs, fresh_id: ProducerId | None
) -> Decision:
    if current is None or not is_timed_out(current, now_ms=now_ms):
        return Refused(Refusal.INVALID_TXN_STATE)
    return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)


def _ignore(_outcome: Outcome) -> None:
    """Nobody waits."""
