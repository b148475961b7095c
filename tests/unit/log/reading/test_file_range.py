"""Finding batches as ranges of bytes in a file."""

import pytest

from cordwood.errors import OffsetOutOfRangeError
from cordwood.format.batch_header import decode_batch_header
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange, read_range
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.numbered_log import SIZE, make, value
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store


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
    log.batches.append_batch(client_batch(value(1)), wait=False)
    if is_rolled:
        log.roll()
        log.batches.append_batch(client_batch(value(2)), wait=False)
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
