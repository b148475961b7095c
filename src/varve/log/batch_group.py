"""Batches of several clients that go into a log together, in one write.

Each was looked over when it came (`append_checks.BatchGate`) and copied behind the others. What
is refused, or was stored before, is left out; the rest takes consecutive offsets.
"""

from varve.format.batch_header import advance_sequence
from varve.log.append_checks import BatchSurvey
from varve.log.producer_entry import BatchFacts
from varve.quantities import NO_PRODUCER_ID, Offset, ProducerId, TimestampMs

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

    Invariant: no producer is in it twice, so that each may be held to its producer's state
    before any of them is written. `record_count` and `max_timestamp` are those of all.
    """

    __slots__ = ("_producers", "batches", "data", "max_timestamp", "record_count")

    def __init__(self) -> None:
        self.data = bytearray()
        self.batches: list[GroupedBatch] = []
        self.record_count = 0
        self.max_timestamp = TimestampMs(-1)
        self._producers: set[int] = set()

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def is_numbered(self) -> bool:
        """Whether any of it is of an idempotent producer."""
        return bool(self._producers)

    def has_room_for(self, survey: BatchSurvey) -> bool:
        return survey[4] not in self._producers

    def add(self, data: memoryview, survey: BatchSurvey) -> None:
        producer_id = survey[4]
        if producer_id != NO_PRODUCER_ID:
            self._producers.add(producer_id)
        batch = self.data
        self.batches.append((len(batch), len(data), survey))
        batch += data
        self.record_count += survey[0]
        if survey[1] > self.max_timestamp:
            self.max_timestamp = TimestampMs(survey[1])
