"""A reader beside the writer foresees what the writer will do."""

from pathlib import Path

import pytest

import cordwood
from cordwood.log.rules.compaction_plan import CompactionReason
from cordwood.log.rules.retention import Verdict
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

TOPIC = "events"
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


@pytest.fixture
def store(fs: SimulatedFileSystem, clock: ManualClock) -> Store:
    return open_store(fs, clock=clock)


def beside(fs: SimulatedFileSystem, clock: ManualClock) -> ReadOnlyStore:
    return ReadOnlyStore([DATA], fs=fs, clock=clock, defaults=TopicConfig())


@pytest.mark.parametrize(
    "config",
    [
        {"retention.ms": "2h"},
        {"retention.bytes": "1KiB"},
        {"retention.segments": 2},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete", "retention.ms": "3h"},
        {},
    ],
    ids=str,
)
def test_a_reader_foresees_the_retention_that_the_owner_runs(
    fs: SimulatedFileSystem, clock: ManualClock, store: Store, config: dict[str, object]
) -> None:
    topic = store.create_topic(TOPIC, partitions=2, config={"segment.records": 10, **config})
    for _ in range(5):
        topic.append_many([(b"k%d" % n, b"x" * 30) for n in range(20)])
        clock.advance(HOUR_MS)

    foreseen = beside(fs, clock).explain_retention(TOPIC)

    assert foreseen == store.explain_retention(TOPIC)
    assert foreseen == [log.upkeep.apply_retention(clock.now_ms()) for log in topic.partitions]


def test_a_reader_that_stays_open_sees_the_active_segment_grow_older_and_newer(
    fs: SimulatedFileSystem, clock: ManualClock, store: Store
) -> None:
    topic = store.create_topic(TOPIC, config={"retention.ms": "1h", "segment.ms": "7d"})
    topic.append(b"a")
    reader = beside(fs, clock)
    [before] = reader.explain_retention(TOPIC)
    clock.advance(HOUR_MS // 2)
    topic.append(b"b")

    [after] = reader.explain_retention(TOPIC)

    [owner] = store.explain_retention(TOPIC)
    assert after.segments == owner.segments
    assert before.segments[0].expires_ms == NOW + HOUR_MS + 1
    assert after.segments[0].expires_ms == NOW + HOUR_MS // 2 + HOUR_MS + 1


def test_an_altered_configuration_is_planned_with(
    fs: SimulatedFileSystem, clock: ManualClock, store: Store
) -> None:
    topic = store.create_topic(TOPIC, config={"segment.records": 1})
    for _ in range(4):
        topic.append(b"x")
    reader = beside(fs, clock)
    assert not reader.explain_retention(TOPIC)[0].deleted

    store.alter_topic(TOPIC, config={"retention.segments": 2})

    assert len(reader.explain_retention(TOPIC)[0].deleted) == 2


def test_segments_deleted_under_the_reader_are_looked_for_again(
    fs: SimulatedFileSystem, clock: ManualClock, store: Store
) -> None:
    config = {"segment.records": 1, "file.delete.delay.ms": 0}
    topic = store.create_topic(TOPIC, config=config)
    for _ in range(4):
        topic.append(b"x")
    reader = beside(fs, clock)
    topic.partition(0).deletion.delete_before(2)

    [plan] = reader.explain_retention(TOPIC)

    assert [segment.base_offset for segment in plan.segments] == [2, 3]
    assert all(segment.verdict is Verdict.KEEP for segment in plan.segments)


def test_a_reader_foresees_compaction(
    fs: SimulatedFileSystem, clock: ManualClock, store: Store
) -> None:
    config = {"cleanup.policy": "compact", "segment.records": 10, "max.compaction.lag.ms": "2h"}
    topic = store.create_topic(TOPIC, partitions=2, config=config)
    for _ in range(3):
        topic.append_many([(b"k%d" % n, b"x" * 30) for n in range(20)])
        clock.advance(HOUR_MS)
        for log in topic.partitions:
            log.syncing.sync_pending()

    assert beside(fs, clock).explain_compaction(TOPIC) == store.explain_compaction(TOPIC)

    store.compact(TOPIC)
    topic.append_many([(b"k%d" % n, b"x" * 30) for n in range(4)])
    for log in topic.partitions:
        log.syncing.sync_pending()
    assert beside(fs, clock).explain_compaction(TOPIC) == store.explain_compaction(TOPIC)


def test_a_forced_compaction_is_foreseen_with_the_active_segment(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic(TOPIC, config={"cleanup.policy": "compact"})
        topic.append_many([(b"k", b"x")] * 10)
        with cordwood.open(tmp_path, read_only=True) as reader:
            [due] = reader.explain_compaction(TOPIC)
            [forced] = reader.explain_compaction(TOPIC, force=True)
        size = topic.partition(0).size_bytes

    assert due.reason is CompactionReason.NOTHING_SEALED
    assert forced.reason is CompactionReason.FORCED
    assert (forced.first_uncleanable, forced.cleanable_bytes) == (10, size)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_forecast_of_a_compaction_comes_true(tmp_path: Path, compression: str) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.records": 40,
        "compression.type": compression,
    }
    told: list[int] = []
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic(TOPIC, partitions=2, config=config)
        for turn in range(5):
            topic.append_many([(b"k%d" % (n % 9), b"%d %d" % (turn, n)) for n in range(100)])
        topic.append_many([(b"k%d" % n, None) for n in range(4)])
        with cordwood.open(tmp_path, read_only=True) as reader:
            plans = reader.explain_compaction(TOPIC, force=True)
            forecasts = [reader.forecast_compaction(plan, pace=told.append) for plan in plans]

        results = sorted(store.compact(TOPIC, force=True), key=lambda result: result.partition)

    # How well a batch compresses depends on the time until which its tombstones stay.
    slack = 0 if compression == "uncompressed" else 64
    assert [f.bytes_saved for f in forecasts] == pytest.approx(
        [r.bytes_reclaimed for r in results], abs=slack
    )
    assert [f.records_read for f in forecasts] == [r.records_read for r in results]
    assert [f.records_kept for f in forecasts] == [r.records_kept for r in results]
    assert [f.keys for f in forecasts] == [r.keys for r in results]
    assert sum(told) == sum(plan.bytes_to_read for plan in plans)
