"""The suite of the console: its rows, and a store of the size that it says."""

from pathlib import Path

import cordwood
from bench.__main__ import SUITES
from bench.console import _fill, _fill_with_json, row_makers


def test_the_suite_has_a_row_for_each_reach() -> None:
    assert "console" in SUITES
    assert list(row_makers()) == ["pages", "clients of the broker", "search", "live tail"]


def test_the_store_has_the_groups_and_partitions_that_the_rows_name(tmp_path: Path) -> None:
    _fill(tmp_path / "data", topics=2)

    with cordwood.open(tmp_path / "data") as store:
        assert sum(len(store.topic(name).partitions) for name in store.topics()) == 200
        assert len(store.groups()) == 1_000


def test_a_search_counts_the_bytes_of_keys_and_values(tmp_path: Path) -> None:
    size = _fill_with_json(tmp_path / "data", 10_000)

    with cordwood.open(tmp_path / "data") as store:
        records = list(store.topic("orders").partition(0).read(0))
        assert size == sum(len(each.key or b"") + len(each.value or b"") for each in records)
