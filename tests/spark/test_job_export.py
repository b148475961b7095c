"""A topic as a table: every offset once, whatever happens to the runs that write it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import cordwood
from cordwood.errors import ConfigError, TableChangedError
from cordwood.spark.decoding.type_text import parse_schema
from cordwood.spark.jobs.export import ExportOptions, run_export, table_and_tail, transform
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice, new_rows
from cordwood.spark.jobs.topic_span import plan_span
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from fakes.stopped_swap import store_with_a_stopped_swap

TOPIC = "orders"
FORMATS = list(TableFormat)


def target(tmp_path: Path, kind: TableFormat) -> LakeTarget:
    if kind is TableFormat.ICEBERG:
        return LakeTarget(format=kind, table="lake.orders", warehouse=str(tmp_path / "warehouse"))
    return LakeTarget(format=kind, table=str(tmp_path / f"{kind}-table"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        store.create_topic(TOPIC, partitions=2)
    append(path, 0, 30)
    return path


def append(path: Path, start: int, stop: int) -> None:
    with cordwood.open(path) as store:
        topic = store.topic(TOPIC)
        for number in range(start, stop):
            topic.append(
                b'{"id": %d}' % number,
                key=b"key-%d" % number,
                headers=[("n", b"%d" % number)] if number % 3 == 0 else [],
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number,
            )


def options(data: Path, to: LakeTarget, **rest: Any) -> ExportOptions:
    return ExportOptions(paths=(str(data),), topics=(TOPIC,), target=to, **rest)


def table_rows(spark: SparkSession, to: LakeTarget) -> list[tuple[Any, ...]]:
    table = to.open()
    table.load()
    files = table.files()
    return plain(read_files(spark, files)) if files else []


def plain(df: DataFrame) -> list[tuple[Any, ...]]:
    chosen = df.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp)", "key", "value", "headers"
    )
    return sorted(
        (*row[:4], bytes(row[4]), bytes(row[5]), row[6] and [tuple(h) for h in row[6]])
        for row in chosen.collect()
    )


def log_rows(spark: SparkSession, data: Path) -> list[tuple[Any, ...]]:
    reader = spark.read.format("cordwood").option("subscribe", TOPIC)
    return plain(reader.option("includeHeaders", True).load(str(data)))


@pytest.mark.parametrize("kind", FORMATS)
def test_each_run_adds_what_is_new_and_the_table_knows_how_far_it_is(
    spark: SparkSession, data: Path, tmp_path: Path, kind: TableFormat
) -> None:
    to = target(tmp_path, kind)

    first = run_export(spark, options(data, to))
    append(data, 30, 40)
    tailed = plain(table_and_tail(spark, to, [str(data)]))
    second = run_export(spark, options(data, to))
    third = run_export(spark, options(data, to))

    assert [report.totals["records"] for report in (first, second, third)] == [30, 10, 0]
    assert table_rows(spark, to) == tailed == log_rows(spark, data)
    state = to.open().load()
    assert state is not None
    assert dict(state.offsets) == {(TOPIC, 0): 20, (TOPIC, 1): 20}
    assert list(state.topic_ids) == [TOPIC]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_around_its_commit_leaves_a_table_the_next_one_completes(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: TableFormat,
    moment: str,
) -> None:
    to = target(tmp_path, kind)
    home = type(to.open())
    commit = home.commit

    def die(self: Any, *arguments: Any, **rest: Any) -> None:
        if moment == "after":
            commit(self, *arguments, **rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(home, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_export(spark, options(data, to))
    report = run_export(spark, options(data, to))

    assert report.totals["records"] == (30 if moment == "before" else 0)
    assert table_rows(spark, to) == log_rows(spark, data)


@pytest.mark.parametrize("kind", FORMATS)
def test_of_two_runs_at_once_one_commits_and_the_other_says_so(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: TableFormat,
) -> None:
    to = target(tmp_path, kind)
    run_export(spark, options(data, to))
    append(data, 30, 40)
    home = type(to.open())
    commit = home.commit

    def overtaken(self: Any, *arguments: Any, **rest: Any) -> None:
        monkeypatch.setattr(home, "commit", commit)
        run_export(spark, options(data, to))
        commit(self, *arguments, **rest)

    monkeypatch.setattr(home, "commit", overtaken)
    with pytest.raises(TableChangedError, match="run it again"):
        run_export(spark, options(data, to))

    assert table_rows(spark, to) == log_rows(spark, data)


def test_an_export_in_the_middle_of_a_compaction_swap_leaves_nothing_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = store_with_a_stopped_swap(tmp_path / "data")
    to = target(tmp_path, TableFormat.PARQUET)

    run_export(spark, options(tmp_path / "data", to))

    assert {row[2]: row[5] for row in table_rows(spark, to)} == records


def test_a_long_run_commits_part_by_part(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    to = target(tmp_path, TableFormat.PARQUET)

    report = run_export(spark, options(data, to, commit_records=12))

    assert report.totals["commits"] == 3
    assert table_rows(spark, to) == log_rows(spark, data)
    assert len(list(Path(to.table).glob("run=*/*.parquet"))) >= 3


def test_plain_tools_read_a_parquet_table_by_its_directory(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    run_export(spark, options(data, to))
    leftover = Path(to.table) / "_staging" / "killed" / "files"
    leftover.mkdir(parents=True)
    (leftover / "part.parquet").write_bytes(b"half a file")

    append(data, 30, 34)
    run_export(spark, options(data, to))

    df = spark.read.parquet(to.table)
    assert plain(df) == log_rows(spark, data)
    assert {row["run"] for row in df.select("run").distinct().collect()} == {1}


# --- values ------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two good values, a tombstone, and four that are not what they should be."""
    path = tmp_path / "mixed"
    values = [
        b'{"id": 1, "name": "ada"}',
        b"not json",
        b'{"id": "seven"}',
        None,
        b"\xff\xfe",
        b"[1, 2]",
        b'{"id": 2, "more": true}',
    ]
    with cordwood.open(path, config={"durability": "os"}) as store:
        topic = store.create_topic(TOPIC)
        for value in values:
            topic.append(value, key=b"k")
    return path


