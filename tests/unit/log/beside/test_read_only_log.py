"""A log read by those who do not own it: beside its writer, after its death, and Kafka's own."""

import threading
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import OffsetOutOfRangeError
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.small_files.checkpoint_file import write_epoch_checkpoint
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, new_log

DIRECTORY = "/data/events-0"
SIZE = len(client_batch(b"v00"))


def value(number: int) -> bytes:
    return b"v%02d" % number


def reader(
    fs: SimulatedFileSystem, *, log_start: int | None = None, allows_gaps: bool = False
) -> ReadOnlyLog:
    return ReadOnlyLog(
        fs,
        DIRECTORY,
        "events",
        0,
        handles=HandleCache(),
        log_start=None if log_start is None else Offset(log_start),
        allows_gaps=allows_gaps,
        was_compacted=allows_gaps,
    )


def fill(log: PartitionLog, count: int) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value(number))


def values(log: LogReader, start: int | None = None) -> list[bytes | None]:
    return [record.value for record in log.read(start)]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


@pytest.fixture
def log(fs: SimulatedFileSystem) -> PartitionLog:
    settings: dict[str, object] = {
        "internal.segment.bytes": 4 * SIZE,
        "index.interval.bytes": SIZE,
        "file.delete.delay.ms": 0,
    }
    return new_log(fs, settings, clock=ManualClock(NOW))[1]


