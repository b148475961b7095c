from __future__ import annotations

from pathlib import Path

import pytest

from bench.grown_store import (
    PER_BATCH,
    Shape,
    closed_store,
    crashed_store,
    logs_of,
    open_ms,
    opened_store,
    random_read_us,
    recovery_ms,
    scan_us,
)
from bench.growth_rows import growth_row


def test_a_row_of_growth_compares_the_largest_with_the_smallest_run_by_run() -> None:
    costs = {1000: [6.0, 9.0], 10: [2.0, 3.0], 100: [2.5, 2.5]}

    row = growth_row("open, by segments", "segments", "µs", costs)

    assert row.cordwood.values == (3.0, 3.0)
    assert row.line is not None
    assert row.line.sizes == (10.0, 100.0, 1000.0)
    assert row.line.costs == ((2.0, 3.0), (2.5, 2.5), (6.0, 9.0))


@pytest.mark.parametrize(("last", "is_reached"), [(2.9, True), (3.1, False), (100.0, False)])
def test_a_cost_that_grows_faster_than_a_logarithm_falls_short(
    last: float, is_reached: bool
) -> None:
    row = growth_row("open", "segments", "µs", {10: [1.0], 100: [1.5], 1000: [last]})

    assert row.is_reached is is_reached


def test_growth_may_be_told_from_a_later_size_on() -> None:
    row = growth_row("scan", "bytes", "ns", {16: [50.0], 1024: [2.0], 4096: [3.0]}, first=1024)

    assert row.cordwood.values == (1.5,)


def test_a_store_has_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    shape = Shape(batches=3, partitions=2, segment_batches=1)

    path = closed_store(tmp_path, shape)

    with opened_store(path) as store:
        logs = logs_of(store)
        assert [log.end_offset for log in logs] == [3 * PER_BATCH] * 2
        assert len(logs[0].segments()) >= 3


def test_a_crashed_store_is_recovered_with_all_its_records_as_often_as_one_likes(
    tmp_path: Path,
) -> None:
    path = crashed_store(tmp_path, Shape(batches=4, unsynced_batches=2))
    kept = sorted(each.name for each in path.rglob("*"))

    assert recovery_ms(path) > 0
    assert recovery_ms(path) > 0

    assert sorted(each.name for each in path.rglob("*")) == kept
    with opened_store(path) as store:
        assert logs_of(store)[0].end_offset == 4 * PER_BATCH


def test_work_on_a_store_reads_what_it_claims_to(tmp_path: Path) -> None:
    path = closed_store(tmp_path, Shape(batches=2, partitions=2))

    assert open_ms(path) > 0
    with opened_store(path) as store:
        assert scan_us(store) > 0
        assert random_read_us(store, 20) > 0