def decoded(spark: SparkSession, to: LakeTarget) -> list[tuple[Any, ...]]:
    table = to.open()
    table.load()
    rows = read_files(spark, table.files()).select("offset", "value").collect()
    return sorted((row[0], row[1] and tuple(row[1])) for row in rows)


def rejected(spark: SparkSession, to: LakeTarget) -> list[tuple[int, str, bytes]]:
    table = to.beside("_rejected").open()
    table.load()
    files = table.files()
    rows = read_files(spark, files).select("offset", "reason", "value").collect() if files else []
    return sorted((row[0], row[1], bytes(row[2])) for row in rows)


ACCEPTED = [(0, (1, "ada")), (3, None), (6, (2, None))]
REJECTED = [
    (1, "the value is not JSON: Expecting value: line 1 column 1 (char 0)", b"not json"),
    (2, 'id is "seven", not of type int64', b'{"id": "seven"}'),
    (4, "the value is not UTF-8", b"\xff\xfe"),
    (5, "the value is not a JSON object", b"[1, 2]"),
]


@pytest.mark.parametrize("kind", FORMATS)
def test_values_are_decoded_and_what_does_not_fit_is_kept_beside_with_the_reason(
    spark: SparkSession, mixed: Path, tmp_path: Path, kind: TableFormat
) -> None:
    to = target(tmp_path, kind)

    report = run_export(spark, options(mixed, to, value_schema="id BIGINT, name STRING"))
    again = run_export(spark, options(mixed, to))

    assert (report.totals["records"], report.totals["rejected"]) == (3, 4)
    assert (again.totals["records"], again.totals["rejected"]) == (0, 0)
    assert decoded(spark, to) == ACCEPTED
    assert rejected(spark, to) == REJECTED


