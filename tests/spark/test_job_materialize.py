"""A changelog as the table it stands for: the same by increments and from nothing."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.errors import ConfigError
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.materialize import MaterializeOptions, run_materialize
from cordwood.spark.tables.lake_table import UpkeepPolicy
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from cordwood.value_class import replace

TOPIC = "accounts"


def target(tmp_path: Path, kind: TableFormat, name: str = "state") -> LakeTarget:
    if kind is TableFormat.ICEBERG:
        return LakeTarget(format=kind, table=f"lake.{name}", warehouse=str(tmp_path / "warehouse"))
    return LakeTarget(format=kind, table=str(tmp_path / f"{kind}-{name}"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        store.create_topic(TOPIC, partitions=2)
    return path


def append(path: Path, seed: int, count: int = 60) -> None:
    """Updates and tombstones of few keys, and a record without one."""
    chosen = random.Random(seed)
    with cordwood.open(path) as store:
        topic = store.topic(TOPIC)
        for number in range(count):
            value = None if chosen.random() < 0.25 else b'{"n": %d}' % number
            topic.append(value, key=b"account-%d" % chosen.randrange(25))
        topic.append(b"of nobody")


def expected(path: Path) -> dict[bytes, bytes]:
    """The state that a loop over the log comes to."""
    state: dict[bytes, bytes] = {}
    with cordwood.open(path, read_only=True) as store:
        for log in store.topic(TOPIC).partitions:
            for record in log.read():
                if record.key is None:
                    continue
                if record.value is None:
                    state.pop(record.key, None)
                else:
                    state[record.key] = record.value
    return state


def table_rows(spark: SparkSession, to: LakeTarget) -> list[tuple[Any, ...]]:
    table = to.open(replaces=True)
    table.load()
    rows = read_files(spark, table.files()).collect()
    return sorted(
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in rows
    )


def state_of(spark: SparkSession, to: LakeTarget) -> dict[bytes, bytes]:
    found = {row[0]: row[1] for row in table_rows(spark, to)}
    return found


def options(data: Path, to: LakeTarget, **rest: Any) -> MaterializeOptions:
    return MaterializeOptions(
        **{"paths": (str(data),), "topic": TOPIC, "target": to, "buckets": 3, **rest}
    )


@pytest.mark.parametrize("kind", list(TableFormat))
def test_increments_come_to_the_state_that_a_replay_from_nothing_comes_to(
    spark: SparkSession, data: Path, tmp_path: Path, kind: TableFormat
) -> None:
    to, again = target(tmp_path, kind), target(tmp_path, kind, "again")

    append(data, seed=1)
    run_materialize(spark, options(data, to))
    append(data, seed=2)
    report = run_materialize(spark, options(data, to))
    run_materialize(spark, options(data, again, buckets=2))
    by_increments = table_rows(spark, to)
    run_materialize(spark, options(data, to, is_rebuild=True))

    assert {row[0]: row[1] for row in by_increments} == expected(data)
    assert by_increments == table_rows(spark, again) == table_rows(spark, to)
    assert report.totals["offsets"] == 61


def test_a_run_touches_only_the_parts_that_its_keys_fall_into(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.DELTA)
    append(data, seed=3)
    run_materialize(spark, options(data, to, buckets=8))
    table = to.open(replaces=True)
    table.load()
    before = set(table.files())
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b"new", key=b"one key")

    run_materialize(spark, options(data, to))

    table.load()
    assert len(before - set(table.files())) <= 1
    assert state_of(spark, to) == expected(data)


@pytest.mark.parametrize(
    "kind",
    [
        TableFormat.PARQUET,
        pytest.param(TableFormat.DELTA, marks=pytest.mark.slow),
        pytest.param(TableFormat.ICEBERG, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_around_its_commit_changes_nothing_about_the_result(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: TableFormat,
    moment: str,
) -> None:
    to = target(tmp_path, kind)
    append(data, seed=4)
    run_materialize(spark, options(data, to))
    append(data, seed=5)
    home = type(to.open(replaces=True))
    commit = home.commit

    def die(self: Any, *arguments: Any, **rest: Any) -> None:
        if moment == "after":
            commit(self, *arguments, **rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(home, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_materialize(spark, options(data, to))
    run_materialize(spark, options(data, to))

    assert state_of(spark, to) == expected(data)


def test_a_run_killed_before_it_told_readers_of_its_commit_has_the_next_one_tell_them(
    spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    append(data, seed=4)
    run_materialize(spark, options(data, to))
    append(data, seed=5)

    def die(_self: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(to.open(replaces=True)), "settle", die)
        with pytest.raises(KeyboardInterrupt):
            run_materialize(spark, options(data, to))
    again = run_materialize(spark, options(data, to))

    assert again.totals["offsets"] == 0
    rows = spark.read.parquet(f"{to.table}/current").collect()
    assert {bytes(row["key"]): bytes(row["value"]) for row in rows} == expected(data)


def test_a_rebuild_of_a_delta_table_killed_between_its_two_steps_leaves_the_table_as_it_was(
    spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    to = target(tmp_path, TableFormat.DELTA)
    append(data, seed=8)
    run_materialize(spark, options(data, to))

    def die(*_arguments: Any, **_rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", die)
        with pytest.raises(KeyboardInterrupt):
            run_materialize(spark, options(data, to, buckets=5, is_rebuild=True))
    append(data, seed=9)
    run_materialize(spark, options(data, to))

    assert state_of(spark, to) == expected(data)
    table = to.open(replaces=True).load()
    assert table is not None
    assert table.settings["buckets"] == "3"


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_topic_that_was_made_anew_takes_a_rebuild_and_nothing_of_the_old_one_stays(
    spark: SparkSession, data: Path, tmp_path: Path, kind: TableFormat
) -> None:
    to = target(tmp_path, kind)
    append(data, seed=10)
    run_materialize(spark, options(data, to))
    with cordwood.open(data) as store:
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, partitions=2).append(b"1", key=b"of the new one")

    with pytest.raises(ConfigError, match=r"created again.*--rebuild"):
        run_materialize(spark, options(data, to))
    run_materialize(spark, options(data, to, is_rebuild=True))

    assert state_of(spark, to) == expected(data) == {b"of the new one": b"1"}


def test_a_rebuild_from_an_empty_topic_leaves_an_empty_table(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    append(data, seed=11)
    run_materialize(spark, options(data, to))
    with cordwood.open(data) as store:
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, partitions=2)

    run_materialize(spark, options(data, to, is_rebuild=True))

    table = to.open(replaces=True)
    table.load()
    assert table.files() == []


def test_a_state_that_is_all_deleted_is_an_empty_table(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b"1", key=b"a")
    run_materialize(spark, options(data, to))
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(None, key=b"a")

    run_materialize(spark, options(data, to))
    again = run_materialize(spark, options(data, to))

    table = to.open(replaces=True)
    table.load()
    assert table.files() == []
    assert again.totals["offsets"] == 0


def test_values_are_decoded_beside_their_bytes(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b'{"n": 7}', key=b"a")
        store.topic(TOPIC).append(b"seven", key=b"b")

    run_materialize(spark, options(data, to, value_schema="n INT"))
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b'{"n": 8}', key=b"a")
    run_materialize(spark, options(data, to))
    run_materialize(spark, options(data, to, is_rebuild=True))  # keeps the schema of the table

    rows = spark.read.parquet(f"{to.table}/current").select("key", "value", "decoded").collect()
    found = {bytes(row[0]): (bytes(row[1]), row[2] and row[2]["n"]) for row in rows}
    assert found == {b"a": (b'{"n": 8}', 8), b"b": (b"seven", None)}


def test_a_table_is_made_of_one_topic(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    append(data, seed=6, count=3)
    run_materialize(spark, options(data, to))
    with cordwood.open(data) as store:
        store.create_topic("others")

    with pytest.raises(ConfigError, match="is made of accounts"):
        run_materialize(spark, options(data, to, topic="others"))


def test_only_a_parquet_table_can_be_rebuilt_with_other_columns(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    append(data, seed=12, count=3)
    for kind in (TableFormat.PARQUET, TableFormat.DELTA):
        run_materialize(spark, options(data, target(tmp_path, kind)))
    other: dict[str, Any] = {"value_schema": "n INT", "is_rebuild": True}

    run_materialize(spark, options(data, target(tmp_path, TableFormat.PARQUET), **other))

    assert "decoded" in spark.read.parquet(f"{tmp_path}/parquet-state/current").columns
    with pytest.raises(ConfigError, match="use another table"):
        run_materialize(spark, options(data, target(tmp_path, TableFormat.DELTA), **other))


def test_a_delta_table_of_something_else_is_refused(data: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable

    to = target(tmp_path, TableFormat.DELTA)
    DeltaTable.create(to.table, pa.schema([("id", pa.int64())]))

    with pytest.raises(ConfigError, match="a table of something else"):
        run_materialize(None, options(data, to, is_dry_run=True))


@pytest.mark.parametrize("kind", list(TableFormat))
def test_tables_of_records_and_tables_of_keys_are_not_mixed(
    spark: SparkSession, data: Path, tmp_path: Path, kind: TableFormat
) -> None:
    keys, records = target(tmp_path, kind, "keys"), target(tmp_path, kind, "records")
    exported = ExportOptions(paths=(str(data),), topics=(TOPIC,), target=records)
    append(data, seed=11)
    run_materialize(spark, options(data, keys))
    run_export(None, exported)
    before = state_of(spark, keys)

    with pytest.raises(ConfigError, match="one row for each key"):
        run_export(None, replace(exported, target=keys))
    for is_rebuild in (False, True):
        with pytest.raises(ConfigError, match="one row for each record"):
            run_materialize(spark, options(data, records, is_rebuild=is_rebuild))

    assert state_of(spark, keys) == before


def test_a_dry_run_needs_no_spark(data: Path, tmp_path: Path) -> None:
    append(data, seed=7, count=3)

    report = run_materialize(
        None, options(data, target(tmp_path, TableFormat.PARQUET), is_dry_run=True)
    )

    assert report.totals["offsets"] == 4
    assert not (tmp_path / "parquet-state").exists()


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_job_that_follows_keeps_the_table_at_the_state_of_the_log(
    spark: SparkSession, data: Path, tmp_path: Path, kind: TableFormat
) -> None:
    to = target(tmp_path, kind)
    stop = threading.Event()
    ended: list[Any] = []
    policy = UpkeepPolicy(expire_ms=0) if kind is TableFormat.ICEBERG else None
    given = options(data, to, follow_s=0.1, upkeep=policy, upkeep_commits=2)
    append(data, seed=1)

    job = threading.Thread(
        target=lambda: ended.append(run_materialize(spark, given, stop=stop)), name="job"
    )
    job.start()
    try:
        for seed in (2, 3):
            wait_for_state(spark, to, expected(data), job)
            append(data, seed)
        wait_for_state(spark, to, expected(data), job)
    finally:
        stop.set()
        job.join(120)

    (report,) = ended
    assert report.totals["commits"] >= 3
    assert report.totals["offsets"] == 183
    assert [row["from"] for row in report.rows] == [0, 0]
    assert state_of(spark, to) == expected(data)
    if policy is not None:
        assert report.totals["merged_files"] == 0, "a file is a bucket"
        assert report.totals["expired_snapshots"] > 0


def wait_for_state(
    spark: SparkSession, to: LakeTarget, wanted: dict[bytes, bytes], job: threading.Thread
) -> None:
    deadline_s = time.monotonic() + 120
    while to.open(replaces=True).load() is None or state_of(spark, to) != wanted:
        assert job.is_alive(), "the job ended"
        assert time.monotonic() < deadline_s, "timeout"
        time.sleep(0.1)


def test_an_aborted_change_is_no_change(spark: SparkSession, tmp_path: Path) -> None:
    data, to = tmp_path / "data", target(tmp_path, TableFormat.PARQUET)
    with cordwood.open(data) as store:
        store.create_topic(TOPIC)
        with store.transaction("kept") as transaction:
            transaction.append(TOPIC, b"10", key=b"anna", partition=0)
        with contextlib.suppress(ZeroDivisionError), store.transaction("lost") as transaction:
            transaction.append(TOPIC, b"999", key=b"anna", partition=0)
            raise ZeroDivisionError

    run_materialize(spark, options(data, to))

    assert state_of(spark, to) == {b"anna": b"10"}
