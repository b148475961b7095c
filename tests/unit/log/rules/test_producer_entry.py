"""One producer: its sequence numbers and the batches it is remembered by."""

import pytest

from cordwood.log.rules.producer_entry import (
    BATCHES_REMEMBERED,
    BatchFacts,
    ProducerEntry,
    sequence_after,
    sequence_before,
)
from cordwood.quantities import INT32_MAX, Offset, ProducerId, TimestampMs

PRODUCER = ProducerId(7)


def batch(sequence: int, *, epoch: int = 0) -> BatchFacts:
    return BatchFacts(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        last_sequence=sequence,
        first_offset=Offset(sequence),
        last_offset=Offset(sequence),
        max_timestamp=TimestampMs(sequence),
        is_transactional=False,
    )


@pytest.mark.parametrize(("sequence", "expected"), [(-1, 0), (0, 1), (INT32_MAX, 0)])
def test_the_sequence_after_the_largest_is_zero(sequence: int, expected: int) -> None:
    assert sequence_after(sequence) == expected


@pytest.mark.parametrize(
    ("sequence", "steps", "expected"),
    [(5, 0, 5), (5, 5, 0), (4, 5, INT32_MAX), (0, 1, INT32_MAX), (INT32_MAX, INT32_MAX, 0)],
)
def test_counting_sequences_back_goes_round_below_zero(
    sequence: int, steps: int, expected: int
) -> None:
    assert sequence_before(sequence, steps) == expected


def test_a_fixed_number_of_batches_is_remembered() -> None:
    entry = ProducerEntry()

    for sequence in range(20):
        entry.add_batch(batch(sequence))

    assert [stored.base_sequence for stored in entry.batches] == [15, 16, 17, 18, 19]
    assert len(entry.batches) == BATCHES_REMEMBERED


def test_all_remembered_batches_are_of_one_epoch() -> None:
    entry = ProducerEntry()
    entry.add_batch(batch(0))

    entry.add_batch(batch(0, epoch=1))

    assert entry.epoch == 1
    assert len(entry.batches) == 1


def test_a_producer_is_as_recent_as_its_last_batch_says() -> None:
    entry = ProducerEntry()
    entry.add_batch(batch(100))

    assert not entry.is_expired(TimestampMs(109), expiration_ms=10)
    assert entry.is_expired(TimestampMs(110), expiration_ms=10)


def test_a_snapshot_entry_reads_back_to_the_same_entry() -> None:
    entry = ProducerEntry()
    entry.add_batch(batch(3, epoch=2))
    entry.transaction_start = Offset(3)

    snapshot = entry.to_snapshot(PRODUCER)

    assert snapshot.producer_id == PRODUCER
    assert ProducerEntry.from_snapshot(snapshot).to_snapshot(PRODUCER) == snapshot
