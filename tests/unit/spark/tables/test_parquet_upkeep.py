"""Runs of a Parquet table that grow and are merged, while others read them."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from cordwood.errors import TableChangedError
from cordwood.spark.tables import parquet_runs, parquet_table, replaced_runs
from cordwood.spark.tables.lake_table import TableState, UpkeepPolicy, WrittenFile
from cordwood.spark.tables.parquet_table import ParquetTable

SCHEMA = pa.schema([("offset", pa.int64())])
ROWS = 10  # of a commit, in two files


def state(end: int) -> TableState:
    return TableState(
        offsets={("orders", 0): end},
        topic_ids={"orders": "an id"},
        settings={"partition_by": "day"},
    )


def commit(table: ParquetTable, end: int, *, days: int = 0) -> None:
    """The rows before `end`, in two files; with `days`, in the directories of so many days."""
    run_id = f"run{end}"
    staging = Path(table.staging(run_id))
    staging.mkdir(parents=True)
    added: list[WrittenFile] = []
    for half, start in enumerate((end - ROWS, end - ROWS // 2)):
        file = staging / f"part-{end}-{half}.parquet"
        pq.write_table(pa.table({"offset": range(start, start + ROWS // 2)}, SCHEMA), file)
        day = f"2026-01-{(end // ROWS + half) % days + 1:02d}" if days else None
        added.append(WrittenFile(path=str(file), size=file.stat().st_size, rows=5, partition=day))
    table.commit(state(end), SCHEMA, run_id=run_id, added=added)


def opened(path: Path) -> ParquetTable:
    table = ParquetTable(str(path), replaces=False)
    table.load()
    return table


def filled(path: Path, commits: int, *, days: int = 0) -> ParquetTable:
    table = opened(path)
    for number in range(commits):
        commit(table, (number + 1) * ROWS, days=days)
    return table


def listed(path: Path) -> list[str]:
    """The files that a tool finds which lists the directory, and skips what begins with `_`.

    `FileNotFoundError` if a directory is gone when its turn comes: `os.walk` would leave it out.
    """

    def fail(error: OSError) -> None:
        raise error

    found: list[str] = []
    for home, folders, names in os.walk(path, onerror=fail):
        folders[:] = [folder for folder in folders if not folder.startswith("_")]
        found += [os.path.join(home, name) for name in names if name.endswith(".parquet")]
    return found


def offsets(files: list[str]) -> list[int]:
    found: list[Any] = []
    for file in files:
        found += pq.ParquetFile(file).read()["offset"].to_pylist()
    return sorted(found)


def test_small_commits_share_a_run_and_leave_the_names_of_its_files(tmp_path: Path) -> None:
    table = filled(tmp_path / "table", 1)
    before = set(table.files())

    for end in (20, 30):
        commit(table, end)

    assert os.listdir(tmp_path / "table").count(f"run={1:020d}") == 1
    assert before < set(table.files()) == set(listed(tmp_path / "table"))
    assert offsets(table.files()) == list(range(30))
    assert opened(tmp_path / "table").load() == state(30)


@pytest.mark.parametrize(("limit", "value"), [("RUN_FILES_MAX", 4), ("RUN_BYTES_MAX", 900)])
def test_a_run_that_is_large_enough_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(parquet_table, limit, value)

    table = filled(tmp_path / "table", 5)

    assert len(list((tmp_path / "table").glob("run=*"))) > 1
    assert offsets(table.files()) == list(range(50))


@pytest.mark.parametrize("days", [0, 3])
def test_upkeep_merges_the_files_of_a_run_and_of_a_day(tmp_path: Path, days: int) -> None:
    table = filled(tmp_path / "table", 6, days=days)

    done = table.keep_up(UpkeepPolicy())

    assert done["merged_files"] == 12
    assert len(listed(tmp_path / "table")) == (days or 1)
    assert offsets(listed(tmp_path / "table")) == list(range(60))
    assert table.load() == state(60)
    commit(table, 70, days=days)
    assert offsets(table.files()) == list(range(70))
    assert os.listdir(tmp_path / "table" / "_staging") == []


def test_a_table_that_has_one_run_for_each_commit_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parquet_runs, parquet_table):
        monkeypatch.setattr(module, "exchange", lambda _first, _second: False)

    table = filled(tmp_path / "table", 3)
    done = table.keep_up(UpkeepPolicy())

    assert done["merged_files"] == 0
    assert len(list((tmp_path / "table").glob("run=*"))) == 3
    assert offsets(listed(tmp_path / "table")) == offsets(table.files()) == list(range(30))
    assert os.listdir(tmp_path / "table" / "_staging") == []


def test_a_file_system_without_links_gets_a_run_for_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("cordwood.storage.files.RealFileSystem.link", refuse)

    filled(tmp_path / "table", 3)

    assert len(list((tmp_path / "table").glob("run=*"))) == 3
    assert offsets(listed(tmp_path / "table")) == list(range(30))


def test_a_commit_that_comes_during_a_merge_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path / "table", 3)
    alone = ParquetTable._alone

    def late(self: ParquetTable) -> Any:
        monkeypatch.setattr(ParquetTable, "_alone", alone)
        commit(opened(tmp_path / "table"), 40)
        return alone(self)

    monkeypatch.setattr(ParquetTable, "_alone", late)
    done = table.keep_up(UpkeepPolicy())

    assert done["merged_files"] == 0
    assert offsets(listed(tmp_path / "table")) == list(range(40))
    assert table.load() == state(40)


def test_a_merge_that_comes_during_a_commit_does_not_repeat_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path / "table", 3)
    alone = ParquetTable._alone

    def late(self: ParquetTable) -> Any:
        monkeypatch.setattr(ParquetTable, "_alone", alone)
        assert opened(tmp_path / "table").keep_up(UpkeepPolicy())["merged_files"] == 6
        return alone(self)

    monkeypatch.setattr(ParquetTable, "_alone", late)
    commit(table, 40)

    assert offsets(listed(tmp_path / "table")) == list(range(40))
    assert offsets(table.files()) == list(range(40))


def test_a_second_writer_fails_though_the_number_of_the_run_is_the_same(tmp_path: Path) -> None:
    filled(tmp_path / "table", 1)
    stale = opened(tmp_path / "table")
    commit(opened(tmp_path / "table"), 20)

    with pytest.raises(TableChangedError, match="another run committed first"):
        commit(stale, 30)

    assert offsets(listed(tmp_path / "table")) == list(range(20))


def test_files_and_state_of_a_load_belong_together(tmp_path: Path) -> None:
    table = filled(tmp_path / "table", 2)
    before = opened(tmp_path / "table")

    commit(table, 30)

    assert offsets(before.files()) == list(range(20))


class _Killed(BaseException):
    """The process ends here."""


CALLS: list[tuple[Any, str]] = [
    (parquet_table, "replace_file"),
    (parquet_runs.ParquetRuns, "link"),
    (parquet_runs.ParquetRuns, "sync"),
    (parquet_runs.ParquetRuns, "exchange"),
    (ParquetTable, "discard"),
]


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("work", ["commit", "keep_up"])
@pytest.mark.parametrize("days", [0, 2])
def test_a_kill_at_any_step_shows_readers_each_row_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    work: str,
    call: tuple[Any, str],
    is_after: bool,
) -> None:
    table = filled(tmp_path / "table", 3, days=days)
    home, name = call
    real: Callable[..., Any] = getattr(home, name)

    def die(*arguments: Any, **rest: Any) -> None:
        if is_after:
            real(*arguments, **rest)
        raise _Killed

    def do() -> None:
        if work == "commit":
            commit(table, 40, days=days)
        else:
            table.keep_up(UpkeepPolicy())

    with monkeypatch.context() as patched:
        patched.setattr(home, name, die)
        if name != "discard":  # a killed process does not clean up
            patched.setattr(ParquetTable, "discard", lambda _self, _run_id: None)
        with pytest.raises(_Killed):
            do()

    seen = offsets(listed(tmp_path / "table"))
    found = opened(tmp_path / "table")
    held = found.load()
    assert held is not None
    assert seen == offsets(found.files()) == list(range(held.offsets["orders", 0]))
    again = opened(tmp_path / "table")
    for end in range(len(seen) + ROWS, 60 + ROWS, ROWS):
        again.discard(f"run{end}")  # what the kill has left: ids of runs are not used twice
        commit(again, end, days=days)
    again.keep_up(UpkeepPolicy(leftover_ms=0))
    assert offsets(listed(tmp_path / "table")) == list(range(60))


@pytest.mark.parametrize("days", [0, 2])
@pytest.mark.parametrize("work", ["commit", "keep_up"])
def test_a_directory_that_a_reader_has_opened_is_listed_as_it_was(
    tmp_path: Path, work: str, days: int
) -> None:
    table = filled(tmp_path / "table", 3, days=days)
    homes = sorted({os.path.dirname(file) for file in table.files()})
    names = {home: set(os.listdir(home)) for home in homes}
    opened_before = {home: os.scandir(home) for home in homes}  # reads nothing yet

    if work == "commit":
        commit(table, 40, days=days)
    else:
        assert table.keep_up(UpkeepPolicy())["merged_files"] == 6

    for home, entries in opened_before.items():
        with entries:
            assert {entry.name for entry in entries} == names[home]


def test_replaced_directories_are_where_no_tool_finds_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = filled(path, 3, days=2)
    table.keep_up(UpkeepPolicy())

    assert len(os.listdir(tmp_path / ".table.replaced")) == 3
    with duckdb.connect() as connection:
        found = connection.execute(f"FROM read_parquet('{path}/**/*.parquet')").fetchall()
    assert len(found) == 30
    assert dataset(path, format="parquet").count_rows() == 30
    assert polars.read_parquet(path / "**/*.parquet").height == 30


def test_replaced_directories_are_removed_by_the_next_commit_or_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path / "table", 3)
    kept = tmp_path / ".table.replaced"
    (tmp_path / ".table.replaced" / "of somebody else").mkdir()

    monkeypatch.setattr(replaced_runs, "KEPT_S", 0)
    commit(table, 40)

    assert os.listdir(kept) == ["of somebody else"]
    (kept / "of somebody else").rmdir()
    table.keep_up(UpkeepPolicy())
    assert not kept.exists()


def test_of_each_run_only_some_replaced_directories_stay(tmp_path: Path) -> None:
    filled(tmp_path / "table", replaced_runs.KEPT_MAX + 5)

    assert len(os.listdir(tmp_path / ".table.replaced")) == replaced_runs.KEPT_MAX


def test_the_newest_directories_of_a_run_stay_for_a_minute() -> None:
    names = [f"{run:020d}-{ms}-{0:032x}" for run in (1, 2) for ms in (1_000, 50_000, 200_000)]

    removed = replaced_runs.plan_removal([*names, "other"], now_ms=61_000)

    assert removed == [names[2], names[0], names[5], names[3]]  # 200_000 is in the future


def test_a_table_whose_neighbours_cannot_be_written_is_committed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".table.replaced").write_text("a file is in the way")

    table = filled(tmp_path / "table", 4)

    assert offsets(table.files()) == list(range(40))
    assert os.listdir(tmp_path / "table" / "_staging") == []
    assert caplog.text.count("cannot keep replaced directories") == 1


@pytest.mark.parametrize("days", [0, 2])
def test_whoever_lists_the_table_meanwhile_finds_each_row_once(tmp_path: Path, days: int) -> None:
    path = tmp_path / "table"
    table = filled(path, 1, days=days)
    is_over = threading.Event()
    wrong: list[str] = []
    looks = 0
    upkeep = 0  # odd while it is under way

    def look() -> None:
        nonlocal looks
        while not is_over.is_set():
            begun = upkeep
            held = opened(path).load()
            try:
                files = listed(path)
            except FileNotFoundError as error:
                wrong.append(f"cannot be listed: {error}")
                continue
            try:
                seen = offsets(files)
            except FileNotFoundError as error:
                if begun % 2 == 0 and upkeep == begun:
                    wrong.append(f"not merged, and gone: {error}")
                continue  # merged since it was listed: a reader fails, and is not wrong
            assert held is not None
            looks += 1
            if len(set(seen)) != len(seen):
                wrong.append(f"rows twice: {len(seen)} of {len(set(seen))}")
            if not set(range(held.offsets["orders", 0])) <= set(seen):
                wrong.append(f"rows missing before {held.offsets['orders', 0]}")

    reader = threading.Thread(target=look, name="reader")
    reader.start()
    try:
        for number in range(2, 60):
            commit(table, number * ROWS, days=days)
            if number % 7 == 0:
                upkeep += 1
                table.keep_up(UpkeepPolicy())
                upkeep += 1
    finally:
        is_over.set()
        reader.join()

    assert wrong == []
    assert looks > 0
    assert offsets(listed(path)) == list(range(590))
