"""Runs of a plain Parquet table: each builds on the last one, or fails."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from cordwood.errors import TableChangedError
from cordwood.spark.tables.lake_table import TableState, WrittenFile
from cordwood.spark.tables.parquet_table import ParquetTable

SCHEMA = pa.schema([("offset", pa.int64())])


def state(offset: int) -> TableState:
    return TableState(offsets={("orders", 0): offset}, topic_ids={"orders": "an id"})


def commit(table: ParquetTable, run_id: str, offset: int) -> None:
    staging = Path(table.staging(run_id))
    staging.mkdir(parents=True)
    file = staging / f"{run_id}.parquet"
    file.write_bytes(b"rows")
    added = [WrittenFile(path=str(file), size=4, rows=1)]
    removed = table.files() if table._replaces else ()
    table.commit(state(offset), SCHEMA, run_id=run_id, added=added, removed=removed)


def opened(path: Path, *, replaces: bool) -> ParquetTable:
    table = ParquetTable(str(path), replaces=replaces)
    table.load()
    return table


@pytest.mark.parametrize("commits", [1, 2, 3, 5])
@pytest.mark.parametrize("replaces", [True, False])
def test_a_run_that_others_have_overtaken_fails_however_many_they_were(
    tmp_path: Path, replaces: bool, commits: int
) -> None:
    path = tmp_path / "table"
    commit(opened(path, replaces=replaces), "first", 10)
    stale = opened(path, replaces=replaces)
    for number in range(commits):
        commit(opened(path, replaces=replaces), f"run{number}", 20 + number)
    before = sorted(os.listdir(path))

    with pytest.raises(TableChangedError, match="another run committed first"):
        commit(stale, "stale", 15)

    assert sorted(os.listdir(path)) == before
    after = opened(path, replaces=replaces)
    assert after.load() == state(20 + commits - 1)
    if replaces:
        assert (path / "current").resolve().name == f"run={commits + 1:020d}"
        assert [os.path.basename(file) for file in after.files()] == [f"run{commits - 1}.parquet"]


@pytest.mark.parametrize("replaces", [True, False])
def test_a_run_fails_if_its_table_was_removed_and_made_again(
    tmp_path: Path, replaces: bool
) -> None:
    path = tmp_path / "table"
    commit(opened(path, replaces=replaces), "first", 10)
    stale = opened(path, replaces=replaces)
    shutil.rmtree(path)
    commit(opened(path, replaces=replaces), "other", 99)

    with pytest.raises(TableChangedError):
        commit(stale, "stale", 15)

    assert opened(path, replaces=replaces).load() == state(99)


def test_a_run_that_settles_late_does_not_point_back(tmp_path: Path) -> None:
    path = tmp_path / "table"
    commit(opened(path, replaces=True), "first", 10)
    late = opened(path, replaces=True)
    commit(opened(path, replaces=True), "second", 20)

    late.settle()

    assert (path / "current").resolve().name == f"run={2:020d}"
