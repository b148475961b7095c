"""The state of each producer of a log, so that a retried batch is stored only once.

A producer numbers its records from 0 in each of its epochs. For each producer the log keeps the
epoch, the last five batches and the open transaction, and checks every batch against these rules:

    duplicate    it has exactly the sequences of one of the last five batches in the same epoch:
                 nothing is stored, and the result is the place of the first copy
    epoch        never goes back; a higher one starts again at sequence 0
    sequence     follows the last stored one; 0 follows 2^31-1; an unknown producer (new, or
                 expired) may start anywhere, but not behind a batch that waits to be allowed
    transaction  while one is open, every batch of its producer belongs to it

The state is only in memory. The state at an offset is saved as a producer snapshot, which holds
the newest batch of each producer; replaying the batches after the snapshot restores the rest.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

from cordwood.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.small_files.producer_snapshot import ProducerSnapshotEntry
from cordwood.log.rules.producer_entry import (
    NO_COORDINATOR_EPOCH,
    BatchFacts,
    Duplicate,
    ProducerEntry,
)
from cordwood.quantities import (
    INT16_MAX,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Offset,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass

__all__ = [
    "PRODUCER_EXPIRATION_MS",
    "AppendOrigin",
    "BatchFacts",
    "CompletedTransaction",
    "Duplicate",
    "MarkerFacts",
    "ProducerStates",
    "VerificationGuard",
    "plan_stray_snapshots",
]

PRODUCER_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000

# The coordinator ends a transaction that exceeds its timeout; five more minutes let the markers
# arrive before the transaction is reported as late.
_LATE_TRANSACTION_GRACE_MS: Final = 5 * 60 * 1000
_EPOCH_BUMPING_VERSION: Final = 2
_START: Final = Offset(0)
_AWAITED_MAX: Final = 1000  # producers; a batch of each waits for the coordinator, or did
_GUARDS_MAX: Final = 10_000  # likewise, in a cluster


class AppendOrigin(Enum):
    """Who wrote a batch, which decides what must be checked."""

    CLIENT = auto()  # everything
    COORDINATOR = auto()  # its batches have no sequence numbers: epoch and transaction only
    REPLICATION = auto()  # nothing: checked when first written; also for replay at a start


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFacts:
    """The control record that ends a transaction, committed or aborted.

    `coordinator_epoch` is NO_COORDINATOR_EPOCH if compaction removed it.
    """

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    offset: Offset
    timestamp: TimestampMs
    is_abort: bool


class VerificationGuard:
    """A producer asks a coordinator on another broker whether it may begin a transaction here.

    The answer counts only while the log still has this guard, by identity. A marker that comes in
    between takes it away: then the answer is about a transaction that has ended (KIP-890). In
    version 2 a marker with the epoch of the guard ends the transaction before, and leaves it.
    """

    __slots__ = ("bumps_epochs", "epoch")

    def __init__(self, epoch: int, *, bumps_epochs: bool) -> None:
        self.epoch = epoch
        self.bumps_epochs = bumps_epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedTransaction:
    """A finished transaction with records in this log. `last_offset` is that of its marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class ProducerStates:
    """The producers of one log. Owned by the log and called under its lock.

    For each batch with a producer id, call `check` before the write and `update` after it. For
    each transaction marker, call `check_marker`, `append_marker`, and `complete` once the
    transaction index has the entry. Call `advance_to` after batches without a producer.

    Invariant: the state is that of exactly the batches below `map_end_offset`.
    """

    def __init__(self, *, end_offset: Offset = _START) -> None:
        self.map_end_offset = end_offset
        self.last_snapshot_offset = end_offset
        self._producers: dict[ProducerId, ProducerEntry] = {}
        # First offset -> producer, ordered by offset: transactions begin at the end of the log,
        # and a dictionary keeps the order of insertion.
        self._ongoing: dict[Offset, ProducerId] = {}
        # First offset -> offset of the marker, while the marker may be above the high watermark.
        self._completed: dict[Offset, Offset] = {}
        # Of unknown producers: epoch, and the lowest sequence that asked to begin a transaction.
        self._awaited: dict[ProducerId, tuple[int, int]] = {}
        self._guards: dict[ProducerId, VerificationGuard] = {}

    @property
    def producer_count(self) -> int:
        """The number of known producers."""
        return len(self._producers)

    def is_known(self, producer_id: ProducerId) -> bool:
        return producer_id in self._producers

    def largest_producer_id(self, *, below: int) -> ProducerId:
        """The largest known id below `below`; NO_PRODUCER_ID if there is none."""
        return max((id_ for id_ in self._producers if id_ < below), default=NO_PRODUCER_ID)

    # --- data batches ----------------------------------------------------------------------

    def check(
        self,
        batch: BatchFacts,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        unknown_starts_at_zero: bool = False,
    ) -> Duplicate | None:
        """Check a batch against the rules above; changes nothing. None: write it, then `update`.

        `unknown_starts_at_zero` is the rule of transactions version 2, where a first sequence
        other than 0 means that an earlier batch was lost.
        """
        if origin is AppendOrigin.REPLICATION:
            return None
        is_client = origin is AppendOrigin.CLIENT
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            if is_client and unknown_starts_at_zero and batch.base_sequence != 0:
                raise OutOfOrderSequenceError(
                    batch.producer_id, expected=0, got=batch.base_sequence
                )
            if is_client:
                self._check_awaited(batch)
            return None
        if is_client and (duplicate := producer.find_duplicate(batch)) is not None:
            return duplicate
        producer.check_epoch(batch.producer_id, batch.producer_epoch)
        if is_client:
            producer.check_sequence(batch)
        if producer.transaction_start is not None and not batch.is_transactional:
            raise InvalidTransactionStateError(
                batch.producer_id,
                "a batch outside of the transaction that is open since "
                f"offset {producer.transaction_start}",
            )
        return None

    def await_sequence(self, producer_id: ProducerId, epoch: int, sequence: int) -> None:
        """A batch asks the coordinator whether it may begin a transaction here.

        If it has to be sent again, the batches behind it may ask first, and be allowed. Were one
        of them written, an unknown producer would begin with it, and the first one would be out
        of sequence for ever. Of a known producer the next sequence is known.
        """
        if producer_id in self._producers:
            return
        before = self._awaited.pop(producer_id, None)
        if before is not None and before[0] == epoch:
            sequence = min(sequence, before[1])
        self._awaited[producer_id] = (epoch, sequence)
        if len(self._awaited) > _AWAITED_MAX:
            del self._awaited[next(iter(self._awaited))]

    def _check_awaited(self, batch: BatchFacts) -> None:
        epoch, sequence = self._awaited.get(batch.producer_id, (None, 0))
        if epoch == batch.producer_epoch and batch.base_sequence > sequence:
            raise OutOfOrderSequenceError(
                batch.producer_id, expected=sequence, got=batch.base_sequence
            )

    def guard(
        self, producer_id: ProducerId, epoch: int, *, bumps_epochs: bool
    ) -> VerificationGuard:
        """The guard of a producer that is about to ask a coordinator. See `VerificationGuard`."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.epoch != epoch or guard.bumps_epochs is not bumps_epochs:
            self._guards.pop(producer_id, None)
            guard = self._guards[producer_id] = VerificationGuard(epoch, bumps_epochs=bumps_epochs)
            if len(self._guards) > _GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
        return guard

    def is_guarded(self, producer_id: ProducerId, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer came since it got the guard."""
        return self._guards.get(producer_id) is guard

    def forgotten_before(self, batch: BatchFacts) -> Offset | None:
        """Where the log may still have a batch that `check` refused. See `ProducerEntry`."""
        producer = self._producers.get(batch.producer_id)
        return None if producer is None else producer.forgotten_before(batch)

    def recall(self, producer_id: ProducerId, older: Sequence[BatchFacts]) -> None:
        """Remember batches of a producer that were found in the log."""
        self._producers[producer_id].recall(older)

    def update(self, batch: BatchFacts) -> None:
        """Record a batch that was written. Accepts any batch: a replayed log is never refused."""
        assert batch.producer_id >= 0, batch
        producer = self._producer(batch.producer_id)
        producer.add_batch(batch)
        if batch.is_transactional and producer.transaction_start is None:
            producer.transaction_start = batch.first_offset
            self._ongoing[batch.first_offset] = batch.producer_id
            self._guards.pop(batch.producer_id, None)
        self.map_end_offset = Offset(batch.last_offset + 1)

    def advance_to(self, end_offset: Offset) -> None:
        """The state now covers everything below `end_offset`, also batches without a producer."""
        assert end_offset >= self.map_end_offset, (end_offset, self.map_end_offset)
        self.map_end_offset = end_offset

    # --- transactions ----------------------------------------------------------------------

    def check_marker(
        self,
        marker: MarkerFacts,
        *,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        transaction_version: int = 1,
    ) -> None:
        """Refuse the marker of a fenced producer or of a coordinator that was replaced.

        In transactions version 2 every end of a transaction raises the producer's epoch, so a
        marker with the known epoch is a retry. Without an open transaction it is harmless. With
        one, it belongs to an earlier transaction and must not end the open one.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is None or origin is AppendOrigin.REPLICATION:
            return
        producer.check_epoch(marker.producer_id, marker.producer_epoch)
        if (
            transaction_version >= _EPOCH_BUMPING_VERSION
            and marker.producer_epoch == producer.epoch
            and producer.transaction_start is not None
        ):
            raise InvalidProducerEpochError(
                marker.producer_id, current=producer.epoch + 1, got=marker.producer_epoch
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                marker.producer_id,
                current=producer.coordinator_epoch,
                got=marker.coordinator_epoch,
            )

    def append_marker(self, marker: MarkerFacts) -> CompletedTransaction | None:
        """Record a marker that was written; None if its transaction has no records here.

        The transaction counts as open until `complete`: if writing the transaction index fails in
        between, no reader may pass it.
        """
        completed = self.completed_by(marker)
        producer = self._producer(marker.producer_id)
        producer.enter_epoch(marker.producer_epoch)
        if marker.coordinator_epoch != NO_COORDINATOR_EPOCH:
            producer.coordinator_epoch = marker.coordinator_epoch
        if marker.timestamp != NO_TIMESTAMP:
            producer.last_timestamp = marker.timestamp
        producer.transaction_start = None
        guard = self._guards.get(marker.producer_id)
        if guard is not None and not (guard.bumps_epochs and guard.epoch == marker.producer_epoch):
            del self._guards[marker.producer_id]
        self.map_end_offset = Offset(marker.offset + 1)
        return completed

    def completed_by(self, marker: MarkerFacts) -> CompletedTransaction | None:
        """The transaction that a marker will end; None if it has no records here."""
        producer = self._producers.get(marker.producer_id)
        if producer is None or producer.transaction_start is None:
            return None
        return CompletedTransaction(
            producer_id=marker.producer_id,
            first_offset=producer.transaction_start,
            last_offset=marker.offset,
            is_aborted=marker.is_abort,
        )

    def commit(self, marker: MarkerFacts, completed: CompletedTransaction | None) -> None:
        """Record the marker of a commit that was written, and that it ended `completed`.

        Safe to repeat: an interrupt may come anywhere.
        """
        self.append_marker(marker)
        if completed is not None and completed.first_offset in self._ongoing:
            self.complete(completed)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset once `completed` is complete; for the index entry."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is decided, and in the transaction index if it was aborted."""
        assert completed.first_offset in self._ongoing, completed
        # In this order: a reader that takes no lock must find it in one of the two.
        self._completed[completed.first_offset] = completed.last_offset
        del self._ongoing[completed.first_offset]

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """First offset of a transaction that is open or whose marker no reader may see yet.

        The high watermark never goes back, so transactions completed below it are dropped here.
        """
        if self._completed:
            self._forget_completed_below(high_watermark)
        first_open = next(iter(self._ongoing), None)
        if not self._completed:
            return first_open
        first_completed = min(self._completed)
        return first_completed if first_open is None else min(first_open, first_completed)

    def abort_markers(self) -> list[MarkerFacts]:
        """The markers that would abort all open transactions, in the order of their starts.

        As at a timeout, a marker has a higher epoch than its producer: what the producer still
        sends belongs to a transaction that lost its beginning, and is refused.
        """
        markers: list[MarkerFacts] = []
        for offset, producer_id in self._ongoing.items():
            producer = self._producers[producer_id]
            markers.append(
                MarkerFacts(
                    producer_id=producer_id,
                    producer_epoch=min(producer.epoch + 1, INT16_MAX),
                    coordinator_epoch=max(producer.coordinator_epoch, 0),
                    offset=offset,
                    timestamp=producer.last_timestamp,
                    is_abort=True,
                )
            )
        return markers

    @property
    def has_undecided(self) -> bool:
        """Whether `first_unstable_offset` may be an offset. Needs no lock."""
        return bool(self._ongoing or self._completed)

    def has_open_transaction(self, producer_id: ProducerId) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start is not None

    def is_in_transaction(self, producer_id: ProducerId, epoch: int) -> bool:
        """Whether the producer has an open transaction here, which it began in this epoch."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_start is not None
            and producer.epoch == epoch
        )

    def open_transactions(self) -> list[ProducerSnapshotEntry]:
        """The producers that have an open transaction, in the order of their first offsets."""
        return [self._producers[id_].to_snapshot(id_) for id_ in self._ongoing.values()]

    def has_late_transaction(self, now_ms: TimestampMs, *, timeout_ms_max: int) -> bool:
        """Whether the oldest open transaction should have been ended long ago."""
        oldest = next(iter(self._ongoing.values()), None)
        producer = None if oldest is None else self._producers.get(oldest)
        if producer is None or producer.last_timestamp <= 0:
            return False
        return now_ms - producer.last_timestamp > timeout_ms_max + _LATE_TRANSACTION_GRACE_MS

    def retreat_to(self, end_offset: Offset) -> None:
        """Batches from `end_offset` on were removed; none of them had a producer."""
        self.map_end_offset = min(self.map_end_offset, end_offset)
        self.last_snapshot_offset = min(self.last_snapshot_offset, Offset(end_offset - 1))

    # --- expiring, saving, loading -----------------------------------------------------------

    def expire(self, now_ms: TimestampMs, *, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        """Drop producers whose last batch is that old; return how many.

        The age counts from the batch's own timestamp, so that a restart has the same result.
        """
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.is_expired(now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def last_batches(self, now_ms: TimestampMs) -> tuple[frozenset[int], dict[int, int]]:
        """What compaction must keep for the known producers.

        These are the last offsets of their newest data batches, which hold the last sequence; and,
        for producers without such a batch, the epoch in the marker of their last transaction.
        """
        offsets: set[int] = set()
        epochs: dict[int, int] = {}
        for producer_id, producer in self._producers.items():
            if producer.is_expired(now_ms, PRODUCER_EXPIRATION_MS):
                continue
            if producer.batches:
                offsets.add(producer.batches[-1].last_offset)
            else:
                epochs[producer_id] = producer.epoch
        return frozenset(offsets), epochs

    def reset(self, end_offset: Offset) -> None:
        """Drop all state: the log is now empty and begins at `end_offset`."""
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._awaited.clear()
        self._guards.clear()
        self.map_end_offset = end_offset
        self.last_snapshot_offset = end_offset

    def move_log_start(self, log_start: Offset) -> None:
        """Records below `log_start` were deleted. Their producers stay known until they expire."""
        self._forget_completed_below(log_start)
        self.map_end_offset = max(self.map_end_offset, log_start)

    @property
    def needs_snapshot(self) -> bool:
        """False if a snapshot taken now would equal the one on disk."""
        return self.map_end_offset > self.last_snapshot_offset

    def to_snapshot(self) -> list[ProducerSnapshotEntry]:
        """The state at `map_end_offset`: one entry per producer, with its newest batch only."""
        return [
            producer.to_snapshot(producer_id) for producer_id, producer in self._producers.items()
        ]

    @classmethod
    def from_snapshot(
        cls,
        entries: Iterable[ProducerSnapshotEntry],
        *,
        end_offset: Offset,
        now_ms: TimestampMs,
        expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> "ProducerStates":
        """The state of a snapshot at `end_offset`, without producers that have expired since.

        Transactions that were open then are open again. Replay the batches from `end_offset` on
        with `update` and `append_marker`.
        """
        states = cls(end_offset=end_offset)
        for entry in entries:
            producer = ProducerEntry.from_snapshot(entry)
            if not producer.is_expired(now_ms, expiration_ms):
                states._producers[entry.producer_id] = producer
        open_transactions = sorted(
            (producer.transaction_start, producer_id)
            for producer_id, producer in states._producers.items()
            if producer.transaction_start is not None
        )
        states._ongoing.update(open_transactions)
        return states

    def _producer(self, producer_id: ProducerId) -> ProducerEntry:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerEntry()
            self._awaited.pop(producer_id, None)
        return producer

    def _forget_completed_below(self, offset: Offset) -> None:
        self._completed = {
            first: marker for first, marker in self._completed.items() if marker >= offset
        }


def plan_stray_snapshots(snapshots: Iterable[Offset], segments: Iterable[Offset]) -> list[Offset]:
    """The snapshots to delete at start: those that belong to no segment.

    `segments` are base offsets. The newest stray is kept if it is after all of them: a clean
    shutdown leaves it at the end of the log.
    """
    bases = set(segments)
    strays = sorted(set(snapshots) - bases)
    if strays and (not bases or strays[-1] > max(bases)):
        strays.pop()
    return strays
