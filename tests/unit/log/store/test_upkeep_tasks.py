"""The tasks of a store's housekeeping: retention, marks, room on the disk."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from cordwood.errors import DiskFullError, LogClosedError
from cordwood.format.file_names import RECOVERY_POINT
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.rules.steady_clock import SteadyClock
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN, UpkeepTasks
from cordwood.storage.disk.flusher import InlineFlusher
from cordwood.storage.small_files.checkpoint_file import read_offset_checkpoint
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, log_of, new_log, open_store

HOUR_MS = 3_600_000


TEN_YEARS_MS = 3652 * 24 * HOUR_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


def store_with_floor(fs: SimulatedFileSystem, clock: ManualClock, free_bytes_min: int) -> Store:
    return Store(
        [DATA],
        StoreSetup(
            fs=fs,
            clock=clock,
            random=random.Random(1),
            flusher=InlineFlusher(),
            has_housekeeping=False,
            opening_threads=1,
            free_bytes_min=free_bytes_min,
        ),
    )


# --- what a store has it do --------------------------------------------------------------------


def test_a_store_tells_what_its_housekeeping_does(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    store.housekeeping.add("archive", 30.0, lambda: 5)

    store.maintain()

    found = {status.name: status for status in store.housekeeping.status()}
    assert {"timers", "marks", "disk", "retention", "checkpoint", "producers"} <= set(found)
    assert all(status.runs == 1 for status in found.values())
    assert found["archive"].bytes_reclaimed == 5


def test_a_closed_store_is_not_maintained(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    store.close()

    with pytest.raises(LogClosedError):
        store.maintain()


def test_maintain_deletes_what_retention_gives_up_and_counts_it(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store, log = new_log(fs, {"retention.ms": "1h", "file.delete.delay.ms": 1000}, clock=clock)
    log.append(b"old")
    log.roll()
    size = log.segments()[0].size_bytes
    clock.advance(2 * HOUR_MS)
    log.append(b"new")
    [explained] = store.explain_retention(TOPIC)

    store.maintain()

    assert [segment.verdict for segment in explained.segments] == ["delete", "keep"]
    assert [record.value for record in log.read()] == [b"new"]
    retention = next(s for s in store.housekeeping.status() if s.name == "retention")
    assert retention.bytes_reclaimed == size
    assert any(e.name.endswith(".deleted") for e in fs.list("/data/events-0"))
    clock.advance(1000)
    store.maintain()
    assert not any(e.name.endswith(".deleted") for e in fs.list("/data/events-0"))


@pytest.mark.parametrize("jump_ms", [5 * HOUR_MS, TEN_YEARS_MS])
def test_a_clock_that_jumps_ahead_deletes_nothing(
    fs: SimulatedFileSystem, clock: ManualClock, jump_ms: int
) -> None:
    store, log = new_log(fs, {"retention.ms": "1h"}, clock=clock)
    log.append(b"young")
    log.roll()
    right = clock.now_ms()
    clock.set(right + jump_ms)
    store.maintain()
    clock.advance(600_000)
    store.maintain()

    clock.set(right + 600_000)
    store.maintain()

    assert [record.value for record in log.read()] == [b"young"]


@pytest.mark.parametrize("jump_ms", [-5 * HOUR_MS, -TEN_YEARS_MS])
def test_a_clock_that_jumps_back_pins_nothing(
    fs: SimulatedFileSystem, clock: ManualClock, jump_ms: int
) -> None:
    store, log = new_log(fs, {"retention.ms": "10m"}, clock=clock)
    log.append(b"old")
    log.roll()
    clock.set(clock.now_ms() + jump_ms)
    store.maintain()

    clock.advance(1_200_000)
    store.maintain()

    assert log.start_offset == 1


def test_marks_are_synced_once_a_second_at_most_as_the_budget_allows(
    fs: SimulatedFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(fs, clock=clock)
    logs = store.create_topic(TOPIC, partitions=5).partitions
    [tasks] = UpkeepTasks(
        store.directories,
        clock,
        SteadyClock(clock),
        CleanerConfig(),
        fs=fs,
        free_bytes_min=0,
        should_stop=lambda: False,
    ).of_directories
    tasks.sync_marks()
    for log in logs:
        log.append(b"v")
    sync = HighWatermarkFile.sync
    synced: list[str] = []

    def slow_sync(marks: HighWatermarkFile) -> None:
        if marks._fs is fs:  # others sync theirs meanwhile
            synced.append(marks.path)
            clock.advance(15)
        sync(marks)

    monkeypatch.setattr(HighWatermarkFile, "sync", slow_sync)

    rounds = []
    for _ in range(4):
        tasks.sync_marks()
        rounds.append(len(synced))

    assert rounds == [2, 4, 5, 5]
    assert len(set(synced)) == 5


def test_after_a_power_cut_synced_marks_know_what_was_promised(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store, log = new_log(fs, clock=clock)
    log.append(b"v")
    store.maintain()

    after = fs.crash(random.Random(5))

    assert HighWatermarkFile(after, log.directory, writable=False).read().durable == 1


# --- room --------------------------------------------------------------------------------------


def test_appends_are_refused_before_the_disk_is_full_and_taken_again_after(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store = store_with_floor(fs, clock, 10_000)
    store.create_topic(TOPIC, config={"retention.bytes": 0, "file.delete.delay.ms": "1h"})
    log = log_of(store)
    log.append(bytes(5000))
    log.roll()
    fs.capacity_bytes = 1 << 30
    used = fs.capacity_bytes - fs.free_bytes(DATA)
    fs.capacity_bytes = used + 9_000
    for directory in store.directories:
        directory.check_room(10_000)

    with pytest.raises(DiskFullError, match=r"log\.dir\.free\.bytes\.min = 10000"):
        log.append(b"refused")

    assert [len(record.value or b"") for record in log.read()] == [5000]
    store.maintain()  # deletes, unlinks without delay, looks again
    store.maintain()
    assert log.append(b"taken").offset == 1


def test_the_floor_holds_for_all_ways_to_append(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store = store_with_floor(fs, clock, 1)
    store.create_topic("disk")
    store.create_topic("os", config={"durability": "os"})
    fs.capacity_bytes = 0
    for directory in store.directories:
        directory.check_room(1)

    for topic in ("disk", "os"):
        with pytest.raises(DiskFullError):
            store.topic(topic).append(b"v")
        with pytest.raises(DiskFullError):
            store.topic(topic).append_many([(b"k", b"v")])


def test_only_real_disks_have_a_floor_by_default(fs: SimulatedFileSystem) -> None:
    fs.capacity_bytes = FREE_BYTES_MIN // 2
    store, log = new_log(fs)

    store.maintain()

    assert log.append(b"v").offset == 0


# --- one log that fails ---------------------------------------------------------------------------


def fail(*_arguments: object, **_options: object) -> None:
    raise ValueError("injected")


@pytest.mark.parametrize(
    ("task", "part", "method"),
    [
        ("timers", "rolling", "roll_if_due"),
        ("timers", "syncing", "flush_if_due"),
        ("checkpoint", "syncing", "checkpoint"),
        ("retention", "upkeep", "apply_retention"),
        ("key index", "upkeep", "index_keys"),
        ("marks", "syncing", "sync_marks"),
        ("producers", "producers", "expire"),
    ],
)
def test_a_log_that_fails_a_task_stops_no_other_log_and_does_not_slow_the_task(
    fs: SimulatedFileSystem,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    part: str,
    method: str,
) -> None:
    store = open_store(fs, clock=clock)
    topic = store.create_topic("events", partitions=3)
    called: list[int] = []
    for log in topic.partitions:
        concern = getattr(log, part)
        real = getattr(concern, method)

        def note(*arguments: object, of: int = log.partition, real: Any = real) -> object:
            called.append(of)
            return real(*arguments)

        monkeypatch.setattr(concern, method, fail if log.partition == 0 else note)

    interval_s = next(s.interval_s for s in store.housekeeping.status() if s.name == task)
    for _ in range(3):
        clock.advance(int(interval_s * 1000) + 1)
        store.housekeeping.run_due(DATA)
        for thread in store.housekeeping._long_runs:
            thread.join()

    assert sorted(set(called)) == [1, 2]
    status = next(s for s in store.housekeeping.status() if s.name == task)
    assert status.failures == status.runs >= 3, "it keeps its interval"
    assert status.last_error is not None
    assert "injected" in status.last_error
    assert "events-0" in status.last_error
    with pytest.raises(ValueError, match="injected"):
        store.maintain()


def test_a_checkpoint_of_the_other_logs_is_written_although_one_fails(
    fs: SimulatedFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(fs, clock=clock)
    topic = store.create_topic("events", partitions=2)
    for number in range(2):
        topic.append(b"x", partition=number)
    monkeypatch.setattr(topic.partition(0).syncing, "checkpoint", fail)

    with pytest.raises(ValueError, match="injected"):
        store.maintain()

    points = read_offset_checkpoint(fs, DATA, RECOVERY_POINT)
    assert points["events", 1] == 1


def test_a_directory_whose_room_cannot_be_read_stops_no_other(clock: ManualClock) -> None:
    fs = SimulatedFileSystem(clock=clock)
    store = Store(
        ["/a", "/b"],
        StoreSetup(fs=fs, clock=clock, has_housekeeping=False, free_bytes_min=1000),
    )
    fs.capacity_bytes = 0
    fs.fail_next("free_bytes", OSError(errno.EIO, "injected"), path_ends="/a")

    with pytest.raises(OSError, match="injected"):
        store.maintain()

    first, second = store.directories
    assert not first.health.is_short_of_room
    assert second.health.is_short_of_room
    store.abandon()


def test_a_log_whose_compaction_cannot_be_planned_stops_no_other(
    fs: SimulatedFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(fs, clock=clock)
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    topic = store.create_topic("events", partitions=2, config=config)
    for number in range(2):
        for value in (b"old", b"new"):
            topic.append(value, key=b"k", partition=number)
            topic.partition(number).roll()
    monkeypatch.setattr(topic.partition(0).compaction, "plan", fail)

    store.maintain()

    assert [record.value for record in topic.partition(1).read()] == [b"new"]
    assert [record.value for record in topic.partition(0).read()] == [b"old", b"new"]
    assert [log.last_error for log in store.cleaner.status()] == ["ValueError: injected", None]
