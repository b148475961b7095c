"""Reading a log by offset and by key, also while it is written."""

import threading
from collections.abc import Callable

import pytest

from cordwood.errors import OffsetOutOfRangeError
from cordwood.format.compression import Codec
from cordwood.log.partition.partition_log import PartitionLog
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.numbered_log import SIZE, fill, make, value
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log


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
        log.batches.append_batch(client_batch(value(number), codec=Codec(codec)))

    assert [record.value for record in log.read()] == [value(n) for n in range(6)]


# --- keys ----------------------------------------------------------------------------------------


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


# --- together with a writer ----------------------------------------------------------------------


def scanned_offsets(log: PartitionLog) -> list[int]:
    return [row["offset"] for batch in log.scan(0) for row in batch.to_pylist()]


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
        threading.Thread(target=read, args=(lambda: scanned_offsets(log),)),
    ]
    for thread in readers:
        thread.start()
    fill(log, 60)
    stop.set()
    for thread in readers:
        thread.join()

    assert faults == []