def test_a_run_killed_between_the_two_commits_rejects_nothing_twice(
    spark: SparkSession, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = target(tmp_path, TableFormat.DELTA)
    schema = "id BIGINT, name STRING"
    home = type(to.open())
    commit: Callable[..., None] = home.commit
    commits: list[str] = []

    def die(self: Any, *arguments: Any, **rest: Any) -> None:
        commits.append(self.name)
        if len(commits) == 2:
            raise KeyboardInterrupt
        commit(self, *arguments, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(home, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_export(spark, options(mixed, to, value_schema=schema))
    with cordwood.open(mixed) as store:
        store.topic(TOPIC).append(b"again not", key=b"k")
    run_export(spark, options(mixed, to, value_schema=schema))

    assert decoded(spark, to) == ACCEPTED
    assert rejected(spark, to) == [
        *REJECTED,
        (7, "the value is not JSON: Expecting value: line 1 column 1 (char 0)", b"again not"),
    ]


def test_a_schema_can_be_inferred_and_stays_that_of_the_table(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)

    run_export(spark, options(data, to, value_schema="infer"))
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b'{"id": 99, "new": 1}', partition=0)
    run_export(spark, options(data, to, value_schema="infer"))

    table = to.open()
    table.load()
    df = read_files(spark, table.files())
    assert df.schema["value"].dataType.simpleString() == "struct<id:bigint>"
    assert sorted(row[0] for row in df.select("value.id").collect()) == [*range(30), 99]


def test_the_transformation_alone_gives_the_rows_of_the_table(
    spark: SparkSession, mixed: Path
) -> None:
    span = plan_span([str(mixed)], [TOPIC])
    df = span.load(
        spark,
        ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"],
    )

    choice = RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"))
    found = transform(df, new_rows(choice, list))

    rows = found.select("offset", "value").collect()
    assert sorted((row[0], row[1] and tuple(row[1])) for row in rows) == ACCEPTED


# --- what is refused ---------------------------------------------------------------------------


def test_a_topic_made_anew_does_not_go_into_the_table_of_the_old_one(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    run_export(spark, options(data, to))
    with cordwood.open(data) as store:
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, partitions=2)
    append(data, 0, 4)

    with pytest.raises(ConfigError, match="created again"):
        run_export(spark, options(data, to))


def test_a_table_keeps_the_schema_it_was_made_with(
    spark: SparkSession, mixed: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    run_export(spark, options(mixed, to, value_schema="id BIGINT"))
    with cordwood.open(mixed) as store:
        store.topic(TOPIC).append(b"{}")

    with pytest.raises(ConfigError, match="was made with another one"):
        run_export(spark, options(mixed, to, value_schema="id STRING"))


@pytest.mark.parametrize("schema", ["id WRONG", "", "INT", "{}"])
def test_a_schema_that_is_none_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="value schema"):
        parse_schema(schema)


def test_a_parquet_table_in_object_storage_is_refused(data: Path) -> None:
    to = LakeTarget(format=TableFormat.PARQUET, table="s3://bucket/orders")

    with pytest.raises(ConfigError, match="use delta or iceberg"):
        run_export(None, options(data, to, is_dry_run=True))


def test_a_dry_run_says_which_offsets_are_to_come_and_needs_no_spark(
    data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.ICEBERG)

    report = run_export(None, options(data, to, is_dry_run=True))

    assert [dict(row) for row in report.rows] == [
        {"topic": TOPIC, "partition": 0, "from": 0, "up_to": 15},
        {"topic": TOPIC, "partition": 1, "from": 0, "up_to": 15},
    ]
    assert to.open().load() is None
    assert not (tmp_path / "warehouse").exists()


def test_the_state_is_what_a_query_can_start_from(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = target(tmp_path, TableFormat.PARQUET)
    run_export(spark, options(data, to))
    append(data, 30, 33)

    state = to.open().load()
    assert state is not None
    reader = spark.read.format("cordwood").option("subscribe", TOPIC)
    tail = reader.option("startingOffsets", state.starting_offsets()).load(str(data))

    assert sorted(json.loads(bytes(row["value"]))["id"] for row in tail.collect()) == [30, 31, 32]


def test_a_table_has_the_records_of_committed_transactions_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, to = tmp_path / "data", target(tmp_path, TableFormat.PARQUET)

    def exported() -> list[bytes]:
        run_export(spark, options(data, to))
        return [row[5] for row in table_rows(spark, to)]

    def tailed() -> list[bytes]:
        return [row[5] for row in plain(table_and_tail(spark, to, [str(data)]))]

    with cordwood.open(data) as store:
        topic = store.create_topic(TOPIC)
        with store.transaction("kept") as transaction:
            transaction.append(TOPIC, b"committed", key=b"k", partition=0)
        with contextlib.suppress(ZeroDivisionError), store.transaction("lost") as transaction:
            transaction.append(TOPIC, b"aborted", key=b"k", partition=0)
            raise ZeroDivisionError
        with store.transaction("late") as transaction:
            transaction.append(TOPIC, b"open at first", key=b"k", partition=0)
            topic.append(b"behind it", key=b"k", partition=0)
            assert exported() == tailed() == [b"committed"]

        assert tailed() == [b"committed", b"open at first", b"behind it"]
        assert exported() == [b"committed", b"open at first", b"behind it"]