def test_a_reader_sees_what_the_writer_has_acknowledged(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    beside = reader(fs)
    assert (beside.start_offset, beside.high_watermark, values(beside)) == (0, 0, [])

    for count in range(1, 15):
        fill(log, 1)
        assert beside.high_watermark == beside.end_offset == count
        assert values(beside) == [value(n) for n in range(count)]


def test_a_reader_writes_nothing_and_takes_no_lock(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 10)
    calls = len(fs.call_log)

    beside = reader(fs)
    values(beside)
    list(beside.scan())
    beside.offset_for_time(NOW)
    beside.find(b"x")
    beside.close()

    used = {operation for operation, _ in fs.call_log[calls:]}
    assert used <= {
        "list",
        "names",
        "open_read",
        "read_at",
        "read_into",
        "size",
        "map",
        "map_words",
        "exists",
    }


def test_a_reader_does_not_see_past_the_high_watermark(fs: SimulatedFileSystem) -> None:
    log = new_log(fs, clock=ManualClock(NOW), flusher=IdleFlusher())[1]
    log.append(value(0))
    log.batches.append_batch(client_batch(value(1)), wait=False)
    beside = reader(fs)

    assert values(beside) == [value(0)]
    with pytest.raises(OffsetOutOfRangeError):
        beside.read(2)
    part = read_range(beside.source, 0, max_bytes=1 << 20)
    assert part is not None
    assert part.length == SIZE
    assert read_range(beside.source, 1, max_bytes=1 << 20) is None


def test_half_a_batch_behind_the_high_watermark_disturbs_nobody(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 2)
    file = fs.open_write(f"{DIRECTORY}/{0:020}.log")
    file.write_at(2 * SIZE, bytes(client_batch(b"half", base_offset=2))[:40])
    beside = reader(fs)

    assert values(beside) == [value(0), value(1)]
    part = read_range(beside.source, 1, max_bytes=1 << 20)
    assert part is not None
    assert part.length == SIZE
    assert read_range(beside.source, 2, max_bytes=1 << 20) is None


def test_a_reader_follows_deletion_and_reads_what_is_left(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 12)
    beside = reader(fs)
    assert len(values(beside)) == 12

    log.delete_before(9)

    assert beside.start_offset == 9
    assert values(beside) == [value(9), value(10), value(11)]
    with pytest.raises(OffsetOutOfRangeError):
        beside.read(3)


def test_a_reader_that_slept_while_its_last_segment_was_deleted_looks_again(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 2)
    beside = reader(fs)
    fill(log, 10)
    log.delete_before(9)

    found = values(beside)

    assert beside.start_offset == 9
    assert found == [value(n) for n in range(9, 12)]


def test_a_reader_follows_truncation(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    fill(log, 12)
    beside = reader(fs)
    assert len(values(beside)) == 12

    log.truncation.truncate_to(5)
    cut = values(beside)
    log.append(b"other")

    assert cut == [value(n) for n in range(5)]
    assert values(beside, 4) == [value(4), b"other"]


@pytest.mark.parametrize("count", [1, 3, 4, 9])
@pytest.mark.parametrize("age", [0, 5, 8])
def test_times_are_found_in_what_no_index_shows_yet(
    fs: SimulatedFileSystem, log: PartitionLog, count: int, age: int
) -> None:
    for number in range(count):
        log.append(value(number), timestamp_ms=NOW - number)
    beside = reader(fs)

    assert beside.offset_for_time(NOW - age) == log.offset_for_time(NOW - age) == 0
    assert beside.offset_for_time(NOW + 1) is None
    assert beside.offset_for_time(-3) == 0
    assert beside.offset_for_time(-1) == count


def test_keys_are_found(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    for number in range(9):
        log.append(value(number), key=b"k%d" % (number % 2))

    found = reader(fs).find(b"k1")

    assert found is not None
    assert found.value == value(7)


def test_scans_and_parallel_scans_hold_the_same_records(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    fill(log, 15)
    beside = reader(fs)

    for threads in (1, 3):
        rows = [
            row["value"] for batch in beside.scan(2, threads=threads) for row in batch.to_pylist()
        ]
        assert rows == [value(n) for n in range(2, 15)]


# --- without a writer's mark --------------------------------------------------------------------


def kafka_like(fs: SimulatedFileSystem, log: PartitionLog, count: int) -> SimulatedFileSystem:
    fill(log, count)
    after = fs.kill()
    after.remove(f"{DIRECTORY}/high-watermark")
    return after


@pytest.mark.parametrize("count", [0, 1, 4, 10])
def test_without_a_published_mark_the_sound_batches_are_the_log(
    fs: SimulatedFileSystem, log: PartitionLog, count: int
) -> None:
    after = kafka_like(fs, log, count)

    found = reader(after)

    assert (found.start_offset, found.high_watermark) == (0, count)
    assert values(found) == [value(n) for n in range(count)]


@pytest.mark.parametrize("tail", [b"torn", bytes(100), bytes(client_batch(b"x"))[:50]])
def test_without_a_mark_a_torn_tail_is_not_part_of_the_log(
    fs: SimulatedFileSystem, log: PartitionLog, tail: bytes
) -> None:
    after = kafka_like(fs, log, 10)
    file = after.open_write(f"{DIRECTORY}/{8:020}.log")
    file.write_at(file.size(), tail)

    assert values(reader(after)) == [value(n) for n in range(10)]


def test_without_a_mark_the_growth_of_the_last_segment_is_seen(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    after = kafka_like(fs, log, 9)
    found = reader(after)
    assert found.high_watermark == 9

    file = after.open_write(f"{DIRECTORY}/{8:020}.log")
    file.write_at(file.size(), bytes(client_batch(value(9), base_offset=9)))

    assert found.high_watermark == 10
    assert values(found, 8) == [value(8), value(9)]


def test_kafka_s_preallocated_indexes_do_no_harm(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    after = kafka_like(fs, log, 10)
    for kind in ("index", "timeindex"):
        after.open_write(f"{DIRECTORY}/{8:020}.{kind}").truncate_to(10_000)

    found = reader(after)

    assert values(found) == [value(n) for n in range(10)]
    assert found.offset_for_time(NOW) == 0


def test_a_checkpointed_start_that_the_epochs_confirm_is_respected(
    fs: SimulatedFileSystem, log: PartitionLog
) -> None:
    after = kafka_like(fs, log, 10)
    write_epoch_checkpoint(
        after, DIRECTORY, [EpochEntry(epoch=LeaderEpoch(0), start_offset=Offset(6))]
    )

    found = reader(after, log_start=6)

    assert (found.start_offset, values(found)) == (6, [value(n) for n in range(6, 10)])


def test_a_directory_without_segments_is_said_to_be_missing(fs: SimulatedFileSystem) -> None:
    fs.make_directory(DIRECTORY)

    with pytest.raises(FileNotFoundError):
        reader(fs)


# --- in another thread or process ---------------------------------------------------------------


def test_following_sees_new_records_and_ends_when_closed(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("events")
        topic.append(b"0")
        with cordwood.open(tmp_path, read_only=True) as beside:
            log = beside.topic("events").partition(0)
            seen: list[bytes | None] = []
            enough = threading.Event()

            def work() -> None:
                for record in log.follow(0):
                    seen.append(record.value)
                    if len(seen) == 3:
                        enough.set()

            thread = threading.Thread(target=work)
            thread.start()
            topic.append(b"1")
            topic.append(b"2")
            assert enough.wait(60)
            log.close()
            thread.join(60)
            assert not thread.is_alive()
            assert seen == [b"0", b"1", b"2"]


def test_following_gives_up_after_an_idle_time(fs: SimulatedFileSystem, log: PartitionLog) -> None:
    fill(log, 2)

    assert [r.value for r in reader(fs).follow(0, idle_timeout_ms=1)] == [value(0), value(1)]
