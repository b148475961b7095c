"""After a restart, batches that a client sends again are found in the log.

A snapshot has only the last batch of each producer, as in Kafka. A client may send again the five
batches before its last answer.
"""

from __future__ import annotations

import pytest

from cordwood.errors import OutOfOrderSequenceError
from cordwood.log.partition.partition_log import PartitionLog
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

PRODUCER = 7


def batch(sequence: int, *values: bytes, producer_id: int = PRODUCER) -> bytearray:
    return client_batch(
        *(values or (b"v",)), producer_id=producer_id, producer_epoch=0, sequence=sequence
    )


def restarted(*sequences: int, config: dict[str, object] | None = None) -> PartitionLog:
    """A log with one batch for each sequence, after an orderly stop and a start."""
    fs = SimulatedFileSystem()
    store, log = new_log(fs, config or {})
    for sequence in sequences:
        log.batches.append_batch(batch(sequence))
        log.append(b"of somebody else")
    store.close()
    return log_of(open_store(fs))


@pytest.mark.parametrize("sequence", [1, 2, 3, 4, 5])
def test_the_last_five_batches_are_known_after_a_restart(sequence: int) -> None:
    log = restarted(0, 1, 2, 3, 4, 5)

    again = log.batches.append_batch(batch(sequence))

    assert (again.is_duplicate, again.base_offset) == (True, 2 * sequence)
    assert not log.batches.append_batch(batch(6)).is_duplicate


def test_a_batch_that_was_never_stored_is_not_taken_for_one_that_was() -> None:
    log = restarted(3, 4)  # the log had forgotten the producer when it wrote 3

    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(batch(2))

    assert log.batches.append_batch(batch(3)).is_duplicate


def test_a_batch_with_other_borders_is_refused() -> None:
    log = restarted(0, 1, 2, 3)

    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(batch(1, b"a", b"b"))


def test_a_batch_of_a_segment_before_is_refused_and_not_stored_twice() -> None:
    log = restarted(0, 1, 2, 3, 4, config={"internal.segment.bytes": 100})

    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(batch(0))

    assert log.batches.append_batch(batch(4)).is_duplicate


def test_the_log_is_searched_once_for_each_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = restarted(3, 4)
    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(batch(2))

    monkeypatch.setattr("cordwood.log.partition.derived_state.log_producers.find_older", None)

    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(batch(2))
