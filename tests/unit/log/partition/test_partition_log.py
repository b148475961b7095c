"""A partition's log for its writer: order, visibility, durability, rolling, cutting."""

import errno
import gc
import logging
import random
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    ConfigError,
    CorruptSegmentError,
    DiskFullError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogClosedError,
    LogFailedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TransactionCoordinatorFencedError,
    UnexpectedOffsetError,
)
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import INT64_MAX, Offset, ProducerId, TimestampMs
from cordwood.storage.files import read_whole
from cordwood.storage.segment_parts.segment_indexes import SegmentIndexes
from fakes.client_batches import NOW, client_batch, marker_batch, raw_batch, raw_record
from fakes.manual_clock import ManualClock
from fakes.resident_size import resident_bytes
from fakes.simulated_fs import ShortWrite, SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store
from fakes.without_collector import without_collector

DIRECTORY = "/data/events-0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


@pytest.fixture
def log(fs: SimulatedFileSystem, clock: ManualClock) -> PartitionLog:
    return new_log(fs, clock=clock)[1]


def make(
    fs: SimulatedFileSystem,
    clock: ManualClock | None = None,
    flusher: IdleFlusher | None = None,
    **config: object,
) -> PartitionLog:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return new_log(fs, settings, clock=clock, flusher=flusher)[1]


def values(log: LogReader, start: int | None = None) -> list[bytes | None]:
    return [record.value for record in log.read(start)]


def bases(log: LogReader) -> list[int]:
    return [segment.base_offset for segment in log.segments()]


def append_all(log: PartitionLog, count: int) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(b"v%d" % number)


def names(fs: SimulatedFileSystem) -> set[str]:
    return {entry.name for entry in fs.list(DIRECTORY)}


def marker(
    producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0, is_abort: bool = False
) -> MarkerFacts:
    return MarkerFacts(
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        offset=Offset(0),
        timestamp=TimestampMs(NOW),
        is_abort=is_abort,
    )


def end_transaction(
    log: PartitionLog,
    producer_id: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_abort: bool = False,
) -> Offset:
    batch = marker_batch(
        producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_abort=is_abort,
    )
    return log.batches.append_marker(
        batch,
        marker(producer_id, epoch=epoch, coordinator_epoch=coordinator_epoch, is_abort=is_abort),
    )


# --- appending and reading back -----------------------------------------------------------------


def test_a_new_log_is_empty_and_usable(log: PartitionLog) -> None:
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 0, 0)
    assert values(log) == []
    log.sync()
    assert log.roll() == 0
    assert log.append(b"first").offset == 0


def test_offsets_are_given_in_order_and_records_come_back(
    log: PartitionLog, clock: ManualClock
) -> None:
    first = log.append(b"a", key=b"k", headers=[("h", b"x")], timestamp_ms=NOW - 5)
    clock.advance(3)
    second = log.append(None)

    assert (first.offset, first.timestamp_ms) == (0, NOW - 5)
    assert (second.offset, second.timestamp_ms) == (1, NOW + 3)
    assert list(log.read()) == [
        Record(b"a", b"k", [("h", b"x")], NOW - 5, 0),
        Record(None, None, [], NOW + 3, 1),
    ]


def test_many_records_take_consecutive_offsets(log: PartitionLog) -> None:
    log.append(b"x")

    where = log.append_many([(b"k1", b"1"), Record(b"2"), (None, None)])

    assert (where.first_offset, where.next_offset, where.count) == (1, 4, 3)
    assert values(log) == [b"x", b"1", b"2", None]


def test_appending_nothing_changes_nothing(log: PartitionLog) -> None:
    where = log.append_many([])

    assert where.count == 0
    assert log.end_offset == 0


def test_a_batch_from_a_client_is_given_its_place(log: PartitionLog) -> None:
    log.append(b"x")

    where = log.batches.append_batch(client_batch(b"a", b"b"))

    assert (where.base_offset, where.last_offset, where.is_duplicate) == (1, 2, False)
    assert values(log) == [b"x", b"a", b"b"]


def test_a_batch_that_fails_its_checks_leaves_the_log_alone(log: PartitionLog) -> None:
    batch = client_batch(b"a")
    batch[-1] ^= 1

    with pytest.raises(Exception, match="checksum"):
        log.batches.append_batch(batch)

    assert log.end_offset == 0
    assert log.size_bytes == 0


def test_the_batch_on_disk_is_the_client_s_with_offset_and_epoch(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    log.append(b"x")
    batch = client_batch(b"a", b"b")
    log.batches.append_batch(bytes(batch), leader_epoch=3)

    stored = read_whole(fs, f"{DIRECTORY}/{0:020}.log", limit=10_000)[-len(batch) :]

    header = decode_batch_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 3)
    assert stored[16:] == batch[16:]


def test_random_bytes_never_get_into_the_log(log: PartitionLog) -> None:
    rng = random.Random(5)
    log.append(b"before")
    for _ in range(100):
        junk = rng.randbytes(rng.randrange(300))
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever it says, it refuses
            log.batches.append_batch(junk)

    log.append(b"after")

    assert values(log) == [b"before", b"after"]


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_an_expected_offset_that_is_not_the_next_is_refused(
    log: PartitionLog, expected: int
) -> None:
    append_all(log, 2)

    with pytest.raises(UnexpectedOffsetError) as caught:
        log.append(b"x", expected_offset=expected)
    with pytest.raises(UnexpectedOffsetError):
        log.append_many([(None, b"x")], expected_offset=expected)

    assert (caught.value.expected, caught.value.actual) == (expected, 2)
    assert log.end_offset == 2
    assert log.append(b"x", expected_offset=2).offset == 2
    assert log.append_many([(None, b"y")], expected_offset=3).first_offset == 3


def test_a_record_larger_than_the_topic_takes_is_refused(fs: SimulatedFileSystem) -> None:
    log = make(fs, max_message_bytes=1000)

    with pytest.raises(RecordTooLargeError):
        log.append(b"x" * 2000)
    with pytest.raises(RecordTooLargeError):
        log.batches.append_batch(client_batch(b"x" * 2000))

    assert log.append(b"x" * 800).offset == 0


def test_append_many_is_all_or_nothing(fs: SimulatedFileSystem) -> None:
    log = make(fs, max_message_bytes=1000)
    log.append(b"before")

    with pytest.raises(RecordTooLargeError):
        log.append_many([(None, b"x" * 500)] * 5 + [(None, b"y" * 2000)])

    assert values(log) == [b"before"]
    assert log.append(b"after").offset == 1
    assert values(log) == [b"before", b"after"]


