"""Batches of several clients that go into a log together, in one write.

Each was looked over when it came (`append_checks.BatchGate`) and copied behind the others; a
large one makes a group of its own and stays where it is. What is refused, or was stored before,
is left out; the rest takes consecutive offsets.
"""

from typing import Self

from cordwood.format.batch_header import advance_sequence
from cordwood.log.rules.append_checks import BatchSurvey
from cordwood.log.rules.producer_entry import BatchFacts
from cordwood.quantities import NO_PRODUCER_ID, Offset, ProducerId, TimestampMs

# Position and size of a batch in the group's bytes, and what was found out about it. Plain
# tuples: one of each is made per request.
GroupedBatch = tuple[int, int, BatchSurvey]


def producer_facts(survey: BatchSurvey, base_offset: Offset) -> BatchFacts:
    """What the state of a batch's producer has to know of it, once it is at `base_offset`."""
    count, max_timestamp, _, _, producer_id, producer_epoch, base_sequence, _ = survey
    return BatchFacts(
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        last_sequence=advance_sequence(base_sequence, count - 1),
        first_offset=base_offset,
        last_offset=Offset(base_offset + count - 1),
        max_timestamp=TimestampMs(max_timestamp),
        is_transactional=False,
    )


class BatchGroup:
    """Batches in the order they came, and their bytes behind each other.

    Invariant: of one producer there are only batches that follow each other in sequence, so that
    all may be written where the first may. `record_count` and `max_timestamp` are those of all.
    """

    __slots__ = ("_next_of", "batches", "data", "max_timestamp", "record_count")

    def __init__(self) -> None:
        self.data: bytearray | memoryview = bytearray()
        self.batches: list[GroupedBatch] = []
        self.record_count = 0
        self.max_timestamp = TimestampMs(-1)
        self._next_of: dict[int, tuple[int, int]] = {}  # producer -> epoch, sequence to come

    @classmethod
    def alone(cls, data: memoryview, survey: BatchSurvey) -> Self:
        """A group that will have no other batch, with its bytes where they lie, not copied."""
        assert not data.readonly
        group = cls()
        group._note(0, len(data), survey)
        group.data = data
        return group

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def is_numbered(self) -> bool:
        """Whether any of it is of an idempotent producer."""
        return bool(self._next_of)

    def has_room_for(self, survey: BatchSurvey) -> bool:
        """Whether it is of a producer that is not in it yet, or goes on where that stands."""
        expected = self._next_of.get(survey[4])
        return expected is None or expected == survey[5:7]

    def add(self, data: memoryview, survey: BatchSurvey) -> None:
        joined = self.data
        assert isinstance(joined, bytearray)
        self._note(len(joined), len(data), survey)
        joined += data

    def _note(self, position: int, size: int, survey: BatchSurvey) -> None:
        producer_id = survey[4]
        if producer_id != NO_PRODUCER_ID:
            self._next_of[producer_id] = (survey[5], advance_sequence(survey[6], survey[0]))
        self.batches.append((position, size, survey))
        self.record_count += survey[0]
        if survey[1] > self.max_timestamp:
            self.max_timestamp = TimestampMs(survey[1])
