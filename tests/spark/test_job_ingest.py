"""Anything Spark reads becomes records, and no record twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.errors import ConfigError
from cordwood.spark.jobs.ingest import IngestColumns, IngestOptions, run_ingest
from cordwood.spark.jobs.topic_target import TopicTarget

TOPIC = "events"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}):
        pass
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    add(path, 0, 4)
    return path


def add(source: Path, start: int, stop: int) -> None:
    lines = [
        json.dumps({"id": n, "who": f"user-{n % 2}", "at": 1_700_000_000_000 + n})
        for n in range(start, stop)
    ]
    (source / f"{start:04d}.json").write_text("\n".join(lines))


def options(data: Path, path: Path | None, **rest: Any) -> IngestOptions:
    given: dict[str, Any] = {
        "source": "json",
        "path": None if path is None else str(path),
        "target": TopicTarget(paths=(str(data),), topic=TOPIC, partitions=2),
    }
    return IngestOptions(**{**given, **rest})


def records(data: Path) -> list[tuple[bytes | None, bytes | None]]:
    with cordwood.open(data, read_only=True) as store:
        found = [r for log in store.topic(TOPIC).partitions for r in log.read()]
    return sorted((record.key or b"", record.value or b"") for record in found)


def ids(data: Path) -> list[int]:
    return sorted(json.loads(value or b"{}")["id"] for _, value in records(data))


def test_rows_become_json_and_the_same_files_are_taken_once(
    spark: SparkSession, data: Path, source: Path
) -> None:
    first = run_ingest(spark, options(data, source))
    again = run_ingest(spark, options(data, source))

    assert first.totals["outcome"] == "done"
    assert sum(row["up_to"] - row["from"] for row in first.rows) == 4
    assert again.totals["outcome"] == "was already written"
    assert ids(data) == [0, 1, 2, 3]


def test_key_value_time_headers_and_partition_are_expressions(
    spark: SparkSession, data: Path, source: Path
) -> None:
    columns = IngestColumns(
        key="who",
        value="struct(id AS number)",
        timestamp="at",
        partition="id % 2",
        headers={"id": "id", "origin": "'files'"},
    )

    run_ingest(spark, options(data, source, columns=columns))

    with cordwood.open(data, read_only=True) as store:
        found = list(store.topic(TOPIC).partition(1).read())
    assert [
        (record.key, record.value, record.timestamp_ms, record.headers) for record in found
    ] == [
        (
            b"user-1",
            b'{"number":%d}' % n,
            1_700_000_000_000 + n,
            [("id", b"%d" % n), ("origin", b"files")],
        )
        for n in (1, 3)
    ]


def test_a_stream_of_files_goes_on_where_its_checkpoint_is(
    spark: SparkSession, data: Path, source: Path, tmp_path: Path
) -> None:
    chosen = options(data, source, checkpoint=str(tmp_path / "checkpoint"))

    first = run_ingest(spark, chosen)
    add(source, 4, 6)
    second = run_ingest(spark, chosen)
    third = run_ingest(spark, chosen)

    assert [report.totals["records"] for report in (first, second, third)] == [4, 2, 0]
    assert ids(data) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_files_are_read_as_spark_reads_them(
    spark: SparkSession, data: Path, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / kind)
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING")
    rows.write.format(kind).option("header", True).save(path)

    run_ingest(
        spark,
        options(
            data,
            Path(path),
            source=kind,
            options={"header": "true", "inferSchema": "true"} if kind == "csv" else {},
            columns=IngestColumns(key="name"),
        ),
    )

    assert records(data) == [(b"a", b'{"id":1,"name":"a"}'), (b"b", b'{"id":2,"name":"b"}')]


def test_a_table_by_jdbc_is_taken_once_under_the_name_of_the_run(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    system.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING")
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    rows.write.jdbc(url, "people", properties={"driver": driver})
    chosen = options(
        data,
        None,
        source="jdbc",
        options={"url": url, "dbtable": "people", "driver": driver},
        columns=IngestColumns(key="name", value="id"),
        run_id="people 2026-01-01",
    )

    run_ingest(spark, chosen)
    again = run_ingest(spark, chosen)

    assert again.totals["outcome"] == "was already written"
    assert records(data) == [(b"a", b"1"), (b"b", b"2")]


def test_another_topic_is_a_source_too(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with cordwood.open(data) as store:
        store.create_topic("first").append(b"1", key=b"a")

    report = run_ingest(
        spark,
        options(
            data,
            data,
            source="cordwood",
            options={"subscribe": "first", "startingOffsets": "earliest"},
            columns=IngestColumns(key="key", value="value"),
            checkpoint=str(tmp_path / "checkpoint"),
        ),
    )

    assert report.totals["records"] == 1
    assert records(data) == [(b"a", b"1")]


def test_a_dry_run_shows_the_columns_and_writes_nothing(
    spark: SparkSession, data: Path, source: Path
) -> None:
    columns = IngestColumns(key="who", timestamp="at")

    report = run_ingest(spark, options(data, source, columns=columns, is_dry_run=True))

    assert [dict(row) for row in report.rows] == [
        {"column": "value", "type": "string"},
        {"column": "key", "type": "string"},
        {"column": "timestamp", "type": "timestamp"},
    ]
    with cordwood.open(data, read_only=True) as store:
        assert store.topics() == []


def test_a_batch_of_which_nobody_knows_whether_it_is_the_same_must_be_named(data: Path) -> None:
    with pytest.raises(ConfigError, match="so that running it twice writes once"):
        options(data, None, source="jdbc")


def test_an_interval_is_for_streams(data: Path, source: Path) -> None:
    with pytest.raises(ConfigError, match="set a checkpoint too"):
        options(data, source, interval="1 second")
