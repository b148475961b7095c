"""Batches of several clients that are appended together, in one write.

Each was checked when it came (`append_checks.BatchGate`) and copied behind the others; a large one
makes a group of its own and stays where it is. A batch that is refused or was stored before is
left out; the rest takes consecutive offsets.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

from cordwood.format.batch_header import advance_sequence
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.rules.producer_entry import BatchFacts
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.quantities import NO_PRODUCER_ID, Offset

_NO_RULES: Final[Mapping[int, TransactionRules]] = MappingProxyType({})


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

    Invariant: the batches of one producer follow each other in sequence, and all or none of them
    are part of a transaction. So all of them may be written if the first one may.

    is_numbered   whether any batch is from an idempotent producer
    rules         of producers whose batches are part of a transaction
    """

    __slots__ = ("_next_of", "batches", "data", "is_numbered", "rules")

    def __init__(self) -> None:
        self.data: bytearray | memoryview = bytearray()
        self.batches: list[UnplacedBatch] = []
        self.is_numbered = False
        # Producer -> epoch, next sequence, whether it is in a transaction.
        self._next_of: dict[int, tuple[int, int, bool]] = {}
        self.rules: Mapping[int, TransactionRules] = _NO_RULES

    def rule(self, producer_id: int, rules: TransactionRules) -> None:
        """Check the batches of a producer by `rules`, unless it has some already."""
        if producer_id not in self.rules:
            self.rules = {**self.rules, producer_id: rules}

    @classmethod
    def alone(cls, data: memoryview, batch: UnplacedBatch) -> Self:
        """A group of one batch, whose bytes stay where they lie."""
        assert not data.readonly
        group = cls()
        if batch.producer_id != NO_PRODUCER_ID:
            group._note_producer(batch)
        group.batches.append(batch)
        group.data = data
        return group

    def __len__(self) -> int:
        return len(self.batches)

    def has_room_for(self, batch: UnplacedBatch) -> bool:
        """Whether its producer is not in the group yet, or the batch continues its sequence."""
        expected = self._next_of.get(batch.producer_id)
        return expected is None or expected == batch[4:]

    def add(self, data: memoryview, batch: UnplacedBatch) -> None:
        joined = self.data
        assert isinstance(joined, bytearray)
        if batch.producer_id != NO_PRODUCER_ID:
            self._note_producer(batch)
        self.batches.append(batch)
        joined += data

    def add_unnumbered(self, data: bytearray, batches: list[UnplacedBatch]) -> None:
        """Add batches without a producer. The group may keep `data`, which is theirs in a row."""
        joined = self.data
        assert isinstance(joined, bytearray)
        self.batches += batches
        if joined:
            joined += data
        else:
            self.data = data

    def add_numbered(self, data: bytearray, batches: list[UnplacedBatch]) -> None:
        """As `add_unnumbered`, for batches of which some have a producer, each another one."""
        for batch in batches:
            if batch.producer_id != NO_PRODUCER_ID:
                self._note_producer(batch)
        self.add_unnumbered(data, batches)

    def _note_producer(self, batch: UnplacedBatch) -> None:
        following = advance_sequence(batch.base_sequence, batch.record_count)
        self.is_numbered = True
        self._next_of[batch.producer_id] = (
            batch.producer_epoch,
            following,
            batch.is_transactional,
        )
