"""A batch that comes behind one that was refused for a moment is refused for a moment too."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from cordwood.errors import (
    DiskFullError,
    EarlierBatchRefusedError,
    LogHeldError,
    OutOfOrderSequenceError,
)
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.rules.refused_sequences import RefusedSequences
from cordwood.quantities import TimestampMs
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, new_log

PRODUCER = 7


def batch(sequence: int, *, epoch: int = 0) -> bytearray:
    return client_batch(b"v", producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence)


def surveyed(log: PartitionLog, data: bytearray) -> UnplacedBatch:
    found = BatchGate(log.config).survey(memoryview(data), TimestampMs(NOW))
    assert found is not None
    return found


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.fs = SimulatedFileSystem(clock=self.clock)
        _, self.log = new_log(self.fs, {}, clock=self.clock, flusher=IdleFlusher())
        self.log.syncing.sync_pending()

    def append(self, *sequences: int, epoch: int = 0) -> None:
        for sequence in sequences:
            self.log.batches.append_batch(batch(sequence, epoch=epoch), wait=False)

    def note(self, sequence: int) -> None:
        self.log.batches.note_refused([surveyed(self.log, batch(sequence))])

    def note_bytes(self, sequence: int) -> None:
        self.log.batches.note_refused_bytes(memoryview(batch(sequence)))

    def hold(self, sequence: int) -> None:
        """A batch that comes while a publication holds the log."""
        holder = self.log.batches._holder
        with holder.lock:
            holder.commit(holder.state._replace(held_from=holder.state.end))
        with pytest.raises(LogHeldError):
            self.append(sequence)
        with holder.lock:
            holder.commit(holder.state._replace(held_from=None))

    def append_group(self, *sequences: int) -> list[object]:
        group = BatchGroup()
        for sequence in sequences:
            data = batch(sequence)
            group.add(memoryview(data), surveyed(self.log, data))
        return list(self.log.batches.append_group(group))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("refuse", [Bench.note, Bench.note_bytes, Bench.hold])
@pytest.mark.parametrize("known", [(), (0, 1, 2)])
def test_the_batch_behind_a_refused_one_is_asked_for_again(
    bench: Bench, refuse: Callable[[Bench, int], None], known: tuple[int, ...]
) -> None:
    bench.append(*known)
    first = len(known)
    refuse(bench, first)

    with pytest.raises(EarlierBatchRefusedError):
        bench.append(first + 1)
    [refusal] = bench.append_group(first + 2)
    assert isinstance(refusal, EarlierBatchRefusedError)

    bench.append(first, first + 1, first + 2)
    assert bench.log.end_offset == first + 3


def test_a_full_disk_does_not_put_producers_out_of_order(bench: Bench) -> None:
    bench.append(0)
    for _ in range(2):  # a group that fails is written batch by batch
        bench.fs.fail_next("write_at", OSError(errno.ENOSPC, "full"), path_ends=".log")
    [refusal] = bench.append_group(1)
    assert isinstance(refusal, DiskFullError)

    with pytest.raises(EarlierBatchRefusedError):
        bench.append(2)
    bench.append(1, 2)


def test_a_gap_that_the_log_did_not_make_is_out_of_order(bench: Bench) -> None:
    bench.append(0)
    bench.note(1)

    bench.append(1)
    for sequence in (3, 4):
        with pytest.raises(OutOfOrderSequenceError):
            bench.append(sequence)


def test_of_several_refused_batches_the_first_one_counts(bench: Bench) -> None:
    for sequence in (0, 1, 2):
        bench.note(sequence)

    for sequence in (2, 1):
        with pytest.raises(EarlierBatchRefusedError):
            bench.append(sequence)
    bench.append(0, 1, 2)


def test_a_client_that_gave_the_refused_batch_up_is_not_held_up_for_ever(bench: Bench) -> None:
    bench.note(0)
    bench.clock.advance(61_000)

    bench.append(5)


def test_a_new_epoch_begins_again(bench: Bench) -> None:
    bench.append(0)
    bench.note(1)

    bench.append(0, epoch=1)


@pytest.mark.parametrize("data", [b"", b"x" * 61, bytes(100)])
def test_bytes_that_are_no_batch_are_not_noted(bench: Bench, data: bytes) -> None:
    bench.log.batches.note_refused_bytes(memoryview(data))

    bench.append(3)


def test_only_so_many_producers_are_remembered() -> None:
    refused = RefusedSequences()
    for producer in range(1001):
        refused.note(producer, 0, 5, 0.0, is_known=True)

    refused.check_gap(0, 0, 1.0, expected=5, got=6)
    with pytest.raises(EarlierBatchRefusedError):
        refused.check_gap(1000, 0, 1.0, expected=5, got=6)
