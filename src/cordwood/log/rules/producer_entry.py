"""The state of one producer of a log, and the checks of its next batch.

Sequence numbers go from 0 to 2^31-1 and then start again; see `producer_state` for the rules.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from cordwood.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from cordwood.format.small_files.producer_snapshot import ProducerSnapshotEntry
from cordwood.quantities import (
    INT32_MAX,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerId,
    TimestampMs,
)

# A client has at most five requests in flight, so a retry is never older than five batches.
BATCHES_REMEMBERED: Final = 5
_SEQUENCES_RECALLED: Final = 100_000  # records in five batches, and more

NO_COORDINATOR_EPOCH: Final = -1


class BatchFacts(NamedTuple):
    """The facts about a data batch that concern its producer. A tuple: one per batch."""

    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs
    is_transactional: bool


class Duplicate(NamedTuple):
    """Where the first copy of a batch is stored."""

    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


class _StoredBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


class ProducerEntry:
    """The state of one producer. Owned by its `ProducerStates`.

    Invariant: every batch in `batches` was written in `epoch`.

    A snapshot has only the last batch. Then `is_whole` is False until the batches before it were
    looked for in the log: see `recall`.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_whole",
        "last_timestamp",
        "transaction_start",
    )

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_start: Offset | None = None
        self.is_whole = True
        self.batches: deque[_StoredBatch] = deque(maxlen=BATCHES_REMEMBERED)

    def add_batch(self, batch: BatchFacts) -> None:
        """Record a batch that was written; only the last five are kept."""
        self.enter_epoch(batch.producer_epoch)
        self.batches.append(_stored(batch))
        self.last_timestamp = batch.max_timestamp

    def enter_epoch(self, epoch: int) -> None:
        """Drop the batches of another epoch: sequences start again in each epoch."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
            self.is_whole = True

    def forgotten_before(self, batch: BatchFacts) -> Offset | None:
        """Where the log may still have a batch that comes before all that are remembered.

        None: it was never stored, or so many batches ago that no client sends it again.
        """
        if self.is_whole or batch.producer_epoch != self.epoch or not self.batches:
            return None
        oldest = self.batches[0]
        if oldest.base_sequence < 0 or batch.base_sequence < 0:
            return None
        distance = (oldest.base_sequence - batch.last_sequence) & INT32_MAX
        return oldest.first_offset if 0 < distance <= _SEQUENCES_RECALLED else None

    def recall(self, older: Sequence[BatchFacts]) -> None:
        """Remember batches that were found in the log before the oldest one that is known.

        They must lead up to it without a gap. A gap means that the producer was forgotten there.
        """
        self.is_whole = True
        for batch in reversed(older):
            oldest = self.batches[0]
            if (
                len(self.batches) == BATCHES_REMEMBERED
                or batch.producer_epoch != self.epoch
                or sequence_after(batch.last_sequence) != oldest.base_sequence
            ):
                return
            self.batches.appendleft(_stored(batch))

    def find_duplicate(self, batch: BatchFacts) -> Duplicate | None:
        """Where a batch with exactly these sequences was stored, if it is among the last ones."""
        if batch.producer_epoch != self.epoch:
            return None
        base_sequence, last_sequence = batch.base_sequence, batch.last_sequence
        for stored in self.batches:
            if stored.base_sequence == base_sequence and stored.last_sequence == last_sequence:
                return Duplicate(stored.first_offset, stored.last_offset, stored.timestamp)
        return None

    def check_epoch(self, producer_id: ProducerId, epoch: int) -> None:
        """Refuse a producer that a newer one has fenced."""
        if epoch < self.epoch:
            raise InvalidProducerEpochError(producer_id, current=self.epoch, got=epoch)

    def check_sequence(self, batch: BatchFacts) -> None:
        """Refuse a batch that does not begin where the last one ended."""
        if self.epoch == NO_PRODUCER_EPOCH:
            return
        expected = 0
        if batch.producer_epoch == self.epoch and self.batches:
            expected = sequence_after(self.batches[-1].last_sequence)
        if batch.base_sequence != expected:
            raise OutOfOrderSequenceError(
                batch.producer_id, expected=expected, got=batch.base_sequence
            )

    def is_expired(self, now_ms: TimestampMs, expiration_ms: int) -> bool:
        """Whether the producer was silent for so long that it may be dropped."""
        # An open transaction keeps its producer: without it the transaction would stay open
        # forever, and read-committed consumers would wait for it.
        return self.transaction_start is None and now_ms - self.last_timestamp >= expiration_ms

    def to_snapshot(self, producer_id: ProducerId) -> ProducerSnapshotEntry:
        """The state that survives a restart: everything except the older batches."""
        newest = self.batches[-1] if self.batches else None
        start = self.transaction_start
        return ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            last_sequence=NO_SEQUENCE if newest is None else newest.last_sequence,
            last_offset=NO_OFFSET if newest is None else newest.last_offset,
            offset_delta=0 if newest is None else newest.last_offset - newest.first_offset,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if start is None else start,
        )

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> "ProducerEntry":
        """The producer's state at the time of the snapshot."""
        producer = cls()
        producer.is_whole = False
        producer.epoch = entry.producer_epoch
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.last_timestamp = entry.timestamp
        if entry.current_txn_first_offset >= 0:
            producer.transaction_start = entry.current_txn_first_offset
        if entry.last_offset >= 0:
            # A batch of a coordinator has no sequence numbers.
            last = entry.last_sequence
            producer.batches.append(
                _StoredBatch(
                    base_sequence=last if last < 0 else sequence_before(last, entry.offset_delta),
                    last_sequence=last,
                    first_offset=Offset(entry.last_offset - entry.offset_delta),
                    last_offset=entry.last_offset,
                    timestamp=entry.timestamp,
                )
            )
        return producer


def _stored(batch: BatchFacts) -> _StoredBatch:
    return _StoredBatch(
        batch.base_sequence,
        batch.last_sequence,
        batch.first_offset,
        batch.last_offset,
        batch.max_timestamp,
    )


def sequence_after(sequence: int) -> int:
    """The next sequence number; 0 follows 2^31-1."""
    return 0 if sequence == INT32_MAX else sequence + 1


def sequence_before(sequence: int, steps: int) -> int:
    """The sequence number `steps` earlier; 2^31-1 precedes 0."""
    return sequence - steps if sequence >= steps else sequence - steps + INT32_MAX + 1