@pytest.mark.parametrize("bad", ["text", 5, (b"k",)])
def test_append_many_with_an_item_of_another_kind_is_refused_whole(
    log: PartitionLog, bad: object
) -> None:
    with pytest.raises(TypeError):
        log.append_many([(None, b"x"), bad])

    assert log.end_offset == 0


def test_append_many_over_segments_that_fails_is_taken_back_whole(fs: SimulatedFileSystem) -> None:
    log = make(fs, internal_segment_bytes=400, max_message_bytes=400)
    append_all(log, 2)

    with pytest.raises(RecordTooLargeError):
        log.append_many([(None, b"x" * 250)] * 6 + [(None, b"y" * 500)])

    assert values(log) == [b"v0", b"v1"]
    append_all(log, 3)
    assert values(log) == [b"v0", b"v1", b"v2", b"v3", b"v4"]


@pytest.mark.parametrize("segment_bytes", [1_000, 1_500, 4_000, 1_000_000])
def test_append_many_fills_segments_as_if_each_batch_came_by_itself(
    fs: SimulatedFileSystem, segment_bytes: int
) -> None:
    log = make(fs, internal_segment_bytes=segment_bytes, max_message_bytes=500)
    expected = [b"%d" % n * 40 for n in range(60)]

    where = log.append_many([(None, value) for value in expected])

    assert (where.first_offset, where.next_offset) == (0, 60)
    assert values(log) == expected
    assert all(segment.size <= segment_bytes for segment in log.state.segments)
    assert [log.get(n).value for n in range(60)] == expected  # type: ignore[union-attr]
    single = make(SimulatedFileSystem(), internal_segment_bytes=segment_bytes)
    for batch in build_batches(
        [(None, value) for value in expected], TimestampMs(NOW), BatchStyle(bytes_max=500)
    ):
        single.batches.append_batch(bytes(batch.data))
    assert [s.base_offset for s in log.state.segments] == [
        s.base_offset for s in single.state.segments
    ]


def test_a_batch_larger_than_a_segment_is_refused(fs: SimulatedFileSystem) -> None:
    log = make(fs, internal_segment_bytes=200)

    with pytest.raises(RecordTooLargeError) as caught:
        log.batches.append_batch(client_batch(b"x" * 300))

    assert caught.value.key == "segment.bytes"


def test_a_compacted_topic_wants_keys(fs: SimulatedFileSystem) -> None:
    log = make(fs, cleanup_policy="compact")

    with pytest.raises(InvalidRecordError):
        log.append(b"x")
    with pytest.raises(InvalidRecordError) as caught:
        log.append_many([(b"k", b"1"), Record(b"2", key=b"k"), (None, b"3")])
    with pytest.raises(InvalidRecordError):
        log.batches.append_batch(client_batch(b"x"))

    assert [index for index, _ in caught.value.record_errors] == [2]
    assert log.end_offset == 0
    assert log.append(None, key=b"k").offset == 0


@pytest.mark.parametrize("time", [NOW + 3_600_001, -2, -5])
def test_a_time_the_topic_does_not_take_is_refused(log: PartitionLog, time: int) -> None:
    with pytest.raises(InvalidTimestampError):
        log.append(b"x", timestamp_ms=time)
    with pytest.raises(InvalidTimestampError):
        log.append_many([Record(b"y"), Record(b"x", timestamp_ms=time)])

    assert log.end_offset == 0
    assert log.append(b"no time", timestamp_ms=-1).timestamp_ms == -1


def test_with_log_append_time_the_answer_carries_the_time_of_the_append(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, message_timestamp_type="LogAppendTime")

    assert log.append(b"x", timestamp_ms=5).timestamp_ms == NOW
    assert log.batches.append_batch(client_batch(b"y", timestamps=[5])).timestamp_ms == NOW
    assert [record.timestamp_ms for record in log.read()] == [NOW, NOW]


def test_reads_outside_the_log_say_what_there_is(log: PartitionLog) -> None:
    append_all(log, 5)
    log.deletion.delete_before(2)

    for offset in (-1, 0, 1, 6, 100):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset)
        assert (caught.value.requested, caught.value.start, caught.value.end) == (offset, 2, 5)
    assert values(log, 5) == []


# --- closing ------------------------------------------------------------------------------------


def test_a_closed_log_refuses_everything_and_closing_again_is_nothing(log: PartitionLog) -> None:
    log.append(b"x")
    log.close()
    log.close()

    calls: list[Callable[[], object]] = [
        lambda: log.append(b"y"),
        lambda: log.append_many([(None, b"y")]),
        lambda: log.batches.append_batch(client_batch(b"y")),
        log.roll,
        log.sync,
        lambda: log.truncation.truncate_to(0),
        lambda: log.deletion.delete_before(1),
    ]
    for call in calls:
        with pytest.raises(LogClosedError):
            call()


# --- visibility and durability ------------------------------------------------------------------


