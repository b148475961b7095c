"""Transactions of the library: appends to several partitions, and offsets, all or nothing.

    with store.transaction("billing-1") as transaction:
        transaction.append("paid", b"7", key=b"user:42")
        transaction.commit_offsets("billing", {("orders", 0): 7})

The coordinator is the one that a broker over the same store uses, so a transactional id belongs to
one producer at a time, in a process or on the network.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from cordwood.clock import Clock
from cordwood.errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    TransactionError,
    UnverifiedTransactionError,
)
from cordwood.format.batch_builder import ProducerStamp, build_batches
from cordwood.format.batch_header import TRANSACTIONAL, advance_sequence
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.format.record import Header, Record
from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.appends.appending import batch_style, check_records
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.appended import Appended, AppendedMany, AppendedRange
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.topic import Topic
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.log.transactions.lone_commit import LoneCommit
from cordwood.log.transactions.transaction_entry import Done, Granted, Lease, Outcome
from cordwood.log.transactions.transaction_machine import Refusal
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.log.transactions.transaction_requests import WAIT_S
from cordwood.quantities import Offset, TimestampMs, timestamp_of

logger = logging.getLogger(__name__)

_Batch = tuple[bytearray | memoryview, UnplacedBatch]

_ID_SHOWN: Final = 40  # characters of an id that is too long
TIMEOUT_MS: Final = 60_000  # as the default of Kafka's clients
_PATIENCE_S: Final = WAIT_S + 10.0  # the coordinator answers before that
_COMMITTED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ABORTED: Final = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
_FENCED: Final = (Refusal.PRODUCER_FENCED, Refusal.INVALID_PRODUCER_ID_MAPPING)


class LibraryProducer:
    """The producer of one transactional id in this process.

    Its transactions take turns: `busy` is held from the beginning of one to its end.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.busy = threading.Lock()
        self.identity: ProducerIdentity | None = None  # None: not initialised, or fenced


