"""Batches of several clients that are appended together, in one write.

Each was checked when it came (`append_checks.BatchGate`) and copied behind the others; a large one
makes a group of its own and stays where it is. A batch that is refused or was stored before is
left out; the rest takes consecutive offsets.
"""

from typing import Self

from cordwood.format.batch_header import advance_sequence
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.rules.producer_entry import BatchFacts
from cordwood.quantities import NO_PRODUCER_ID, Offset


def producer_facts(batch: UnplacedBatch, base_offset: Offset) -> BatchFacts:
    """What the state of a batch's producer must know of it when it is at `base_offset`."""
    last = batch.record_count - 1
    return BatchFacts(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        advance_sequence(batch.base_sequence, last),
        base_offset,
        Offset(base_offset + last),
        batch.max_timestamp,
        batch.is_transactional,
    )


class BatchGroup:
    """Batches in the order they came, and their bytes one behind the other.

    Invariant: the batches of one producer follow each other in sequence, so all of them may be
    written if the first one may.
    """

    __slots__ = ("_next_of", "batches", "data")

    def __init__(self) -> None:
        self.data: bytearray | memoryview = bytearray()
        self.batches: list[UnplacedBatch] = []
        self._next_of: dict[int, tuple[int, int]] = {}  # producer -> epoch, next sequence

    @classmethod
    def alone(cls, data: memoryview, batch: UnplacedBatch) -> Self:
        """A group of one batch, whose bytes stay where they lie."""
        assert not data.readonly
        group = cls()
        group._note(batch)
        group.data = data
        return group

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def is_numbered(self) -> bool:
        """Whether any batch is from an idempotent producer."""
        return bool(self._next_of)

    def has_room_for(self, batch: UnplacedBatch) -> bool:
        """Whether its producer is not in the group yet, or the batch continues its sequence."""
        expected = self._next_of.get(batch.producer_id)
        return expected is None or expected == (batch.producer_epoch, batch.base_sequence)

    def add(self, data: memoryview, batch: UnplacedBatch) -> None:
        joined = self.data
        assert isinstance(joined, bytearray)
        self._note(batch)
        joined += data

    def _note(self, batch: UnplacedBatch) -> None:
        if batch.producer_id != NO_PRODUCER_ID:
            following = advance_sequence(batch.base_sequence, batch.record_count)
            self._next_of[batch.producer_id] = (batch.producer_epoch, following)
        self.batches.append(batch)