def test_with_durability_disk_a_record_is_synced_before_it_is_acknowledged(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    for number in range(5):
        log.append(b"v%d" % number)
        assert (log.state.durable, log.high_watermark) == (number + 1, number + 1)
        for seed in range(5):
            store = open_store(fs.crash(random.Random(seed)))
            assert values(log_of(store)) == [b"v%d" % n for n in range(number + 1)]
            assert store.damages() == []


def test_with_durability_os_nothing_is_synced_and_all_is_visible_at_once(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    before = [call for call in fs.call_log if call[0] == "sync"]

    append_all(log, 5)

    assert [call for call in fs.call_log if call[0] == "sync"] == before
    assert (log.state.durable, log.high_watermark, log.end_offset) == (0, 5, 5)
    log.sync()
    assert log.state.durable == 5


def test_with_durability_disk_nobody_sees_what_is_not_synced(fs: SimulatedFileSystem) -> None:
    flusher = IdleFlusher()
    log = make(fs, flusher=flusher)
    log.append(b"seen")
    log.batches.append_batch(client_batch(b"unsynced"), wait=False)

    assert (log.high_watermark, log.end_offset) == (1, 2)
    assert values(log) == [b"seen"]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2)
    log.syncing.sync_pending()
    assert values(log) == [b"seen", b"unsynced"]


def test_flush_messages_bounds_what_is_not_synced(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os", flush_messages=3)

    durable = []
    for number in range(7):
        log.append(b"v%d" % number)
        durable.append(log.state.durable)

    assert durable == [0, 0, 3, 3, 3, 6, 6]


def test_flush_ms_is_honoured_by_the_housekeeping(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, durability="os", flush_ms=1000)
    append_all(log, 2)

    clock.advance(999)
    log.syncing.flush_if_due()
    early = log.state.durable
    clock.advance(1)
    log.syncing.flush_if_due()

    assert (early, log.state.durable) == (0, 2)


def test_a_failed_sync_stops_the_log_and_reading_goes_on(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    log.append(b"durable")
    fs.fail_next("sync", OSError(errno.EIO, "injected"), path_ends=".log")

    with pytest.raises(LogFailedError, match="injected"):
        log.append(b"unknown")

    assert log.state.failure is not None
    for _ in range(2):
        with pytest.raises(LogFailedError):
            log.append(b"refused")
    assert values(log) == [b"durable"]
    store.close()
    again = log_of(open_store(fs))
    assert values(again)[0] == b"durable"
    assert again.append(b"works").offset == again.end_offset - 1


def test_a_failed_log_does_not_leave_a_clean_mark(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    fs.fail_next("sync", OSError(errno.EIO, "injected"), path_ends=".log")
    with pytest.raises(LogFailedError):
        log.append(b"x")

    store.close()

    assert not fs.exists("/data/.kafka_cleanshutdown")


def test_a_full_disk_refuses_the_append_and_works_again_with_room(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.append(b"before")
    fs.capacity_bytes = fs.capacity_bytes or (1 << 30)
    fs.capacity_bytes = _used(fs) + 30

    with pytest.raises(DiskFullError):
        log.append(b"x" * 500)
    with pytest.raises(DiskFullError):
        log.append_many([(None, b"x" * 500)] * 3)
    with pytest.raises(DiskFullError):
        log.batches.append_batch(client_batch(b"x" * 500))

    assert values(log) == [b"before"]
    assert log.size_bytes == fs.size(f"{DIRECTORY}/{0:020}.log"), "no half batch is left"
    fs.capacity_bytes = None
    assert log.append(b"after").offset == 1
    assert values(log) == [b"before", b"after"]


def _used(fs: SimulatedFileSystem) -> int:
    fs.capacity_bytes = 1 << 40
    used = fs.capacity_bytes - fs.room_bytes()
    return used


def test_a_full_disk_at_a_roll_refuses_the_append_too(fs: SimulatedFileSystem) -> None:
    log = make(fs, internal_segment_bytes=150)
    log.append(b"x" * 50)
    fs.fail_next("create", OSError(errno.ENOSPC, "full"), path_ends=".log")

    with pytest.raises(DiskFullError):
        log.append(b"y" * 50)

    assert log.append(b"z" * 50).offset == 1
    assert values(log) == [b"x" * 50, b"z" * 50]


def test_a_write_error_in_the_middle_is_undone(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    log.append(b"before")
    fs.fail_next("write_at", ShortWrite(10), path_ends=".log")
    fs.fail_next("write_at", OSError(errno.EFBIG, "injected"), path_ends=".log")

    with pytest.raises(OSError, match="injected"):
        log.append(b"half")

    assert log.append(b"after").offset == 1
    assert values(log) == [b"before", b"after"]


def test_short_writes_are_completed(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    for size in (1, 10, 60):
        fs.fail_next("write_at", ShortWrite(size), path_ends=".log")

    append_all(log, 4)

    assert values(log) == [b"v0", b"v1", b"v2", b"v3"]


def test_what_cannot_be_undone_stops_the_log(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    log.append(b"before")
    fs.fail_next("write_at", ShortWrite(10), path_ends=".log")
    fs.fail_next("write_at", OSError(errno.EIO, "injected"), path_ends=".log")
    fs.fail_next("truncate_to", OSError(errno.EIO, "injected too"), path_ends=".log")

    with pytest.raises(OSError, match="injected"):
        log.append(b"half")

    with pytest.raises(LogFailedError):
        log.append(b"refused")
    assert values(log) == [b"before"]


def test_many_threads_share_syncs_and_every_record_is_there_once(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("events")
        places: list[int] = []

        def work(number: int) -> None:
            for count in range(20):
                places.append(topic.append(b"%d-%d" % (number, count)).offset)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        found = [record.value for record in topic.partition(0).read()]
        assert sorted(places) == list(range(160))
        assert sorted(v or b"" for v in found) == sorted(
            b"%d-%d" % (n, c) for n in range(8) for c in range(20)
        )
        for number in range(8):
            own = [v for v in found if v and v.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, c) for c in range(20)], "each thread in its order"


# --- rolling ------------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_it_outgrows_its_bytes(fs: SimulatedFileSystem) -> None:
    size = len(client_batch(b"v0"))
    log = make(fs, internal_segment_bytes=3 * size)

    append_all(log, 10)

    assert bases(log) == [0, 3, 6, 9]
    assert values(log) == [b"v%d" % n for n in range(10)]
    assert [s.state for s in log.segments()] == ["sealed"] * 3 + ["active"]
    assert all(s.size_bytes <= 3 * size for s in log.segments())


def test_many_rolls_with_tiny_segments(fs: SimulatedFileSystem) -> None:
    log = make(fs, internal_segment_bytes=len(client_batch(b"v0")))

    append_all(log, 10)

    assert bases(log) == list(range(10))
    assert values(log, 7) == [b"v7", b"v8", b"v9"]


def test_a_segment_is_rolled_by_the_time_of_its_records(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, segment_ms=1000)
    log.append(b"a")
    log.append(b"b", timestamp_ms=NOW + 1000)
    log.append(b"c", timestamp_ms=NOW + 1001)

    assert bases(log) == [0, 2]


def test_records_without_times_are_rolled_by_the_wall_clock(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, segment_ms=1000)
    log.append(b"a", timestamp_ms=-1)
    clock.advance(1001)
    log.append(b"b", timestamp_ms=-1)

    assert bases(log) == [0, 1]


def test_an_idle_segment_is_rolled_by_the_timer(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, segment_ms=1000)
    assert not log.rolling.roll_if_due()
    log.append(b"a")
    clock.advance(1000)
    early = log.rolling.roll_if_due()
    clock.advance(1)

    assert not early
    assert log.rolling.roll_if_due()
    assert bases(log) == [0, 1]
    clock.advance(5000)
    assert not log.rolling.roll_if_due(), "an empty segment does not age"


def test_a_segment_is_rolled_by_count(fs: SimulatedFileSystem) -> None:
    log = make(fs, segment_records=3)
    append_all(log, 4)
    log.append_many([(None, b"x")] * 2)
    log.append_many([(None, b"y")] * 2)

    assert bases(log) == [0, 3, 6]


def test_a_count_survives_a_restart(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {"segment.records": 3})
    append_all(log, 2)
    store.close()

    log = log_of(open_store(fs))
    append_all(log, 2)

    assert bases(log) == [0, 3]


def test_a_segment_is_rolled_when_an_index_is_full(fs: SimulatedFileSystem) -> None:
    log = make(fs, segment_index_bytes=24, index_interval_bytes=0)

    append_all(log, 12)

    assert len(bases(log)) > 2
    assert values(log) == [b"v%d" % n for n in range(12)]
    for base in bases(log):
        assert fs.size(f"{DIRECTORY}/{base:020}.index") <= 24
        assert fs.size(f"{DIRECTORY}/{base:020}.timeindex") <= 24


@pytest.mark.parametrize("index_bytes", range(24, 40))
def test_every_legal_index_size_can_be_used_and_opened_again(
    fs: SimulatedFileSystem, clock: ManualClock, index_bytes: int
) -> None:
    config: dict[str, object] = {"segment.index.bytes": index_bytes, "index.interval.bytes": 0}
    store, log = new_log(fs, config, clock=clock)
    append_all(log, 3)
    clock.advance(1)
    append_all(log, 3)

    crashed = log_of(open_store(fs.kill(), clock=clock))
    store.close()
    log = log_of(open_store(fs, clock=clock))
    append_all(log, 2)

    assert values(crashed) == [b"v%d" % n for n in range(6)]
    assert values(log) == [b"v%d" % n for n in range(8)]


@pytest.mark.parametrize("index_bytes", [4, 8, 11, 12, 23])
def test_an_index_without_room_for_its_last_entry_is_refused(
    fs: SimulatedFileSystem, index_bytes: int
) -> None:
    with pytest.raises(ConfigError, match=r"segment\.index\.bytes"):
        make(fs, segment_index_bytes=index_bytes)


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_index_limit_below_what_an_index_holds_rolls_the_segment(
    fs: SimulatedFileSystem, clock: ManualClock, is_killed: bool
) -> None:
    store, log = new_log(fs, {"index.interval.bytes": 0}, clock=clock)
    for _ in range(10):
        append_all(log, 1)
        clock.advance(1)
    store.alter_topic("events", config={"segment.index.bytes": 24})
    append_all(log, 1)
    if is_killed:
        fs = fs.kill()
    else:
        store.close()

    store = open_store(fs, clock=clock)
    log = log_of(store)
    append_all(log, 3)
    store.close()

    log = log_of(open_store(fs, clock=clock))
    assert values(log) == [b"v%d" % n for n in range(14)]
    assert bases(log)[:2] == [0, 11], "the indexes were full"
    assert log.offset_for_time(NOW + 7) == 7


def test_a_segment_is_rolled_before_an_offset_no_index_can_hold(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.truncation.truncate_fully_and_start_at(0)
    log.append(b"a")
    log._holder.commit(log.state._replace(end=Offset(2**31 - 1)))
    log.append(b"b")
    log.append(b"c")

    assert bases(log) == [0, 2**31]


def test_rolling_by_hand_seals_what_there_is(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    assert log.roll() == 0, "an empty segment is not rolled"
    append_all(log, 2)

    assert log.roll() == 2
    assert log.roll() == 2
    assert bases(log) == [0, 2]
    assert f"{2:020}.snapshot" in names(fs)
    append_all(log, 1)
    assert values(log) == [b"v0", b"v1", b"v2"]


def test_a_leftover_file_with_the_name_of_a_new_segment_is_emptied(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    append_all(log, 2)
    for kind in ("log", "index", "timeindex"):
        fs.create(f"{DIRECTORY}/{2:020}.{kind}").write_at(0, b"leftover")

    log.roll()
    append_all(log, 1)

    assert values(log) == [b"v0", b"v1", b"v2"]


def test_what_was_rolled_is_durable_soon_even_with_durability_os(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    append_all(log, 3)

    log.roll()

    assert log.state.durable == 3


def test_a_log_whose_first_name_may_not_be_durable_fails_at_its_roll(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    append_all(log, 3)
    fs.fail_next("sync_directory", OSError(errno.EIO, "injected"))

    with pytest.raises(OSError, match="injected"):
        log.roll()

    with pytest.raises(LogFailedError, match="a sync failed"):
        log.append(b"later")
    assert len(log.segments()) == 1


def test_segment_facts_are_shown(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = make(fs, clock)
    log.append(b"a", timestamp_ms=NOW - 10)
    log.append(b"b", timestamp_ms=NOW - 20)
    log.roll()

    sealed, active = log.segments()

    assert (sealed.base_offset, sealed.next_offset) == (0, 2)
    assert (sealed.first_timestamp_ms, sealed.last_timestamp_ms) == (NOW - 10, NOW - 10)
    assert sealed.size_bytes == fs.size(sealed.path)
    assert (active.state, active.first_timestamp_ms, active.last_timestamp_ms) == (
        "active",
        None,
        None,
    )


# --- truncation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(11))
@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_log_is_cut_at_any_offset_and_goes_on_there(offset: int, is_reopened: bool) -> None:
    fs = SimulatedFileSystem()
    size = len(client_batch(b"v0"))
    store, log = new_log(fs, {"internal.segment.bytes": 3 * size, "index.interval.bytes": 0})
    append_all(log, 10)

    log.truncation.truncate_to(offset)
    if is_reopened:
        store.close()
        store = open_store(fs)
        log = log_of(store)

    assert (log.end_offset, log.high_watermark) == (offset, offset)
    assert values(log) == [b"v%d" % n for n in range(offset)]
    append_all(log, 5)
    assert values(log) == [b"v%d" % n for n in range(offset + 5)]
    assert store.damages() == []


def test_cutting_inside_a_batch_takes_the_whole_batch(log: PartitionLog) -> None:
    log.append(b"a")
    log.append_many([(None, b"b"), (None, b"c"), (None, b"d")])

    log.truncation.truncate_to(3)

    assert (log.end_offset, values(log)) == (1, [b"a"])


@pytest.mark.parametrize("is_deleted", [False, True])
def test_cutting_in_a_gap_that_compaction_made_ends_the_log_there(
    fs: SimulatedFileSystem, is_deleted: bool
) -> None:
    store, log = new_log(fs, {"cleanup.policy": "compact", "internal.segment.bytes": 700})
    for _ in range(2):
        for number in range(6):
            log.append(b"v%d" % number, key=b"k")
        log.roll()
    store.compact("events", force=True)
    assert bases(log) == [0, 6, 12]
    if is_deleted:
        log.delete_before(3)

    log.truncation.truncate_to(5)

    assert log.end_offset == log.high_watermark == 5
    assert log.start_offset == (3 if is_deleted else 0)
    assert values(log) == []
    assert log.append(b"next", key=b"k").offset == 5
    again = open_store(fs.kill())
    assert values(log_of(again)) == [b"next"]
    assert again.damages() == []


def test_cutting_a_batch_that_reaches_below_the_start_leaves_an_empty_log(
    log: PartitionLog,
) -> None:
    log.append_many([(None, b"%d" % n) for n in range(6)])
    log.deletion.delete_before(3)

    log.truncation.truncate_to(4)

    assert log.start_offset <= log.high_watermark <= log.end_offset
    assert values(log) == []
    where = log.append(b"x")
    assert values(log) == [b"x"]
    assert where.offset >= 3


def test_cutting_below_the_start_is_refused_and_behind_the_end_is_nothing(
    log: PartitionLog,
) -> None:
    append_all(log, 5)
    log.deletion.delete_before(3)

    with pytest.raises(OffsetOutOfRangeError):
        log.truncation.truncate_to(2)
    log.truncation.truncate_to(5)
    log.truncation.truncate_to(100)

    assert values(log) == [b"v3", b"v4"]


def test_a_cut_lowers_the_recovery_point_and_the_durable_mark(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    append_all(log, 5)
    store.maintain()
    assert log.state.recovery_point == 5

    log.truncation.truncate_to(2)

    assert log.state.recovery_point <= 2
    assert log.state.durable == 2
    text = read_whole(fs, "/data/recovery-point-offset-checkpoint", limit=1000).decode()
    assert f"events 0 {log.state.recovery_point}" in text


def test_the_largest_time_is_read_again_after_a_cut(log: PartitionLog) -> None:
    for time in (NOW - 30, NOW, NOW - 20):
        log.append(b"x", timestamp_ms=time)
    assert log.offset_for_time(-3) == 1

    log.truncation.truncate_to(1)

    assert log.offset_for_time(-3) == 0
    assert log.segments()[-1].last_timestamp_ms == NOW - 30


def test_a_full_cut_resets_the_age_of_the_segment(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = make(fs, clock, segment_ms=1000)
    log.append(b"a")
    log.truncation.truncate_to(0)
    clock.advance(2000)
    log.append(b"b")
    log.append(b"c", timestamp_ms=NOW + 2500)

    assert bases(log) == [0]


def test_a_log_can_be_emptied_and_started_anywhere(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {"internal.segment.bytes": 150})
    append_all(log, 6)

    log.truncation.truncate_fully_and_start_at(100)
    log.append(b"x")

    assert (log.start_offset, log.end_offset, bases(log)) == (100, 101, [100])
    assert {name for name in names(fs) if name.endswith(".log")} == {f"{100:020}.log"}
    store.close()
    again = log_of(open_store(fs))
    assert (again.start_offset, values(again)) == (100, [b"x"])


def test_an_emptied_log_forgets_its_producers_for_good(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    for sequence in range(10):
        log.batches.append_batch(client_batch(b"old", producer_id=7, sequence=sequence))
    store.maintain()  # a snapshot at 10

    log.truncation.truncate_fully_and_start_at(5)
    append_all(log, 10)
    again = log_of(open_store(fs.kill()))

    where = again.batches.append_batch(client_batch(b"any", producer_id=7, sequence=77))
    assert where.base_offset == 15, "a producer that is not known may start anywhere"


# --- deletion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(11))
def test_records_before_an_offset_are_deleted_and_do_not_come_back(offset: int) -> None:
    fs = SimulatedFileSystem()
    size = len(client_batch(b"v0"))
    store, log = new_log(fs, {"internal.segment.bytes": 3 * size})
    append_all(log, 10)

    assert log.deletion.delete_before(offset) == offset

    assert log.start_offset == offset
    assert values(log) == [b"v%d" % n for n in range(offset, 10)]
    expected = [base for base in (0, 3, 6, 9) if base + 3 > offset or base == 9]
    assert bases(log) == expected
    for after in (fs.kill(), *(fs.crash(random.Random(seed)) for seed in range(4))):
        again = log_of(open_store(after))
        assert (again.start_offset, values(again)) == (
            offset,
            [b"v%d" % n for n in range(offset, 10)],
        )
    store.close()
    assert log_of(open_store(fs)).start_offset == offset


@pytest.mark.parametrize("offset", [-1, 6, 100])
def test_the_start_cannot_pass_the_high_watermark(log: PartitionLog, offset: int) -> None:
    append_all(log, 5)

    with pytest.raises(OffsetOutOfRangeError):
        log.deletion.delete_before(offset)

    assert log.start_offset == 0


def test_the_start_never_goes_back(log: PartitionLog) -> None:
    append_all(log, 5)
    log.deletion.delete_before(3)

    assert log.deletion.delete_before(1) == 3


def test_deleted_files_are_renamed_at_once_and_unlinked_later(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store, log = new_log(
        fs, {"internal.segment.bytes": 100, "file.delete.delay.ms": 500}, clock=clock
    )
    append_all(log, 3)
    log.deletion.delete_before(2)
    renamed = names(fs)
    clock.advance(499)
    store.maintain()
    early = names(fs)
    clock.advance(1)
    store.maintain()

    assert f"{0:020}.log.deleted" in renamed & early
    assert f"{0:020}.log" not in renamed
    assert not [name for name in names(fs) if name.endswith(".deleted")]


def test_a_reader_finishes_on_a_segment_that_is_deleted_under_it(fs: SimulatedFileSystem) -> None:
    log = make(fs, internal_segment_bytes=10_000)
    log.append_many([(None, b"%d" % n) for n in range(100)])
    log.roll()
    log.append(b"last")
    reading = log.read()
    first = next(reading)

    log.deletion.delete_before(100)

    assert first.value == b"0"
    rest = []
    try:
        rest += [record.value for record in reading]
    except OffsetOutOfRangeError as error:
        assert error.start == 100
    assert rest == [b"%d" % n for n in range(1, len(rest) + 1)] or rest[-1] == b"last"


def test_a_deleted_segment_that_nobody_reads_is_let_go(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    for _ in range(3):
        append_all(log, 1)
        log.roll()
    assert len(values(log)) == 3
    deleted = [weakref.ref(segment.handles) for segment in list(log.state.segments)[:2]]

    log.deletion.drop_local_before(2)
    gc.collect()

    assert [reference() for reference in deleted] == [None, None]


@pytest.mark.skipif(sys.platform != "linux", reason="the resident size is in /proc")
def test_a_thread_that_appends_little_keeps_little(log: PartitionLog) -> None:
    """Its buffer has room for 1.3 MB."""
    count = 32
    appended, measured = threading.Barrier(count + 1), threading.Event()

    def append() -> None:
        log.append_many([(b"key", b"value")])
        appended.wait()
        measured.wait()

    threads = [threading.Thread(target=append) for _ in range(count)]
    before = resident_bytes()
    for thread in threads:
        thread.start()
    appended.wait()
    grown = resident_bytes() - before
    measured.set()
    for thread in threads:
        thread.join()

    assert grown < count * 600_000  # stacks and all


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_the_log_of_a_deleted_topic_is_freed_without_a_search_for_garbage(
    fs: SimulatedFileSystem, durability: str
) -> None:
    store, log = new_log(fs, {"durability": durability})
    append_all(log, 3)
    log.append_many([(b"key", b"value")])
    log.roll()
    log.append(b"last")
    assert len(values(log)) == 5
    assert log.find_damages() == []
    kept = weakref.ref(log)

    with without_collector():
        del log
        store.delete_topic("events")

        assert kept() is None


def test_deletion_survives_another_partition_s_checkpoint_and_a_power_cut() -> None:
    fs = SimulatedFileSystem()
    store = open_store(fs)
    config: dict[str, object] = {"internal.segment.bytes": 100}
    for name in ("events", "other"):
        store.create_topic(name, config=config)
        append_all(log_of(store, name), 4)
    log_of(store).deletion.delete_before(3)

    log_of(store, "other").delete_before(1)

    for seed in range(30):
        again = open_store(fs.crash(random.Random(seed)))
        assert log_of(again).start_offset == 3
        assert log_of(again, "other").start_offset == 1
        assert again.damages() == []


# --- producers ----------------------------------------------------------------------------------


def test_a_batch_sent_again_is_stored_once(log: PartitionLog) -> None:
    first = log.batches.append_batch(client_batch(b"a", b"b", producer_id=7, sequence=0))
    log.append(b"x")

    again = log.batches.append_batch(client_batch(b"a", b"b", producer_id=7, sequence=0))

    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert values(log) == [b"a", b"b", b"x"]


def test_the_last_five_batches_are_known_and_the_sixth_is_out_of_order(log: PartitionLog) -> None:
    for sequence in range(6):
        log.batches.append_batch(client_batch(b"%d" % sequence, producer_id=7, sequence=sequence))

    for sequence in range(1, 6):
        where = log.batches.append_batch(
            client_batch(b"%d" % sequence, producer_id=7, sequence=sequence)
        )
        assert (where.is_duplicate, where.base_offset) == (True, sequence)
    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(client_batch(b"0", producer_id=7, sequence=0))


def test_producers_do_not_mix(log: PartitionLog) -> None:
    log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0))
    log.batches.append_batch(client_batch(b"b", producer_id=8, sequence=0))

    assert log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0)).base_offset == 0
    assert log.batches.append_batch(client_batch(b"b", producer_id=8, sequence=0)).base_offset == 1


@pytest.mark.parametrize("sequence", [0, 3, 100])
def test_a_gap_or_a_repeat_of_a_part_is_refused(log: PartitionLog, sequence: int) -> None:
    log.batches.append_batch(client_batch(b"a", b"b", producer_id=7, sequence=0))

    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(client_batch(b"c", producer_id=7, sequence=sequence))

    assert log.end_offset == 2


def test_an_old_epoch_is_refused_and_a_new_one_starts_at_zero(log: PartitionLog) -> None:
    log.batches.append_batch(client_batch(b"a", producer_id=7, producer_epoch=2, sequence=0))

    with pytest.raises(InvalidProducerEpochError):
        log.batches.append_batch(client_batch(b"b", producer_id=7, producer_epoch=1, sequence=1))
    with pytest.raises(OutOfOrderSequenceError):
        log.batches.append_batch(client_batch(b"b", producer_id=7, producer_epoch=3, sequence=1))
    log.batches.append_batch(client_batch(b"b", producer_id=7, producer_epoch=3, sequence=0))

    assert values(log) == [b"a", b"b"]


def test_a_duplicate_is_acknowledged_only_when_the_first_copy_is_durable(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, flusher=IdleFlusher())
    log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0), wait=False)
    assert log.state.durable == 0

    again = log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0))

    assert again.is_duplicate
    assert log.state.durable == 1


def test_a_batch_whose_write_failed_may_be_sent_again(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    fs.fail_next("write_at", OSError(errno.EFBIG, "injected"), path_ends=".log")
    with pytest.raises(OSError, match="injected"):
        log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0))

    where = log.batches.append_batch(client_batch(b"a", producer_id=7, sequence=0))

    assert (where.base_offset, where.is_duplicate) == (0, False)


@pytest.mark.parametrize("how", ["close", "kill", "crash"])
@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_producers_are_known_after_a_restart(
    how: str, is_rolled: bool, is_checkpointed: bool
) -> None:
    for seed in range(10 if how == "crash" else 1):
        fs = SimulatedFileSystem()
        store, log = new_log(fs)
        for sequence in range(3):
            log.batches.append_batch(
                client_batch(b"%d" % sequence, producer_id=7, sequence=sequence)
            )
        if is_rolled:
            log.roll()
        if is_checkpointed:
            store.maintain()
        if how == "close":
            store.close()
        after = fs.kill() if how == "kill" else fs
        after = fs.crash(random.Random(seed)) if how == "crash" else after

        again = log_of(open_store(after))

        repeated = again.batches.append_batch(client_batch(b"2", producer_id=7, sequence=2))
        assert (repeated.is_duplicate, repeated.base_offset) == (True, 2)
        with pytest.raises(OutOfOrderSequenceError):
            again.batches.append_batch(client_batch(b"9", producer_id=7, sequence=9))
        assert (
            again.batches.append_batch(client_batch(b"3", producer_id=7, sequence=3)).base_offset
            == 3
        )


def test_producers_are_those_of_the_shorter_log_after_a_cut(log: PartitionLog) -> None:
    for sequence in range(4):
        log.batches.append_batch(client_batch(b"%d" % sequence, producer_id=7, sequence=sequence))
    log.roll()
    log.batches.append_batch(client_batch(b"4", producer_id=7, sequence=4))

    log.truncation.truncate_to(2)

    assert log.batches.append_batch(client_batch(b"2", producer_id=7, sequence=2)).base_offset == 2
    assert log.batches.append_batch(client_batch(b"1", producer_id=7, sequence=1)).is_duplicate


def test_sequences_go_round(log: PartitionLog) -> None:
    largest = 2**31 - 1
    log.batches.append_batch(client_batch(b"a", b"b", producer_id=7, sequence=largest - 1))

    log.batches.append_batch(client_batch(b"c", producer_id=7, sequence=0))

    assert values(log) == [b"a", b"b", b"c"]


# --- transactions -------------------------------------------------------------------------------


def transactional(log: PartitionLog, producer_id: int, sequence: int, value: bytes = b"t") -> int:
    return log.batches.append_batch(
        client_batch(value, producer_id=producer_id, sequence=sequence, transactional=True)
    ).base_offset


def test_the_last_stable_offset_is_where_the_first_open_transaction_begins(
    log: PartitionLog,
) -> None:
    log.append(b"plain")
    assert log.last_stable_offset == 1
    transactional(log, 7, 0)
    transactional(log, 8, 0)
    assert log.last_stable_offset == 1

    end_transaction(log, 7)
    assert log.last_stable_offset == 2
    end_transaction(log, 8)

    assert log.last_stable_offset == log.end_offset == 5


def test_markers_are_not_records(log: PartitionLog) -> None:
    transactional(log, 7, 0, b"data")
    end_transaction(log, 7)
    log.append(b"after")

    assert [(r.offset, r.value) for r in log.read()] == [(0, b"data"), (2, b"after")]


def test_a_plain_batch_in_an_open_transaction_is_refused(log: PartitionLog) -> None:
    transactional(log, 7, 0)

    with pytest.raises(InvalidTransactionStateError):
        log.batches.append_batch(client_batch(b"x", producer_id=7, sequence=1))


def test_a_replaced_coordinator_is_fenced(log: PartitionLog) -> None:
    transactional(log, 7, 0)
    end_transaction(log, 7, coordinator_epoch=5)
    end = log.end_offset

    with pytest.raises(TransactionCoordinatorFencedError):
        end_transaction(log, 7, coordinator_epoch=4)

    assert log.end_offset == end


def test_an_aborted_transaction_is_in_the_index_of_its_segment(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    transactional(log, 7, 0)
    log.roll()
    transactional(log, 7, 1)
    end_transaction(log, 7, is_abort=True)
    transactional(log, 8, 0)
    end_transaction(log, 8)
    log.roll()

    entries = [t for s in log.view().segments for t in s.indexes.transaction.entries()]
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in entries] == [(7, 0, 2)]
    assert {n for n in names(fs) if n.endswith(".txnindex")} == {f"{1:020}.txnindex"}


@pytest.mark.parametrize("how", ["close", "kill", "crash", "checkpoint and kill"])
def test_open_and_aborted_transactions_are_known_after_a_restart(how: str) -> None:
    for seed in range(10 if how == "crash" else 1):
        fs = SimulatedFileSystem()
        store, log = new_log(fs)
        transactional(log, 7, 0)
        end_transaction(log, 7, is_abort=True)
        transactional(log, 8, 0)
        if how == "checkpoint and kill":
            store.maintain()
        if how == "close":
            store.close()
        after = fs.crash(random.Random(seed)) if how == "crash" else fs.kill()

        again = log_of(open_store(after))

        # The open one belongs to nobody, so opening the store has ended it, where it began.
        assert again.last_stable_offset == 4
        entries = [t for s in again.view().segments for t in s.indexes.transaction.entries()]
        assert [(t.producer_id, t.first_offset, t.last_offset) for t in entries] == [
            (7, 0, 1),
            (8, 2, 3),
        ]


@pytest.mark.parametrize(
    ("suffix", "harm"), [("snapshot", "lost"), ("snapshot", "damaged"), ("txnindex", "damaged")]
)
@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_lost_producer_snapshots_and_damaged_transaction_indexes_are_made_anew(
    suffix: str, harm: str, is_rolled: bool, is_clean: bool
) -> None:
    if suffix == "snapshot" and is_clean and not is_rolled:
        pytest.skip("as in Kafka, a clean log without any snapshot is one without producers")
    fs = SimulatedFileSystem()
    store, log = new_log(fs, {"index.interval.bytes": 0})
    transactional(log, 7, 0)
    end_transaction(log, 7, is_abort=True)
    log.batches.append_batch(client_batch(b"x", producer_id=9, sequence=0))
    if is_rolled:
        log.roll()
        log.append(b"y")
    store.maintain()
    if is_clean:
        store.close()
    after = fs.kill()
    harmed = [entry for entry in after.list(DIRECTORY) if entry.name.endswith(suffix)]
    for entry in harmed[-1:]:
        path = f"{DIRECTORY}/{entry.name}"
        if harm == "lost":
            after.remove(path)
        else:
            file = after.open_write(path)
            file.write_at(0, b"\x7f" * (entry.size - 3))
            file.truncate_to(entry.size - 3)

    again = log_of(open_store(after))

    assert again.batches.append_batch(client_batch(b"x", producer_id=9, sequence=0)).is_duplicate
    entries = [t for s in again.view().segments for t in s.indexes.transaction.entries()]
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in entries] == [(7, 0, 1)]


def test_a_log_with_aborted_transactions_can_be_cut(log: PartitionLog) -> None:
    transactional(log, 7, 0)
    end_transaction(log, 7, is_abort=True)
    transactional(log, 7, 1)
    end_transaction(log, 7, is_abort=True)
    log.append(b"x")

    log.truncation.truncate_to(4)
    two = [t.last_offset for t in log.view().segments.active.indexes.transaction.entries()]
    log.truncation.truncate_to(3)
    one = [t.last_offset for t in log.view().segments.active.indexes.transaction.entries()]

    assert (two, one) == ([1, 3], [1])
    assert log.last_stable_offset == 2, "the second transaction is open again"


def test_the_last_stable_offset_is_not_below_the_start(log: PartitionLog) -> None:
    transactional(log, 7, 0)
    log.append(b"x")

    log.deletion.delete_before(2)

    assert log.last_stable_offset == 2


# --- leader epochs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "expected"), [(0, [(5, 0)]), (1, [(0, 0), (5, 1)]), (2, [(0, 0), (5, 2)])]
)
def test_after_a_truncation_the_log_continues_in_its_epoch(
    fs: SimulatedFileSystem, cut: int, expected: list[tuple[int, int]]
) -> None:
    _, log = new_log(fs)
    append_all(log, 2)
    log.batches.append_batch(client_batch(b"b"), leader_epoch=5)

    log.truncation.truncate_to(cut)
    log.append(b"x")

    assert [(e.epoch, e.start_offset) for e in log.epochs.known.entries] == expected
    assert log.epochs.known.epoch_of(Offset(cut)) == 5
    again = log_of(open_store(fs.kill()))
    assert [(e.epoch, e.start_offset) for e in again.epochs.known.entries] == expected


def test_an_emptied_log_continues_in_its_epoch(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    append_all(log, 2)

    log.truncation.truncate_fully_and_start_at(7)

    assert [(e.epoch, e.start_offset) for e in log.epochs.known.entries] == [(0, 7)]


def test_epochs_are_noted_where_they_begin_and_survive(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    log.append(b"a")
    log.batches.append_batch(client_batch(b"b"), leader_epoch=3)
    log.batches.append_batch(client_batch(b"c"), leader_epoch=3)
    log.batches.append_batch(client_batch(b"d"), leader_epoch=5)

    expected = [(0, 0), (3, 1), (5, 3)]
    assert [(e.epoch, e.start_offset) for e in log.epochs.known.entries] == expected
    for after in (fs.kill(), fs.crash(random.Random(2))):
        again = log_of(open_store(after))
        assert [(e.epoch, e.start_offset) for e in again.epochs.known.entries] == expected
    store.close()


def test_records_appended_after_a_new_epoch_belong_to_it(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    log.batches.append_batch(client_batch(b"a"), leader_epoch=3)
    log.append(b"b")

    data = read_whole(fs, f"{DIRECTORY}/{0:020}.log", limit=1000)
    first = decode_batch_header(data)

    assert decode_batch_header(data, first.size).leader_epoch == 3


def test_a_lost_epoch_file_is_made_anew_from_the_batches(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs)
    log.append(b"a")
    log.batches.append_batch(client_batch(b"b"), leader_epoch=3)
    after = fs.kill()
    after.remove(f"{DIRECTORY}/leader-epoch-checkpoint")

    again = log_of(open_store(after))

    entries = [(e.epoch, e.start_offset) for e in again.epochs.known.entries]
    assert entries == [(0, 0), (3, 1)]


def test_epochs_follow_a_cut_and_a_deletion(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    for epoch in range(4):
        log.batches.append_batch(client_batch(b"a", b"b"), leader_epoch=epoch)

    log.truncation.truncate_to(6)
    cut = [(e.epoch, e.start_offset) for e in log.epochs.known.entries]
    log.deletion.delete_before(3)
    deleted = [(e.epoch, e.start_offset) for e in log.epochs.known.entries]

    assert cut == [(0, 0), (1, 2), (2, 4), (3, 6)], "it is still written in epoch 3"
    assert deleted == [(1, 3), (2, 4), (3, 6)]
    store.close()
    again = log_of(open_store(fs))
    assert [(e.epoch, e.start_offset) for e in again.epochs.known.entries] == deleted


# --- following ----------------------------------------------------------------------------------


def test_following_replays_and_then_waits_until_the_log_is_closed(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("events").partition(0)
        assert isinstance(log, PartitionLog)
        append_all(log, 3)
        seen: list[bytes | None] = []
        reached = threading.Semaphore(0)

        def work() -> None:
            for record in log.follow(1):
                seen.append(record.value)
                reached.release()

        thread = threading.Thread(target=work)
        thread.start()
        append_all(log, 3)
        for _ in range(5):
            assert reached.acquire(timeout=60)
        log.close()
        thread.join(60)

        assert not thread.is_alive()
        assert seen == [b"v%d" % n for n in range(1, 6)]


def test_following_ends_after_an_idle_time(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("events").partition(0)
        assert isinstance(log, PartitionLog)
        append_all(log, 2)

        assert [r.value for r in log.follow(0, idle_timeout_ms=1)] == [b"v0", b"v1"]
        assert list(log.follow(idle_timeout_ms=1)) == []


# --- configuration ------------------------------------------------------------------------------


def test_a_new_configuration_counts_from_the_next_append(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)
    append_all(log, 2)

    store.alter_topic("events", config={"segment.records": 2, "max.message.bytes": 200})
    append_all(log, 1)

    assert bases(log) == [0, 2]
    with pytest.raises(RecordTooLargeError):
        log.append(b"x" * 500)


def test_a_promise_of_the_disk_covers_what_was_promised_less(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {"durability": "os"})
    append_all(log, 3)
    assert log.state.durable == 0

    store.alter_topic("events", config={"durability": "disk"})

    assert log.state.durable == 3


def test_an_impossible_configuration_is_refused(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs)

    with pytest.raises(ConfigError):
        store.alter_topic("events", config={"segment.bytes": 12})

    assert log.config.segment_bytes == 1 << 30


# --- damage -------------------------------------------------------------------------------------


def test_damage_under_a_running_log_is_reported_and_the_rest_can_be_read(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, index_interval_bytes=0)
    append_all(log, 6)
    size = len(client_batch(b"v0"))
    file = fs.open_write(f"{DIRECTORY}/{0:020}.log")
    file.write_at(3 * size - 2, b"!")

    with pytest.raises(CorruptSegmentError) as caught:
        values(log)

    assert (caught.value.first_offset, caught.value.next_offset) == (2, 3)
    assert caught.value.position == 2 * size
    assert [r.value for r in log.read(0, stop=2)] == [b"v0", b"v1"]
    assert values(log, 3) == [b"v3", b"v4", b"v5"]
    with pytest.raises(CorruptSegmentError) as caught:
        values(log, 2)
    assert (caught.value.first_offset, caught.value.next_offset) == (2, 3)


@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize("at", [5, 10, 50])
def test_a_log_with_damage_can_be_cut_before_at_and_behind_it(
    offset: int, is_rolled: bool, at: int
) -> None:
    fs = SimulatedFileSystem()
    log = make(fs, index_interval_bytes=0)
    append_all(log, 5)
    if is_rolled:
        log.roll()
        append_all(log, 2)
    size = len(client_batch(b"v0"))
    fs.open_write(f"{DIRECTORY}/{0:020}.log").write_at(2 * size + at, b"!!")

    log.truncation.truncate_to(offset)
    log.append(b"after")

    assert log.end_offset == offset + 1
    assert values(log, max(offset, 3) if offset > 2 else 0)[-1] == b"after"
    if offset <= 2:
        assert values(log) == [*[b"v%d" % n for n in range(offset)], b"after"]


def test_an_empty_batch_left_by_compaction_has_no_records(fs: SimulatedFileSystem) -> None:
    log = make(fs, cleanup_policy="compact")
    log.append(b"a", key=b"k")
    empty = raw_batch(b"", count=0, last_offset_delta=4, base_offset=1)
    file = fs.open_write(f"{DIRECTORY}/{0:020}.log")
    file.write_at(file.size(), bytes(empty))
    last = raw_batch(raw_record(b"z", key=b"k"), base_offset=10)
    file.write_at(file.size(), bytes(last))

    again = log_of(open_store(fs.kill()))

    assert [(r.offset, r.value) for r in again.read()] == [(0, b"a"), (10, b"z")]
    assert [(r.offset, r.value) for r in again.read(3)] == [(10, b"z")]
    assert again.end_offset == 11
    assert again.offset_for_time(INT64_MAX) is None


def test_index_entries_that_cannot_be_written_are_reported_once_and_then_their_end(
    fs: SimulatedFileSystem, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(fs, index_interval_bytes=1)
    flush = SegmentIndexes.flush

    def refuse(self: SegmentIndexes, **named: int) -> None:
        if self.has_many_unflushed:
            raise OSError(errno.ENOSPC, "No space left on device")

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as full:
        full.setattr(SegmentIndexes, "flush", refuse)
        append_all(log, 200)
    refused = [line for line in caplog.messages if "index entries" in line]
    append_all(log, 200)

    assert SegmentIndexes.flush is flush
    assert len(refused) == 1
    assert "will be tried again" in refused[0]
    lines = [line for line in caplog.messages if "index entries" in line]
    assert lines[1:] == ["events-0: index entries can be written again"]
