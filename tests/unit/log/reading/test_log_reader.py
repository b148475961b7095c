"""Reading a log: by offset, by time, by key, as records, as Arrow, as ranges of a file."""

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from cordwood.errors import ConfigError, InvalidTimestampError, OffsetOutOfRangeError
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.arrow_scan import split
from cordwood.log.reading.file_range import FileRange, read_range
from cordwood.log.reading.time_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, find_time
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import INT64_MAX, Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store

SIZE = len(client_batch(b"v00"))


def value(number: int) -> bytes:
    return b"v%02d" % number


def make(
    *, per_segment: int = 4, config: dict[str, object] | None = None
) -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    settings: dict[str, object] = {
        "internal.segment.bytes": per_segment * SIZE,
        "index.interval.bytes": SIZE,
    }
    return fs, new_log(fs, settings | (config or {}), clock=clock)[1]


def fill(log: PartitionLog, count: int) -> PartitionLog:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value(number))
    return log


@pytest.fixture
def log() -> PartitionLog:
    """Twenty records, four to a segment."""
    return fill(make()[1], 20)


# --- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(21))
def test_reading_starts_at_any_offset_and_crosses_segments(log: PartitionLog, start: int) -> None:
    assert [(r.offset, r.value) for r in log.read(start)] == [
        (n, value(n)) for n in range(start, 20)
    ]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 0, 0), (3, 9, 6), (3, 3, 0), (9, 3, 0), (3, 1000, 17), (20, 25, 0), (0, 1, 1)],
)
def test_reading_stops_where_it_is_told(
    log: PartitionLog, start: int, stop: int, expected: int
) -> None:
    offsets = [record.offset for record in log.read(start, stop=stop)]

    assert offsets == list(range(start, start + expected))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 20, 100])
def test_reading_takes_as_many_records_as_it_is_told(log: PartitionLog, count: int) -> None:
    assert [r.offset for r in log.read(2, max_records=count)] == list(range(2, 20))[:count]


def test_reading_from_the_middle_of_a_batch_leaves_out_what_is_before() -> None:
    _, log = make(per_segment=50)
    log.append_many([(None, value(n)) for n in range(10)])

    assert [r.offset for r in log.read(7)] == [7, 8, 9]
    assert [r.offset for r in log.read(2, stop=5)] == [2, 3, 4]


def test_reading_outside_fails_at_once_and_not_at_the_first_record(log: PartitionLog) -> None:
    for read in (log.read, log.scan, log.follow):
        with pytest.raises(OffsetOutOfRangeError):
            read(21)
        with pytest.raises(OffsetOutOfRangeError):
            read(-1)


def test_what_is_appended_while_reading_is_not_read(log: PartitionLog) -> None:
    reading = log.read(18)
    next(reading)
    fill(log, 5)

    assert [record.offset for record in reading] == [19]


def test_compressed_and_plain_batches_mix() -> None:
    _, log = make(per_segment=100)
    for number, codec in enumerate((0, 1, 2, 3, 4, 0)):
        log.append_batch(client_batch(value(number), codec=Codec(codec)))

    assert [record.value for record in log.read()] == [value(n) for n in range(6)]


# --- Arrow --------------------------------------------------------------------------------------


def offsets_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (3, 9), (4, 8), (19, 20), (20, None)])
def test_a_scan_holds_the_same_records(
    log: PartitionLog, start: int, stop: int | None, threads: int
) -> None:
    batches = list(log.scan(start, stop, threads=threads))

    rows = [row for batch in batches for row in batch.to_pylist()]
    records = list(log.read(start, stop=stop))
    assert [(row["offset"], row["value"], row["key"]) for row in rows] == [
        (r.offset, r.value, r.key) for r in records
    ]


def test_a_scan_of_some_columns_has_only_those(log: PartitionLog) -> None:
    [batch] = log.scan(columns=["value", "offset"])

    assert batch.schema.names == ["value", "offset"]


def test_a_scan_of_unknown_columns_is_refused_at_once(log: PartitionLog) -> None:
    with pytest.raises(ConfigError):
        log.scan(columns=["vlaue"])


def test_an_empty_range_is_no_batch_at_all(log: PartitionLog) -> None:
    assert list(log.scan(5, 5)) == []
    assert list(log.scan(20)) == []


@pytest.mark.parametrize("target_bytes", [1, SIZE, 3 * SIZE, 1000 * SIZE])
@pytest.mark.parametrize(("start", "stop"), [(0, 20), (3, 17), (5, 5), (4, 8)])
def test_a_range_is_split_into_consecutive_parts(
    log: PartitionLog, target_bytes: int, start: int, stop: int
) -> None:
    parts = split(log.view().segments, Offset(start), Offset(stop), target_bytes=target_bytes)

    offsets = [o for first, end in parts for o in range(first, end)]
    assert offsets == list(range(start, stop))
    assert all(first < end for first, end in parts)


