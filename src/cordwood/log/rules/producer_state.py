"""What a log remembers of each producer, so that a retried batch is stored once.

A producer numbers its records from 0 in each of its epochs. Per producer the log keeps the
epoch, the last five batches and the transaction that is open, and holds every batch to:

    duplicate    exactly the sequences of one of the last five batches in the same epoch: nothing
                 is stored and the answer is where the first copy went
    epoch        never goes back; a higher one starts again at sequence 0
    sequence     the one after the last stored, 2^31-1 being followed by 0; a producer that is
                 not known (new, or expired) may start anywhere
    transaction  while one is open every batch of its producer belongs to it

All of it is memory only. The state at an offset is saved as a producer snapshot, which holds
the newest batch of each producer; replaying the batches behind the snapshot gives the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from cordwood.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.producer_snapshot import ProducerSnapshotEntry
from cordwood.log.rules.producer_entry import BatchFacts, Duplicate, ProducerEntry
from cordwood.quantities import NO_PRODUCER_ID, Offset, ProducerId, TimestampMs

__all__ = [
    "PRODUCER_EXPIRATION_MS",
    "AppendOrigin",
    "BatchFacts",
    "CompletedTransaction",
    "Duplicate",
    "MarkerFacts",
    "ProducerStates",
    "plan_stray_snapshots",
]

PRODUCER_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000

# The coordinator itself ends a transaction that outlives its timeout; five minutes more allow
# for the markers to arrive before anyone is alarmed.
_LATE_TRANSACTION_GRACE_MS: Final = 5 * 60 * 1000
_EPOCH_BUMPING_VERSION: Final = 2
_START: Final = Offset(0)


class AppendOrigin(Enum):
    """Who wrote a batch, and so how much of it is still to be checked."""

    CLIENT = auto()  # everything
    COORDINATOR = auto()  # its batches carry no sequence numbers: epoch and transaction only
    REPLICATION = auto()  # was checked when first written; also a log replayed after a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFacts:
    """The control record that ends a transaction, committed or aborted."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    offset: Offset
    timestamp: TimestampMs
    is_abort: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedTransaction:
    """A transaction with records in this log. `last_offset` is that of its marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class ProducerStates:
    """The producers of one log. Owned by the log and called under its lock.

    For each batch with a producer id, `check` before the write and `update` after it; for each
    transaction marker `check_marker`, `append_marker`, and `complete` once the transaction
    index has the entry. `advance_to` follows batches without a producer.

    Invariant: the state is that of exactly the batches below `map_end_offset`.
    """

    def __init__(self, *, end_offset: Offset = _START) -> None:
        self.map_end_offset = end_offset
        self.last_snapshot_offset = end_offset
        self._producers: dict[ProducerId, ProducerEntry] = {}
        # First offset -> producer, in the order of the offsets: transactions begin at the end
        # of the log, and a dictionary keeps the order of insertion.
        self._ongoing: dict[Offset, ProducerId] = {}
        # First offset -> offset of the marker, while that may be above the high watermark.
        self._completed: dict[Offset, Offset] = {}

    @property
    def producer_count(self) -> int:
        """How many producers are remembered."""
        return len(self._producers)

    def largest_producer_id(self, *, below: int) -> ProducerId:
        """The largest id below `below` that is remembered; NO_PRODUCER_ID without any."""
        return max((id_ for id_ in self._producers if id_ < below), default=NO_PRODUCER_ID)

    # --- data batches ----------------------------------------------------------------------

    def check(
        self,
        batch: BatchFacts,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        unknown_starts_at_zero: bool = False,
    ) -> Duplicate | None:
        """Hold a batch to the rules above; changes nothing. None: write it, then `update`.

        `unknown_starts_at_zero` is the rule of transactions version 2: there a first sequence
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
            return None
        if is_client and (duplicate := producer.find_duplicate(batch)) is not None:
            return duplicate
        producer.check_epoch(batch.producer_id, batch.producer_epoch)
        if is_client:
            producer.check_sequence(batch)
        if producer.transaction_start is not None and not batch.is_transactional:
            raise InvalidTransactionStateError(
                batch.producer_id,
                "a batch outside a transaction while the one "
                f"begun at offset {producer.transaction_start} is open",
            )
        return None

    def update(self, batch: BatchFacts) -> None:
        """Remember a batch that was written. Takes any batch: a replayed log is not refused."""
        assert batch.producer_id >= 0, batch
        producer = self._producer(batch.producer_id)
        producer.add_batch(batch)
        if batch.is_transactional and producer.transaction_start is None:
            producer.transaction_start = batch.first_offset
            self._ongoing[batch.first_offset] = batch.producer_id
        self.map_end_offset = Offset(batch.last_offset + 1)

    def advance_to(self, end_offset: Offset) -> None:
        """Everything below `end_offset` is accounted for, also batches of no producer."""
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
        marker with the epoch already known is a retry: harmless when nothing is open, and the
        marker of an earlier transaction, which must not end this one, when something is.
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
        """Remember a marker that was written; None when its transaction left nothing here.

        The transaction still counts as open until `complete`: should writing the transaction
        index fail in between, no reader may pass it.
        """
        producer = self._producer(marker.producer_id)
        first_offset = producer.transaction_start
        producer.enter_epoch(marker.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        producer.transaction_start = None
        self.map_end_offset = Offset(marker.offset + 1)
        if first_offset is None:
            return None
        return CompletedTransaction(
            producer_id=marker.producer_id,
            first_offset=first_offset,
            last_offset=marker.offset,
            is_aborted=marker.is_abort,
        )

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """What the last stable offset is once `completed` is complete; for the index entry."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return Offset(completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is decided, and in the transaction index if it was aborted."""
        assert completed.first_offset in self._ongoing, completed
        del self._ongoing[completed.first_offset]
        self._completed[completed.first_offset] = completed.last_offset

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """First offset of a transaction that is open or whose marker no reader may see yet.

        The high watermark never goes back, so what is complete below it is forgotten here.
        """
        if self._completed:
            self._forget_completed_below(high_watermark)
        first_open = next(iter(self._ongoing), None)
        if not self._completed:
            return first_open
        first_completed = min(self._completed)
        return first_completed if first_open is None else min(first_open, first_completed)

    def has_open_transaction(self, producer_id: ProducerId) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start is not None

    def has_late_transaction(self, now_ms: TimestampMs, *, timeout_ms_max: int) -> bool:
        """True when the oldest open transaction should have been ended long ago."""
        oldest = next(iter(self._ongoing.values()), None)
        producer = None if oldest is None else self._producers.get(oldest)
        if producer is None or producer.last_timestamp <= 0:
            return False
        return now_ms - producer.last_timestamp > timeout_ms_max + _LATE_TRANSACTION_GRACE_MS

    def retreat_to(self, end_offset: Offset) -> None:
        """Batches from `end_offset` on were taken back; none of them had a producer."""
        self.map_end_offset = min(self.map_end_offset, end_offset)
        self.last_snapshot_offset = min(self.last_snapshot_offset, Offset(end_offset - 1))

    # --- forgetting, saving, loading ---------------------------------------------------------

    def expire(self, now_ms: TimestampMs, *, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        """Forget producers whose last batch is that old; return how many.

        The age is by the batch's own timestamp, so that a restart comes to the same answer.
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
        """What compaction must not take from the producers that are still remembered.

        The last offsets of their newest data batches, which tell the sequence to go on with;
        and, of producers without any, the epoch that their last transaction's end tells.
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
        """Forget everything: the log now begins, empty, at `end_offset`."""
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self.map_end_offset = end_offset
        self.last_snapshot_offset = end_offset

    def move_log_start(self, log_start: Offset) -> None:
        """Records below `log_start` are gone. Their producers are remembered until they expire."""
        self._forget_completed_below(log_start)
        self.map_end_offset = max(self.map_end_offset, log_start)

    @property
    def needs_snapshot(self) -> bool:
        """False when a snapshot taken now would be the one already on disk."""
        return self.map_end_offset > self.last_snapshot_offset

    def to_snapshot(self) -> list[ProducerSnapshotEntry]:
        """The state at `map_end_offset`, one entry for each producer, newest batch only."""
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
        """The state a snapshot at `end_offset` holds, without what has expired since.

        Transactions open at the time are open again. Replay the batches from `end_offset` on
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
        return producer

    def _forget_completed_below(self, offset: Offset) -> None:
        self._completed = {
            first: marker for first, marker in self._completed.items() if marker >= offset
        }


def plan_stray_snapshots(snapshots: Iterable[Offset], segments: Iterable[Offset]) -> list[Offset]:
    """The snapshots to delete at start, those that belong to no segment.

    `segments` are base offsets. The newest stray is kept when it lies past all of them: it is
    the one a clean shutdown leaves at the end of the log.
    """
    bases = set(segments)
    strays = sorted(set(snapshots) - bases)
    if strays and (not bases or strays[-1] > max(bases)):
        strays.pop()
    return strays
