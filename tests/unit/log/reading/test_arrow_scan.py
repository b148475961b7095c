"""Reading a log as Arrow record batches."""

import pytest

from cordwood.errors import ConfigError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.arrow_scan import split
from cordwood.quantities import Offset
from fakes.numbered_log import SIZE


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