# --- ranges of a file ---------------------------------------------------------------------------


def bytes_of(part: FileRange) -> bytes:
    return part.file.read_at(part.position, part.length)


@pytest.mark.parametrize("offset", range(20))
def test_a_range_begins_with_the_batch_that_holds_the_offset(
    log: PartitionLog, offset: int
) -> None:
    part = read_range(log.source, offset, max_bytes=1 << 20)

    assert part is not None
    assert part.base_offset == offset
    header = decode_batch_header(bytes_of(part))
    assert header.base_offset == offset
    assert part.length == (4 - offset % 4) * SIZE, "up to the end of the segment"


def test_a_range_may_begin_before_the_offset() -> None:
    _, log = make(per_segment=50)
    log.append_many([(None, value(n)) for n in range(10)])

    part = read_range(log.source, 7, max_bytes=1000)

    assert part is not None
    assert part.base_offset == 0


@pytest.mark.parametrize(
    ("max_bytes", "min_one", "expected"),
    [
        (1, True, SIZE),
        (1, False, None),
        (SIZE, False, SIZE),
        (SIZE + 5, True, SIZE + 5),
        (3 * SIZE, True, 3 * SIZE),
        (1 << 30, True, 4 * SIZE),
    ],
)
def test_a_range_is_cut_at_the_bytes_asked_for_but_holds_one_batch(
    log: PartitionLog, max_bytes: int, min_one: bool, expected: int | None
) -> None:
    part = read_range(log.source, 4, max_bytes=max_bytes, min_one_batch=min_one)

    assert (None if part is None else part.length) == expected


def test_a_range_at_the_end_is_none_and_behind_it_an_error(log: PartitionLog) -> None:
    assert read_range(log.source, 20, max_bytes=100) is None
    with pytest.raises(OffsetOutOfRangeError):
        read_range(log.source, 21, max_bytes=100)


@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_range_never_reaches_past_the_high_watermark(is_rolled: bool) -> None:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    log = new_log(fs, clock=clock, flusher=IdleFlusher())[1]
    log.append(value(0))
    log.append_batch(client_batch(value(1)), wait=False)
    if is_rolled:
        log.roll()
        log.append_batch(client_batch(value(2)), wait=False)
    assert log.high_watermark == 1

    part = read_range(log.source, 0, max_bytes=1 << 20)

    assert part is not None
    assert part.length == SIZE


def test_a_range_goes_on_in_the_next_segment_over_a_gap() -> None:
    fs, log = make(config={"cleanup.policy": "compact"})
    for number in range(9):
        log.append(value(number), key=b"k")
    size = len(client_batch(b"v00", keys=[b"k"]))
    [first] = [s for s in log.segments() if s.base_offset == 0]
    fs.open_write(first.path).truncate_to(size)
    log = log_of(open_store(fs.kill()))

    part = read_range(log.source, 2, max_bytes=size)

    assert part is not None
    assert part.base_offset == first.next_offset


# --- times --------------------------------------------------------------------------------------


