"""Compaction and the end of power: whatever the moment, the newest record of each key is there."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cordwood.errors import LogFailedError
from cordwood.log.compaction.compaction_run import CompactionOutcome
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, log_of, new_log, open_store

CONFIG: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 600,
    "index.interval.bytes": 100,
    "min.cleanable.dirty.ratio": 0,
    "file.delete.delay.ms": 0,
}

Contents = dict[int, tuple[bytes | None, bytes | None]]

CHANGING = {
    "create", "remove", "rename", "sync", "sync_directory", "truncate_to", "write_at",
}  # fmt: skip


def fill(log: PartitionLog, rng: Random, *, count: int) -> Contents:
    appended: Contents = {}
    for number in range(count):
        key = b"key %d" % rng.randrange(7)
        value = None if rng.random() < 0.2 else b"%d" % number * rng.randint(1, 6)
        appended[log.append(value, key=key).offset] = (key, value)
    return appended


def contents(log: PartitionLog) -> Contents:
    return {record.offset or 0: (record.key, record.value) for record in log.read()}


def newest(records: Contents) -> Contents:
    """By key: the record with the largest offset."""
    by_key = {key: offset for offset, (key, _) in sorted(records.items())}
    return {offset: records[offset] for offset in by_key.values()}


def check(store: Store, appended: Contents, end: int) -> None:
    log = log_of(store)
    found = contents(log)
    assert found.items() <= appended.items(), "a record that nobody wrote"
    assert newest(appended).items() <= found.items(), "the newest of a key is gone"
    assert log.end_offset == end
    assert store.damages() == []


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_moment_leaves_the_old_segments_or_the_new(seed: int) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    store, log = new_log(fs, CONFIG, clock=clock)
    appended = fill(log, Random(seed), count=20)
    left: list[SimulatedFileSystem] = []
    rng = Random(seed)

    def cut(operation: str, path: str) -> None:
        if operation in CHANGING:
            left.append(fs.kill() if rng.random() < 0.2 else fs.crash(Random(rng.random())))

    fs.watch = cut
    (result,) = store.compact(TOPIC, force=True)
    fs.watch = None

    assert result.outcome is CompactionOutcome.DONE
    assert result.bytes_reclaimed > 0
    assert len(left) > 30
    for number, after in enumerate(left):
        reopened = open_store(after, clock=clock)
        check(reopened, appended, log.end_offset)
        names = [entry.name for entry in after.list(f"/data/{TOPIC}-0")]
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))], number
        reopened.compact(TOPIC, force=True)
        check(reopened, appended, log.end_offset)


def test_a_second_power_cut_while_the_swap_is_finished_loses_nothing() -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    store, log = new_log(fs, CONFIG, clock=clock)
    appended = fill(log, Random(5), count=16)
    half_way: list[SimulatedFileSystem] = []
    rng = Random(5)

    def cut(operation: str, path: str) -> None:
        if operation in CHANGING:
            after = fs.crash(Random(rng.random()))
            if any(entry.name.endswith(".swap") for entry in after.list(f"/data/{TOPIC}-0")):
                half_way.append(after)

    fs.watch = cut
    store.compact(TOPIC, force=True)
    fs.watch = None

    assert half_way
    for first in half_way[::2]:
        left: list[SimulatedFileSystem] = []
        first.watch = lambda operation, path, first=first, left=left: (
            left.append(first.crash(Random(rng.random()))) if operation in CHANGING else None
        )
        open_store(first, clock=clock)
        first.watch = None
        for second in left:
            check(open_store(second, clock=clock), appended, log.end_offset)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_stops_the_run_or_the_log_and_loses_nothing(code: int) -> None:
    clock = ManualClock()
    number = 0
    outcomes = set()
    while True:
        number += 1
        fs = SimulatedFileSystem(clock=clock)
        store, log = new_log(fs, CONFIG, clock=clock)
        appended = fill(log, Random(1), count=12)
        log.roll()
        log.syncing.sync_pending()
        before = fs.calls
        fs.fail_at(number, OSError(code, "simulated"))

        try:
            results = store.compact(TOPIC, force=True)
        except (OSError, LogFailedError):
            results = []

        is_through = fs.calls - before < number
        fs.clear_faults()
        outcomes |= {result.outcome for result in results}
        if log.state.failure is None:
            assert newest(appended).items() <= contents(log).items()
            names = [entry.name for entry in fs.list(f"/data/{TOPIC}-0")]
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))], number
        check(open_store(fs.kill(), clock=clock), appended, log.end_offset)
        if is_through:
            break
    assert number > 30
    assert outcomes >= {CompactionOutcome.DONE, CompactionOutcome.FAILED}


def test_producers_go_on_with_their_sequence_after_compaction_and_a_crash() -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    store, log = new_log(fs, CONFIG, clock=clock)
    for sequence in range(6):
        log.batches.append_batch(
            client_batch(b"v", keys=[b"k"], producer_id=9, producer_epoch=0, sequence=sequence)
        )
    log.append(b"newer", key=b"k")

    store.compact(TOPIC, force=True)

    after = log_of(open_store(fs.crash(Random(1)), clock=clock))
    again = client_batch(b"v", keys=[b"k"], producer_id=9, producer_epoch=0, sequence=5)
    assert after.batches.append_batch(again).is_duplicate
    following = client_batch(b"v", keys=[b"k"], producer_id=9, producer_epoch=0, sequence=6)
    assert not after.batches.append_batch(following).is_duplicate
