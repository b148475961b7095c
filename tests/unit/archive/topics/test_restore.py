"""A topic comes back from its archive: whole, or as it was at a point in time."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from cordwood.archive.objects.object_store import LocalObjects
from cordwood.archive.opened_archive import OpenedArchive
from cordwood.errors import (
    ConfigError,
    InvalidProducerEpochError,
    InvalidTopicNameError,
    LogClosedError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.quantities import MIB, Offset, ProducerId, TimestampMs
from fakes.archived_store import ARCHIVE, SMALL_SEGMENTS, URL, ArchivedStore, expected, values
from fakes.client_batches import client_batch, marker_batch
from fakes.failing_objects import ProcessKilled
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC

NEW = "/new"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def lost(fs: SimulatedFileSystem) -> ArchivedStore:
    """Archived up to offset 12, then closed for ever. Offset n has timestamp 1000 * (n + 1)."""
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.store.group("slow").commit({(TOPIC, 0): (2, "two")})
    bench.store.group("fast").commit({(TOPIC, 0): 14})
    bench.archive_and_drop()
    bench.store.close()
    return bench


def test_a_restored_topic_is_what_was_archived(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    topic = bench.store.restore_topic(TOPIC, URL)

    assert values(topic.partition(0)) == expected(0, 12)
    assert topic.config.segment_records == SMALL_SEGMENTS["segment.records"]
    assert topic.topic_id == lost.store.registry.id_of(TOPIC)
    assert bench.store.damages() == []


def test_its_groups_go_on_where_they_were_but_not_past_the_end(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    bench.store.restore_topic(TOPIC, URL)

    assert bench.store.group("slow").committed(TOPIC, 0) == 2
    assert bench.store.group("slow").details()[TOPIC, 0].metadata == "two"
    assert bench.store.group("fast").committed(TOPIC, 0) == 12


def test_it_is_a_copy_and_the_archive_stays_with_the_store_that_writes_it(
    fs: SimulatedFileSystem,
) -> None:
    live = ArchivedStore(fs)
    live.create()
    live.append(14)
    live.archive_and_drop()
    other = ArchivedStore(fs, data=NEW)

    topic = other.store.restore_topic(TOPIC, URL)

    assert topic.config.archive_url is None
    assert other.store.archive_now() == []
    live.append(4)
    live.archive_and_drop()
    assert live.log.archive.archived_up_to == 15
    assert values(live.log) == expected(0, 18)
    assert values(topic.partition(0)) == expected(0, 12)


def test_taken_over_it_takes_appends_and_goes_on_archiving(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)
    bench.store.restore_topic(TOPIC, URL, take_over=True)

    bench.append(8)
    bench.archive_and_drop()

    assert values(bench.log) == expected(0, 20)
    assert (bench.log.archive.archived_up_to, bench.log.state.start) == (18, 18)
    bench.store.close()
    assert values(ArchivedStore(fs, data=NEW).log) == expected(0, 20)


def test_all_partitions_are_taken_over_also_one_that_was_never_archived(
    fs: SimulatedFileSystem,
) -> None:
    live = ArchivedStore(fs)
    topic = live.store.create_topic(TOPIC, partitions=2, config=SMALL_SEGMENTS)
    for offset in range(7):
        topic.append(b"v%d" % offset, partition=0)
    live.store.archive_now()

    ArchivedStore(fs, data=NEW).store.restore_topic(TOPIC, URL, take_over=True)
    for offset in range(7):
        topic.append(b"v%d" % offset, partition=1)
    statuses = live.store.archive_now()

    assert ["belongs to store" in (status.last_error or "") for status in statuses] == [True] * 2


def test_a_store_that_owns_the_archive_continues_it(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.archive_and_drop()
    bench.store.delete_topic(TOPIC)

    bench.store.restore_topic(TOPIC, URL)
    bench.append(8)
    bench.archive_and_drop()

    assert (bench.log.archive.archived_up_to, values(bench.log)) == (18, expected(0, 20))


@pytest.mark.parametrize(
    "wanted",
    [
        {"take_over": True, "to_timestamp_ms": 5000},
        {"take_over": True, "new_name": "another"},
        {"config": {"archive.url": URL}},
        {"config": {"archive.url": URL}, "to_timestamp_ms": 5000},
    ],
)
def test_an_archive_that_does_not_match_the_topic_is_not_continued(
    lost: ArchivedStore, fs: SimulatedFileSystem, wanted: dict[str, Any]
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    with pytest.raises(ConfigError, match="cannot continue this archive"):
        bench.store.restore_topic(TOPIC, URL, **wanted)

    assert bench.store.topics() == []
    assert not [e.name for e in fs.list(NEW) if TOPIC in e.name]


def test_what_was_set_for_a_topic_is_kept_even_if_it_is_the_default(
    fs: SimulatedFileSystem,
) -> None:
    bench = ArchivedStore(fs, defaults=TopicConfig(retention_ms=1000, segment_ms=2000))
    week_ms = TopicConfig().retention_ms
    bench.store.create_topic(TOPIC, config={**SMALL_SEGMENTS, "retention.ms": week_ms})
    bench.append(7)
    bench.store.archive_now()

    restored = ArchivedStore(fs, data=NEW, defaults=TopicConfig(retention_ms=5)).store
    config = restored.restore_topic(TOPIC, URL).config

    assert (config.retention_ms, config.segment_ms) == (week_ms, 2000)


def test_appends_do_not_go_into_a_restored_segment(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(4)
    bench.log.roll()
    bench.store.archive_now()
    other = ArchivedStore(fs, data=NEW)
    other.store.restore_topic(TOPIC, URL, take_over=True)

    other.append(6)
    other.archive_and_drop()

    assert [s.base_offset for s in other.log.segments()] == [0, 3, 4, 7]
    assert values(other.log) == expected(0, 10)


def test_it_is_there_after_a_restart(lost: ArchivedStore, fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs, data=NEW)
    bench.store.restore_topic(TOPIC, URL)
    bench.store.close()

    again = ArchivedStore(fs, data=NEW)

    assert values(again.log) == expected(0, 12)
    assert again.store.damages() == []


@pytest.mark.parametrize("kept", range(13))
def test_at_a_point_in_time_it_ends_before_the_first_newer_record(
    lost: ArchivedStore, fs: SimulatedFileSystem, kept: int
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    topic = bench.store.restore_topic(TOPIC, URL, to_timestamp_ms=1000 * kept)

    log = topic.partition(0)
    assert values(log) == expected(0, kept)
    assert log.end_offset == kept
    assert topic.config.archive_url is None
    bench.append(5)
    bench.store.close()
    assert values(ArchivedStore(fs, data=NEW).log) == expected(0, kept + 5)


def test_a_batch_is_not_taken_apart(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    log = bench.create()
    log.append_many([Record(b"v0", timestamp_ms=1), Record(b"v1", timestamp_ms=2)])
    log.append_many([Record(b"v2", timestamp_ms=3), Record(b"v3", timestamp_ms=9)])
    log.append(b"v4", timestamp_ms=4)
    log.roll()
    bench.store.archive_now()
    other = ArchivedStore(fs, data=NEW)

    topic = other.store.restore_topic(TOPIC, URL, to_timestamp_ms=5)

    assert values(topic.partition(0)) == expected(0, 2)


def test_groups_are_restored_as_they_were_at_that_time(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(7)
    for offset in (1, 3, 6):
        bench.clock.advance(10_000)
        bench.store.group("g").commit({(TOPIC, 0): offset})
        bench.store.archive_now()
    other = ArchivedStore(fs, data=NEW)
    at_ms = bench.clock.now_ms() - 5_000

    other.store.restore_topic(TOPIC, URL, to_timestamp_ms=at_ms)

    assert other.store.group("g").committed(TOPIC, 0) == 3


def test_a_group_the_store_knows_keeps_its_place_within_the_log(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)
    bench.store.group("slow").commit({(TOPIC, 0): 7})
    bench.store.group("mine").commit({(TOPIC, 0): 100})

    bench.store.restore_topic(TOPIC, URL)

    assert bench.store.group("slow").committed(TOPIC, 0) == 7
    assert bench.store.group("mine").committed(TOPIC, 0) == 12


def test_deleted_records_are_not_restored(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.archive_and_drop()
    bench.log.delete_before(4)
    other = ArchivedStore(fs, data=NEW)

    topic = other.store.restore_topic(TOPIC, URL)

    assert topic.partition(0).start_offset == 4
    assert values(topic.partition(0)) == expected(4, 12)


@pytest.mark.parametrize("timestamp_ms", [0, 2500])
def test_a_point_in_time_before_the_start_leaves_an_empty_log_there(
    fs: SimulatedFileSystem, timestamp_ms: int
) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.archive_and_drop()
    bench.log.delete_before(4)
    other = ArchivedStore(fs, data=NEW)

    log = other.store.restore_topic(TOPIC, URL, to_timestamp_ms=timestamp_ms).partition(0)

    assert (log.start_offset, log.end_offset) == (4, 4)
    assert log.append(b"next").offset == 4


def test_every_partition_is_restored_also_one_without_records(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    topic = bench.store.create_topic(TOPIC, partitions=3, config=SMALL_SEGMENTS)
    for offset in range(7):
        topic.append(b"v%d" % offset, partition=0)
        topic.append(b"v%d" % offset, partition=2)
    bench.store.archive_now()
    other = ArchivedStore(fs, data=NEW)

    restored = other.store.restore_topic(TOPIC, URL)

    assert [values(log) for log in restored.partitions] == [expected(0, 6), [], expected(0, 6)]


def test_gaps_that_compaction_left_are_no_damage_in_a_restored_topic(
    fs: SimulatedFileSystem,
) -> None:
    bench = ArchivedStore(fs)
    compacted = {"cleanup.policy": "compact", "segment.records": 3, "min.cleanable.dirty.ratio": 0}
    bench.store.create_topic(TOPIC, config=compacted)
    for number in range(10):
        bench.log.append(b"v%d" % number, key=b"k%d" % (number % 2))
    bench.log.roll()
    bench.clock.advance(100_000)
    bench.store.maintain()
    kept = [record.offset for record in bench.log.read()]
    assert kept != list(range(10))
    changed: dict[str, object | None] = {**SMALL_SEGMENTS, "cleanup.policy": "delete"}
    bench.store.alter_topic(TOPIC, config=changed)
    bench.archive_and_drop()
    assert [record.offset for record in bench.log.read()] == kept

    other = ArchivedStore(fs, data=NEW)
    restored = other.store.restore_topic(TOPIC, URL)

    assert [record.offset for record in restored.partition(0).read()] == kept
    other.store.close()
    assert [record.offset for record in ArchivedStore(fs, data=NEW).log.read()] == kept


def test_gaps_that_a_compaction_made_between_two_archive_passes_are_no_damage(
    fs: SimulatedFileSystem,
) -> None:
    bench = ArchivedStore(fs)
    bench.store.create_topic(TOPIC, config=SMALL_SEGMENTS)
    for number in range(12):
        bench.log.append(b"v%d" % number, key=b"k%d" % (number % 2))
    bench.store.archive_now()
    assert bench.log.archive.archived_up_to == 12 - 12 % 3 or bench.log.archive.archived_up_to
    compacted: dict[str, object | None] = {
        "archive.url": None,
        "archive.after.ms": None,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0,
    }
    bench.store.alter_topic(TOPIC, config=compacted)
    for number in range(12, 24):
        bench.log.append(b"v%d" % number, key=b"k%d" % (number % 2))
    bench.log.roll()
    bench.clock.advance(100_000)
    bench.store.maintain()
    changed: dict[str, object | None] = {**SMALL_SEGMENTS, "cleanup.policy": "delete"}
    bench.store.alter_topic(TOPIC, config=changed)
    kept = [record.offset for record in bench.log.read()]
    assert kept != list(range(24))

    bench.store.archive_now()

    assert all(status.last_error is None for status in bench.store.archive_status())
    other = ArchivedStore(fs, data=NEW)
    restored = other.store.restore_topic(TOPIC, URL)
    found = [record.offset for record in restored.partition(0).read()]
    assert set(kept) <= set(found)
    assert not restored.partition(0).damages


def test_a_topic_that_is_there_is_not_replaced(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)
    bench.create()

    with pytest.raises(TopicExistsError):
        bench.store.restore_topic(TOPIC, URL)


@pytest.mark.parametrize("name", ["nothing", TOPIC])
def test_a_topic_that_was_never_archived_is_not_known(
    lost: ArchivedStore, fs: SimulatedFileSystem, name: str
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    with pytest.raises(UnknownTopicError):
        bench.store.restore_topic(name, URL, topic_id=uuid4())


def test_the_topic_archived_last_is_taken_and_an_older_one_by_its_id(
    fs: SimulatedFileSystem,
) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(7)
    bench.store.archive_now()
    first_id = bench.store.topic(TOPIC).topic_id
    bench.store.delete_topic(TOPIC)
    bench.clock.advance(1000)
    bench.create()
    bench.append(4)
    bench.store.archive_now()

    last = ArchivedStore(fs, data=NEW).store.restore_topic(TOPIC, URL)
    older = ArchivedStore(fs, data="/old").store.restore_topic(TOPIC, URL, topic_id=first_id)

    assert values(last.partition(0)) == expected(0, 3)
    assert values(older.partition(0)) == expected(0, 6)


def test_a_damaged_object_stops_the_restore_and_leaves_nothing(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    key = next(i.key for i in LocalObjects(fs, ARCHIVE).listing("") if i.key.endswith(".packed"))
    fs.open_write(f"{ARCHIVE}/{key}").write_at(40, b"\xff")
    bench = ArchivedStore(fs, data=NEW)

    with pytest.raises(StorageError, match="SHA-256"):
        bench.store.restore_topic(TOPIC, URL)

    assert bench.store.topics() == []
    assert not [e.name for e in fs.list(NEW) if TOPIC in e.name]


def restore_calls() -> int:
    fs = SimulatedFileSystem()
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(7)
    bench.store.archive_now()
    other = ArchivedStore(fs, data=NEW)
    other.store.restore_topic(TOPIC, URL, take_over=True)
    return other.objects.calls


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("number", range(1, restore_calls() + 1))
def test_interrupted_at_any_call_the_topic_is_there_whole_or_not_at_all(
    fs: SimulatedFileSystem, number: int, is_killed: bool
) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(7)
    bench.store.archive_now()
    bench.store.close()
    other = ArchivedStore(fs, data=NEW)
    other.objects.fail_at(number, error=ProcessKilled if is_killed else None)

    with suppress(ProcessKilled, OSError):
        other.store.restore_topic(TOPIC, URL, take_over=True)

    left = ArchivedStore(fs.kill(), data=NEW)
    if TOPIC not in left.store.topics():
        left.store.restore_topic(TOPIC, URL, take_over=True)
    assert values(left.log) == expected(0, 6)
    left.append(4)
    left.archive_and_drop()
    assert values(left.log) == expected(0, 10)


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_cut_the_topic_is_there_whole_or_not_at_all(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimulatedFileSystem()
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.archive_and_drop()
    bench.store.close()
    other = ArchivedStore(fs, data=NEW)
    cut_at = fs.calls + rng.randrange(1, 260)
    left: list[SimulatedFileSystem] = []

    def watch(_operation: str, _path: str) -> None:
        if fs.calls >= cut_at and not left:
            fs.watch = None
            left.append(fs.crash(rng))

    fs.watch = watch
    other.store.restore_topic(TOPIC, URL)
    after = left[0] if left else fs.crash(rng)

    again = ArchivedStore(after, data=NEW)
    if TOPIC not in again.store.topics():
        assert not [e.name for e in after.list(NEW) if e.name.startswith(TOPIC)]
        again.store.restore_topic(TOPIC, URL)
    assert values(again.log) == expected(0, 12)
    assert again.store.damages() == []


# --- under another name, foreseen, given up ------------------------------------------------------


def test_under_a_new_name_it_is_another_topic(lost: ArchivedStore, fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs, data=NEW)
    original = bench.store.restore_topic(TOPIC, URL, take_over=True)

    again = bench.store.restore_topic(TOPIC, URL, to_timestamp_ms=5000, new_name="before")

    assert values(again.partition(0)) == expected(0, 5)
    assert again.topic_id != original.topic_id
    assert (original.config.archive_url, again.config.archive_url) == (URL, None)
    assert bench.store.group("slow").committed("before", 0) is None
    assert bench.store.group("slow").committed(TOPIC, 0) == 2
    bench.append(8)
    assert bench.store.archive_now()[0].last_error is None  # the archive is still the original's
    bench.store.close()
    reopened = ArchivedStore(fs, data=NEW).store
    assert values(reopened.topic("before").partition(0)) == expected(0, 5)


def test_a_name_that_is_taken_or_cannot_be_is_refused_before_anything_is_fetched(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)
    bench.store.create_topic("taken")

    with pytest.raises(TopicExistsError):
        bench.store.restore_topic(TOPIC, URL, new_name="taken")
    with pytest.raises(InvalidTopicNameError):
        bench.store.restore_topic(TOPIC, URL, new_name="a/b")

    assert bench.store.topics() == ["taken"]


@pytest.mark.parametrize("to_timestamp_ms", [None, 0, 1000, 5500, 8000, 10**12])
def test_what_is_foreseen_comes_back(
    lost: ArchivedStore, fs: SimulatedFileSystem, to_timestamp_ms: int | None
) -> None:
    with OpenedArchive(URL, cache_bytes=MIB, fs=fs) as archive:
        [foreseen] = archive.explain_restore(TOPIC, to_timestamp_ms=to_timestamp_ms)
    bench = ArchivedStore(fs, data=NEW)
    progress = WorkProgress()

    topic = bench.store.restore_topic(
        TOPIC, URL, to_timestamp_ms=to_timestamp_ms, progress=progress
    )

    log = topic.partition(0)
    assert (foreseen.start_offset, foreseen.end_offset) == (log.start_offset, log.end_offset)
    assert foreseen.archived_end == 12
    assert foreseen.segments == sum(1 for segment in log.segments() if segment.size_bytes)
    assert progress.so_far().done <= foreseen.fetched_bytes <= (progress.so_far().total or 0)


def test_a_store_that_closes_gives_a_restore_up_and_has_nothing_of_it(
    lost: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data=NEW)
    closer = threading.Thread(target=bench.store.close)

    class Watched(WorkProgress):
        def add(self, count: int) -> None:
            if not closer.ident:
                closer.start()
                assert bench.archives._stopping.wait(60)

    with pytest.raises(LogClosedError):
        bench.store.restore_topic(TOPIC, URL, progress=Watched())

    closer.join(60)
    assert not closer.is_alive()
    reopened = ArchivedStore(fs, data=NEW).store
    assert reopened.topics() == []
    assert values(reopened.restore_topic(TOPIC, URL).partition(0)) == expected(0, 12)


# --- transactions -------------------------------------------------------------------------------


def transactional(producer_id: int, sequence: int, second: int, value: bytes) -> bytearray:
    return client_batch(
        value,
        timestamps=[second * 1000],
        producer_id=producer_id,
        producer_epoch=0,
        sequence=sequence,
        transactional=True,
    )


def end_transaction(log: PartitionLog, producer_id: int, second: int, *, is_abort: bool) -> None:
    marker = MarkerFacts(
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=3,
        offset=Offset(0),
        timestamp=TimestampMs(second * 1000),
        is_abort=is_abort,
    )
    batch = marker_batch(
        producer_id, coordinator_epoch=3, is_abort=is_abort, timestamp=second * 1000
    )
    log.batches.append_marker(batch, marker)


@pytest.fixture
def overlapping(fs: SimulatedFileSystem) -> ArchivedStore:
    """Three transactions that overlap, each record a second after the one before.

    offset   0  1  2  3  4  5  6  7  8  9  10
    7        a     b  C
    8           x        y     z  C
    9                       p        q   A
    """
    bench = ArchivedStore(fs)
    log = bench.create(segment_records=2)
    log.batches.append_batch(transactional(7, 0, 1, b"a"))
    log.batches.append_batch(transactional(8, 0, 2, b"x"))
    log.batches.append_batch(transactional(7, 1, 3, b"b"))
    end_transaction(log, 7, 4, is_abort=False)
    log.batches.append_batch(transactional(8, 1, 5, b"y"))
    log.batches.append_batch(transactional(9, 0, 6, b"p"))
    log.batches.append_batch(transactional(8, 2, 7, b"z"))
    end_transaction(log, 8, 8, is_abort=False)
    log.batches.append_batch(transactional(9, 1, 9, b"q"))
    end_transaction(log, 9, 10, is_abort=True)
    bench.append(4, first_timestamp_ms=11_000)
    bench.archive_and_drop()
    bench.store.close()
    return bench


COMMITTED = {4: b"ab", 8: b"abxyz"}  # what was committed, by the second of the marker


@pytest.mark.parametrize("second", range(1, 11))
def test_a_transaction_that_is_open_at_the_point_in_time_is_aborted(
    overlapping: ArchivedStore, fs: SimulatedFileSystem, second: int
) -> None:
    bench = ArchivedStore(fs, data=NEW)

    topic = bench.store.restore_topic(TOPIC, URL, to_timestamp_ms=second * 1000)
    log = topic.partition(0)

    open_then = [
        producer
        for producer, first, last in ((7, 1, 4), (8, 2, 8), (9, 6, 10))
        if first <= second < last
    ]
    assert log.end_offset == second + len(open_then), "a marker for each open transaction"
    assert log.last_stable_offset == log.end_offset
    committed = max((v for at, v in COMMITTED.items() if at <= second), key=len, default=b"")
    seen = b"".join(r.value or b"" for r in log.read(isolation="read_committed"))
    assert sorted(seen) == sorted(committed)
    assert [r.value for r in log.read()] == [
        v for at, v in enumerate([b"a", b"x", b"b", None, b"y", b"p", b"z", None, b"q"], start=1)
        if at <= second and v is not None
    ]  # fmt: skip
    for producer in open_then:
        with pytest.raises(InvalidProducerEpochError):
            log.batches.append_batch(transactional(producer, 5, second, b"late"))
    log.append(b"after", timestamp_ms=20_000)

    for after in (fs.kill(), fs.crash(random.Random(second))):
        again = ArchivedStore(after, data=NEW).log
        assert again.last_stable_offset == again.end_offset == second + len(open_then) + 1
        found = b"".join(r.value or b"" for r in again.read(isolation="read_committed"))
        assert found == seen + b"after"
    bench.store.close()
    again = ArchivedStore(fs, data=NEW).log
    assert again.last_stable_offset == again.end_offset == second + len(open_then) + 1


def test_a_transaction_whose_marker_was_not_archived_is_aborted_by_a_whole_restore(
    fs: SimulatedFileSystem,
) -> None:
    """The segment was archived after the marker was written, and the marker was lost."""
    bench = ArchivedStore(fs)
    log = bench.create(segment_records=2)
    log.batches.append_batch(transactional(7, 0, 1, b"a"))
    log.batches.append_batch(transactional(7, 1, 2, b"b"))
    end_transaction(log, 7, 3, is_abort=False)
    bench.archive_and_drop()
    bench.store.close()

    restored = ArchivedStore(fs, data=NEW).store.restore_topic(TOPIC, URL).partition(0)

    assert restored.end_offset == 3
    assert restored.last_stable_offset == 3
    assert list(restored.read(isolation="read_committed")) == []