def dated(*times: int, per_batch: int = 1, per_segment: int = 3) -> PartitionLog:
    _, log = make(per_segment=100, config={"index.interval.bytes": 0})
    for start in range(0, len(times), per_batch):
        part = times[start : start + per_batch]
        log.append_many([Record(b"x", timestamp_ms=time) for time in part])
        if (start // per_batch + 1) % per_segment == 0:
            log.roll()
    return log


TIMES = (50, 10, 30, 90, 90, 20, 70, 120, 100, 5)


@pytest.mark.parametrize("target", [0, 1, 5, 10, 11, 49, 50, 51, 90, 91, 119, 120, 121, 10**15])
@pytest.mark.parametrize("per_batch", [1, 2, 5])
@pytest.mark.parametrize("per_segment", [1, 2, 100])
def test_a_time_finds_the_first_record_at_or_after_it(
    target: int, per_batch: int, per_segment: int
) -> None:
    log = dated(*TIMES, per_batch=per_batch, per_segment=per_segment)

    expected = [n for n, time in enumerate(TIMES) if time >= target]
    assert log.offset_for_time(target) == (expected[0] if expected else None)


@pytest.mark.parametrize("per_batch", [1, 3])
@pytest.mark.parametrize("times", [TIMES, (5, 5, 5), (-1, -1), (-1, 3, -1), (9,), tuple(range(9))])
@pytest.mark.parametrize("per_segment", [1, 2, 100])
def test_the_largest_time_is_that_of_the_first_record_that_has_it(
    times: tuple[int, ...], per_batch: int, per_segment: int
) -> None:
    log = dated(*times, per_batch=per_batch, per_segment=per_segment)

    largest = max(times)
    expected = None if largest < 0 else times.index(largest)
    assert log.offset_for_time(MAX_TIMESTAMP) == expected
    match = find_time(log.source, MAX_TIMESTAMP)
    assert (None if match is None else match.timestamp_ms) == (None if largest < 0 else largest)


def test_special_times_are_the_ends_of_the_log(log: PartitionLog) -> None:
    log.delete_before(3)

    assert log.offset_for_time(LATEST) == 20
    assert log.offset_for_time(EARLIEST) == 3


@pytest.mark.parametrize("time", [-4, -5, -100])
def test_other_negative_times_have_no_meaning(log: PartitionLog, time: int) -> None:
    with pytest.raises(InvalidTimestampError):
        log.offset_for_time(time)


def test_a_time_finds_nothing_below_the_start() -> None:
    log = dated(*TIMES)
    log.delete_before(4)

    assert log.offset_for_time(40) == 4
    assert log.offset_for_time(15) == 4
    assert log.offset_for_time(MAX_TIMESTAMP) == 7


def test_an_empty_log_has_no_times() -> None:
    _, log = make()

    assert log.offset_for_time(0) is None
    assert log.offset_for_time(MAX_TIMESTAMP) is None
    assert (log.offset_for_time(LATEST), log.offset_for_time(EARLIEST)) == (0, 0)


def test_times_are_found_after_a_restart() -> None:
    fs, log = make(per_segment=100, config={"index.interval.bytes": 0})
    for time in TIMES:
        log.append(b"x", timestamp_ms=time)
    after = log_of(open_store(fs.kill()))

    assert after.offset_for_time(100) == 7
    assert after.offset_for_time(MAX_TIMESTAMP) == 7


def test_a_marker_has_a_time_as_in_kafka_and_reading_goes_on_behind_it() -> None:
    _, log = make(per_segment=100)
    log.append_batch(
        client_batch(b"t", producer_id=7, sequence=0, transactional=True, timestamps=[5])
    )
    log.append_marker(
        marker_batch(7, timestamp=NOW),
        MarkerFacts(
            producer_id=ProducerId(7),
            producer_epoch=0,
            coordinator_epoch=0,
            offset=Offset(0),
            timestamp=TimestampMs(NOW),
            is_abort=False,
        ),
    )

    log.append(b"after")

    assert log.offset_for_time(6) == 1
    assert [r.value for r in log.read(1)] == [b"after"]


# --- keys ---------------------------------------------------------------------------------------


def test_the_newest_record_of_a_key_is_found_in_whatever_segment() -> None:
    _, log = make()
    for number in range(12):
        log.append(value(number), key=b"k%d" % (number % 5))
    log.append(None, key=b"k0")

    found = log.find(b"k1")
    assert found is not None
    assert (found.offset, found.value) == (11, value(11))
    tombstone = log.find(b"k0")
    assert tombstone is not None
    assert (tombstone.offset, tombstone.value) == (12, None)
    assert log.find(b"k") is None
    assert log.find(b"") is None


def test_a_key_is_not_found_below_the_start() -> None:
    _, log = make()
    log.append(b"x", key=b"a")
    fill(log, 5)

    log.delete_before(1)

    assert log.find(b"a") is None


# --- together with a writer ---------------------------------------------------------------------


def test_readers_beside_a_writer_never_see_past_the_high_watermark_nor_a_gap() -> None:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    log = new_log(fs, {"internal.segment.bytes": 5 * SIZE, "durability": "os"}, clock=clock)[1]
    stop = threading.Event()
    faults: list[object] = []

    def read(look: Callable[[], list[int]]) -> None:
        try:
            while not stop.is_set():
                offsets = look()
                if offsets != list(range(len(offsets))):
                    faults.append(offsets)
        except Exception as error:
            faults.append(error)

    readers = [
        threading.Thread(target=read, args=(lambda: [r.offset for r in log.read(0)],)),
        threading.Thread(target=read, args=(lambda: [*offsets_of(list(log.scan(0)))],)),
    ]
    for thread in readers:
        thread.start()
    fill(log, 60)
    stop.set()
    for thread in readers:
        thread.join()

    assert faults == []


def test_segments_say_what_they_hold(log: PartitionLog) -> None:
    segments = log.segments()

    assert [s.base_offset for s in segments] == [0, 4, 8, 12, 16]
    assert [s.next_offset for s in segments] == [4, 8, 12, 16, 20]
    assert sum(s.size_bytes for s in segments) == log.size_bytes == 20 * SIZE
    assert log.offset_for_time(INT64_MAX) is None