class LibraryProducers:
    """All producers of the library in one store. Any thread may use it."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        offsets: CommittedOffsets,
        topic: Callable[[str], Topic[PartitionLog]],
        clock: Clock,
        *,
        may_be_lone: Callable[[str], bool],
    ) -> None:
        """`may_be_lone` says whether a marker in a topic may be a commit: see `lone_commit`."""
        self.coordinator = coordinator
        self.may_be_lone = may_be_lone
        self.offsets = offsets
        self.topic = topic
        self.clock = clock
        self._lock = threading.Lock()
        self._producers: dict[str, LibraryProducer] = {}

    def begin(self, transactional_id: str, timeout_ms: int) -> "Transaction":
        """A transaction of that id. It begins when it is entered."""
        _check_id(transactional_id)
        with self._lock:
            producer = self._producers.setdefault(
                transactional_id, LibraryProducer(transactional_id)
            )
        return Transaction(self, producer, timeout_ms)


class Transaction:
    """One transaction, for one thread. Use it as a context manager.

    At the end of the block it is committed, or aborted if the block raised. Nothing is visible to
    `read_committed` readers before. When the block is left, all of it is durable and visible.
    """

    def __init__(
        self, producers: LibraryProducers, producer: LibraryProducer, timeout_ms: int
    ) -> None:
        self._producers = producers
        self._producer = producer
        self._timeout_ms = timeout_ms
        self._is_open = False
        self._is_spoilt = False  # an append failed
        self._sequences: dict[PartitionLog, int] = {}
        self._ends: dict[PartitionLog, Offset] = {}
        self._leases: list[Lease] = []  # given and not released, after an interrupt perhaps
        self._hold = LockHold(producer.busy)
        self._is_lone = False  # it has one partition, and began as one that its marker decides
        self._lone_commit: LoneCommit | None = None

    @property
    def transactional_id(self) -> str:
        """The id that `Store.transaction` was called with."""
        return self._producer.transactional_id

    # --- in the transaction ------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
    ) -> Appended:
        """Append one record; return its place. It is durable when the transaction is.

        Without `partition`, the key chooses it, as in `Topic.append`.
        """
        found = self._topic(topic)
        number = found.choose_partition(key) if partition is None else partition
        if isinstance(headers, Mapping):
            headers = tuple(headers.items())
        if timestamp_ms is not None:
            timestamp_ms = timestamp_of(timestamp_ms)
        record = Record(value, key, headers, timestamp_ms)
        return self.append_many(topic, [record], partition=number)[0]

    def append_many(
        self,
        topic: str,
        records: Iterable[Record | tuple[bytes | None, bytes | None]],
        *,
        partition: int | None = None,
    ) -> AppendedMany:
        """Append `Record`s or (key, value) pairs, as `Topic.append_many`; return their places.

        They are durable when the transaction is. Many records in one call cost far less than a
        call for each.
        """
        found = self._topic(topic)
        items: list[Any] = records if isinstance(records, list) else list(records)
        is_log_append_time = found.config.is_log_append_time
        parts, chosen = found.split_by_partition(items, partition)
        ranges = [self._append(found.partition(number), part) for number, part in parts]
        return AppendedMany(items, ranges, chosen, is_log_append_time=is_log_append_time)

    def _topic(self, name: str) -> Topic[PartitionLog]:
        self._identity()
        if name in INTERNAL_TOPICS:
            raise TransactionError(self.transactional_id, f"{name} is an internal topic")
        return self._producers.topic(name)

    def _append(self, log: PartitionLog, records: list[Any]) -> AppendedRange:
        """Append records to one partition, with one place after the other."""
        identity = self._identity()
        now_ms = self._producers.clock.now_ms()
        sequence = self._sequences.get(log, 0)
        stamp = ProducerStamp(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        batches = _transactional_batches(records, log.config, now_ms, stamp)
        try:
            first = self._write(log, batches, identity)
        except BaseException:
            # Some records may be in the log, and their numbers are used.
            self._is_spoilt = True
            raise
        self._sequences[log] = advance_sequence(sequence, len(records))
        self._ends[log] = end = Offset(first + len(records))
        return AppendedRange(
            partition=log.partition, first_offset=first, next_offset=end, timestamp_ms=now_ms
        )

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | tuple[int, str]]
    ) -> None:
        """Commit offsets of a group with the transaction: {("orders", 0): 7}."""
        identity = self._identity()
        self._is_lone = False
        table = self._producers.offsets
        records = table.records_of(
            group,
            {
                place: value if isinstance(value, tuple) else (value, "")
                for place, value in offsets.items()
            },
        )
        if not records:
            return
        number = table.partition_of(group)
        lease = self._await(
            lambda done: self._producers.coordinator.begin_append(
                self.transactional_id,
                identity,
                {(CONSUMER_OFFSETS_TOPIC, number)},
                client_version=EPOCH_BUMPING_VERSION,
                done=done,
                gives_up=True,
            )
        ).lease
        assert lease is not None
        try:
            table.append_pending(
                number,
                records,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
            )
        except InvalidProducerEpochError as error:
            raise self._fenced() from error
        finally:
            lease.release()

    def _write(
        self, log: PartitionLog, batches: list[_Batch], identity: ProducerIdentity
    ) -> Offset:
        is_first = log not in self._ends
        if is_first:
            self._begin_in(log, identity)
        try:
            return log.batches.append_built(
                batches, transaction=TransactionRules(may_begin=is_first, starts_at_zero=True)
            )
        except (InvalidProducerEpochError, UnverifiedTransactionError) as error:
            raise self._fenced() from error
        finally:
            if is_first:
                self._release_leases()

    def _begin_in(self, log: PartitionLog, identity: ProducerIdentity) -> None:
        """Make the log part of the transaction; its lease is in `_leases`."""
        producers, place = self._producers, (log.topic, log.partition)
        self._is_lone = (
            not self._ends
            and producers.may_be_lone(log.topic)
            and producers.coordinator.begin_alone(
                self.transactional_id, identity, place, self._leases
            )
        )
        if not self._is_lone:
            self._await(
                lambda done: producers.coordinator.begin_append(
                    self.transactional_id,
                    identity,
                    {place},
                    client_version=EPOCH_BUMPING_VERSION,
                    done=done,
                    gives_up=True,
                )
            )

    # --- beginning and end -------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._is_open:
            raise TransactionError(self.transactional_id, "the transaction is open already")
        producer = self._producer
        hold = LockHold(producer.busy)
        try:
            if not hold.take(timeout_s=0):
                raise TransactionError(
                    self.transactional_id,
                    "another transaction of this id is open in this process; end it first, or use "
                    "another transactional id",
                )
            self._sequences.clear()
            self._ends.clear()
            if producer.identity is None:
                producer.identity = self._await(
                    lambda done: self._producers.coordinator.init_producer(
                        producer.transactional_id,
                        timeout_ms=self._timeout_ms,
                        expected=None,
                        done=done,
                        gives_up=True,
                    )
                ).identity
            self._is_spoilt = self._is_lone = False
            self._lone_commit = None
            self._hold = hold
            self._is_open = True
            return self
        except BaseException:
            self._is_open = False
            insist(hold.release)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._is_open:
                return
            if kind is None:
                self.commit()
                return
            try:
                self.abort()
            except TransactionError as failure:
                # The error of the block is the one to see; the transaction times out.
                if error is not None:
                    error.add_note(f"and the transaction could not be aborted: {failure}")
        finally:
            if self._is_open:  # an interrupt came first
                insist(self._forsake)

    def commit(self) -> None:
        """Commit now. Everything is durable and visible on return, or nothing is.

        After an append that failed, the transaction is aborted instead, and this raises.
        """
        self._check_open()
        try:
            if self._is_spoilt:
                raise TransactionError(
                    self.transactional_id,
                    "it was aborted, because an append failed; do all of it in a new transaction",
                )
            if self._is_lone and self._commit_alone():
                return
            for log, end in self._ends.items():
                log.promises.await_kept(end)
        except BaseException:
            if self._has_marker:
                insist(self._forsake)
            else:
                self.abort()
            raise
        self._end(is_commit=True)

    def _commit_alone(self) -> bool:
        """Commit with a marker and one sync: see `lone_commit`. False: nothing was done.

        If the sync fails, nobody knows what is on the disk: the next opening says.
        """
        [log] = self._ends
        identity = self._identity()
        commit = self._lone_commit = self._producers.coordinator.lone_commit(log)
        if not commit.write(self.transactional_id, identity, self._leases):
            self._release_leases()
            return False
        assert commit.end is not None
        log.promises.await_kept(commit.end)
        self._producer.identity = commit.after
        self._leave()
        return True

    def _forsake(self) -> None:
        """Leave it as it is: the next transaction of this id aborts what is open."""
        self._producer.identity = None
        if self._has_marker:
            for log in self._ends:
                log.syncing.request()  # others wait for what is behind the marker
        self._leave()

    @property
    def _has_marker(self) -> bool:
        """Whether the marker that commits it is in the log: it cannot be aborted any more."""
        return self._lone_commit is not None and self._lone_commit.end is not None

    def abort(self) -> None:
        """Abort now: no `read_committed` reader ever sees the records."""
        self._check_open()
        if self._producer.identity is None:
            self._leave()  # somebody else has aborted it
        else:
            self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        coordinator, producer = self._producers.coordinator, self._producer
        try:
            self._release_leases()
            identity = self._identity()
            current = coordinator.find(producer.transactional_id)
            if current is None or current.identity != identity:
                raise self._fenced()
            if not current.partitions:
                return  # nothing was done
            producer.identity = None  # unknown, until the coordinator has answered
            producer.identity = self._await_end(identity, is_commit=is_commit)
        finally:
            insist(self._leave)

    def _await_end(self, identity: ProducerIdentity, *, is_commit: bool) -> ProducerIdentity:
        """End the transaction and wait for its markers; what the producer uses from now on.

        If a disk fails after the decision, the markers are written later: the end stands.
        """
        coordinator = self._producers.coordinator
        try:
            return self._await(
                lambda done: coordinator.end(
                    self.transactional_id,
                    identity,
                    is_commit=is_commit,
                    client_version=EPOCH_BUMPING_VERSION,
                    done=done,
                    is_thorough=True,
                )
            ).identity
        except TransactionError as error:
            current = coordinator.find(self.transactional_id)
            decided = _COMMITTED if is_commit else _ABORTED
            if (
                isinstance(error, ProducerFencedError)
                or current is None
                or current.state not in decided
                or current.previous_producer_id != identity.producer_id
                or not current.bumps_epochs
            ):
                raise
            logger.warning("%s; it has ended, and is visible when its markers are written", error)
            return current.identity_after_end

    def _release_leases(self) -> None:
        """Of appends that an interrupt ended: the markers would wait for them for ever."""
        for lease in list(self._leases):
            lease.release()
            with suppress(ValueError):  # a late answer removes what it brings
                self._leases.remove(lease)

    def _leave(self) -> None:
        """Safe to repeat."""
        self._is_open = False
        if self._leases:
            self._release_leases()
        self._hold.release()

    # --- parts -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            raise TransactionError(self.transactional_id, "the transaction is not open")

    def _identity(self) -> ProducerIdentity:
        self._check_open()
        identity = self._producer.identity
        if identity is None:
            raise self._fenced()
        return identity

    def _fenced(self) -> TransactionError:
        """The transaction was aborted by a time-out or by another producer of the same id."""
        identity, self._producer.identity = self._producer.identity, None
        current = self._producers.coordinator.find(self.transactional_id)
        if (
            identity is not None
            and current is not None
            and current.producer_id == identity.producer_id
            and current.epoch == identity.epoch + 1
            and current.state in _ABORTED
            and current.bumps_epochs
        ):
            return TransactionError(
                self.transactional_id,
                f"it was aborted: it took longer than its timeout of {self._timeout_ms} ms",
            )
        return ProducerFencedError(self.transactional_id)

    def _await(self, ask: Callable[[Done], None]) -> Granted:
        """Wait for the coordinator. Raises what it refuses."""
        answered = threading.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Granted) and outcome.lease is not None:
                self._leases.append(outcome.lease)
                if not self._is_open:
                    self._release_leases()  # nobody waits any more
            outcomes.append(outcome)
            answered.set()

        ask(done)
        if not answered.wait(_PATIENCE_S):
            raise TransactionError(self.transactional_id, "the coordinator does not answer")
        outcome = outcomes[0]
        if isinstance(outcome, Granted):
            return outcome
        if outcome.reason in _FENCED:
            raise self._fenced()
        raise TransactionError(self.transactional_id, outcome.reason.value)


def _transactional_batches(
    records: list[Any], config: TopicConfig, now_ms: TimestampMs, stamp: ProducerStamp
) -> list[_Batch]:
    """The batches of some records, checked. Raises before anything is written."""
    check_records(records, config, now_ms)
    batches: list[_Batch] = []
    sequence, left = stamp.base_sequence, len(records)
    for built in build_batches(records, now_ms, batch_style(config), producer=stamp):
        batch = UnplacedBatch(
            built.size,
            built.record_count,
            built.max_timestamp,
            stamp.producer_id,
            stamp.producer_epoch,
            sequence,
            is_transactional=True,
        )
        left -= built.record_count
        # The buffer is used again for the next batch.
        batches.append((bytearray(built.data) if left else built.data, batch))
        sequence = advance_sequence(sequence, built.record_count)
    return batches


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise TransactionError(transactional_id, "the transactional id must not be empty")
    try:
        size = len(transactional_id.encode())
    except UnicodeEncodeError as error:
        raise TransactionError(transactional_id, "the transactional id is not text") from error
    if size > STRING_BYTES_MAX:
        raise TransactionError(
            transactional_id[:_ID_SHOWN],
            f"the transactional id has {size} bytes, the limit is {STRING_BYTES_MAX}",
        )
