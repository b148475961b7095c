"""A log is a sequence of records: length, index, slices, both directions; and Arrow."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

import cordwood

COUNT = 10_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cordwood.PartitionLog]:
    with cordwood.open(tmp_path_factory.mktemp("store")) as store:
        topic = store.create_topic("t", config={"segment.records": 700, "durability": "os"})
        for first in range(0, COUNT, 100):
            topic.append_many([(b"k", b"%d" % n) for n in range(first, first + 100)])
        yield topic.partition(0)


def _values(records: Iterator[cordwood.Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def test_length_and_iteration(log: cordwood.PartitionLog) -> None:
    assert len(log) == COUNT
    assert _values(iter(log)) == list(range(COUNT))
    assert _values(reversed(log)) == list(reversed(range(COUNT)))
    assert _values(iter(log)) == list(range(COUNT))


def test_negative_numbers_count_from_the_newest_record(log: cordwood.PartitionLog) -> None:
    assert [int(log[-n].value or b"") for n in (1, 2, 1000)] == [COUNT - 1, COUNT - 2, COUNT - 1000]
    with pytest.raises(IndexError, match="fewer than"):
        log[-COUNT - 1]


@pytest.mark.parametrize(
    "wanted",
    [
        slice(3, 9),
        slice(None, 4),
        slice(-5, None),
        slice(-5, -2),
        slice(9_990, 20_000),
        slice(9, 3),
        slice(None),
    ],
)
def test_slices_are_those_of_a_list(log: cordwood.PartitionLog, wanted: slice) -> None:
    expected = list(range(COUNT))[wanted]
    found = log[wanted]

    assert _values(iter(found)) == expected
    assert _values(reversed(found)) == expected[::-1]
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert found.to_arrow(columns=["offset"])["offset"].to_pylist() == expected


def test_a_slice_has_no_step(log: cordwood.PartitionLog) -> None:
    with pytest.raises(ValueError, match="reversed"):
        log[::2]


def test_an_empty_log_is_true_and_has_no_records(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t").partition(0)

        assert log
        assert len(log) == 0
        assert list(log) == list(reversed(log)) == list(log[:]) == []
        with pytest.raises(IndexError):
            log[-1]


def test_arrow_tables_and_streams_have_all_records(log: cordwood.PartitionLog) -> None:
    table = log.to_arrow()

    assert table["offset"].to_pylist() == list(range(COUNT))
    assert pa.table(log) == table
    assert log.arrow_reader(10, 20, columns=["value"]).read_all()["value"].to_pylist() == [
        b"%d" % n for n in range(10, 20)
    ]
    assert pa.table(log[5:7])["offset"].to_pylist() == [5, 6]


def test_other_libraries_read_a_log_in_one_line(log: cordwood.PartitionLog) -> None:
    pandas = pytest.importorskip("pandas")
    frame = log.to_arrow(columns=["offset", "value"]).to_pandas()

    assert isinstance(frame, pandas.DataFrame)
    assert frame["offset"].sum() == sum(range(COUNT))


def test_polars_reads_a_log(log: cordwood.PartitionLog) -> None:
    assert polars.DataFrame(log)["offset"].sum() == sum(range(COUNT))


def test_duckdb_reads_a_log(log: cordwood.PartitionLog) -> None:
    duckdb: Any = import_module("duckdb")
    orders = log.arrow_reader(columns=["offset"])

    found = duckdb.sql('select sum("offset") from orders').fetchall()
    assert found == [(sum(range(COUNT)),)]
    del orders


def test_representations_say_what_is_there(log: cordwood.PartitionLog) -> None:
    assert repr(log) == f"PartitionLog('t-0', offsets [0, {COUNT}))"
    assert repr(log[3:5]) == "LogRange('t-0', offsets [3, 5))"
