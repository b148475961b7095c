"""Finding records by time."""

import pytest

from cordwood.errors import InvalidTimestampError
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.time_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, find_time
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.numbered_log import make
from fakes.simulated_store import log_of, open_store


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
    log.batches.append_batch(
        client_batch(b"t", producer_id=7, sequence=0, transactional=True, timestamps=[5])
    )
    log.batches.append_marker(
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
