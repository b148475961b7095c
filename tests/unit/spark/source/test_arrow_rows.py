"""Rows hold what was appended, in exactly the schema that Spark accepts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import cordwood
from cordwood.errors import ConfigError
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_walk import read_runs
from cordwood.quantities import INT64_MAX
from cordwood.spark.source.arrow_rows import ArrowRows, arrow_schema
from cordwood.spark.source.row_schema import ALL_COLUMNS, DEFAULT_COLUMNS, columns_of, row_schema

RECORDS = [
    cordwood.Record(key=b"k1", value=b"v1", timestamp_ms=1000, headers=[("a", b"1"), ("b", None)]),
    cordwood.Record(key=None, value=b"", timestamp_ms=2000),
    cordwood.Record(key=b"", value=None, timestamp_ms=3000),
    cordwood.Record(key=b"k4", value=b"v" * 300, timestamp_ms=4000, headers=[("é", b"")]),
]


def batches_of(
    log: LogReader,
    columns: tuple[str, ...] = ALL_COLUMNS,
    limits: Mapping[str, int] | None = None,
) -> list[pa.RecordBatch]:
    rows = ArrowRows(columns, topic=log.topic, partition=log.partition, **(limits or {}))
    runs = read_runs(log.source, log.start_offset, log.high_watermark)
    found = [batch for run in runs for batch in rows.add(run)]
    return [*found, *rows.rest()]


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_rows_are_the_records_with_kafkas_columns(tmp_path: Path, codec: str) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("orders", partitions=3, config={"compression.type": codec})
        topic.append_many(RECORDS, partition=2)

        rows = rows_of(batches_of(topic.partition(2)))

    assert [row["key"] for row in rows] == [b"k1", None, b"", b"k4"]
    assert [row["value"] for row in rows] == [b"v1", b"", None, b"v" * 300]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {
        ("orders", 2, 0)
    }
    assert [row["timestamp"] for row in rows] == [
        datetime.fromtimestamp(second, UTC) for second in (1, 2, 3, 4)
    ]
    assert [row["headers"] for row in rows] == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        None,
        [{"key": "é", "value": b""}],
    ]


@pytest.mark.parametrize("columns", [ALL_COLUMNS, DEFAULT_COLUMNS, ("offset",), ("headers", "key")])
def test_the_schema_is_the_one_spark_asks_for(columns: tuple[str, ...]) -> None:
    assert arrow_schema(columns).equals(to_arrow_schema(row_schema(columns), timezone="UTC"))


def test_a_schema_that_the_user_writes_chooses_columns() -> None:
    assert columns_of(row_schema(("value", "offset"))) == ("value", "offset")


@pytest.mark.parametrize("ddl", ["offset int", "colour string", "key string"])
def test_a_schema_of_other_columns_or_types_is_refused(ddl: str) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructType

    name, kind = ddl.split()
    schema = StructType().add(name, IntegerType() if kind == "int" else StringType())

    with pytest.raises(ConfigError, match="schema = "):
        columns_of(schema)


@pytest.mark.parametrize("limits", [{"rows_max": 7}, {"rows_max": 1}, {"bytes_max": 200}])
def test_batches_keep_to_their_limits_and_lose_nothing(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    with cordwood.open(tmp_path) as store:
        # Each compressed batch is a run by itself: what is too large is handed on after a run.
        log = store.create_topic("a", config={"compression.type": "lz4"}).partition(0)
        for part in range(5):
            log.append_many(
                [
                    cordwood.Record(
                        key=None if n % 3 else b"%d" % n,
                        value=b"x" * n,
                        headers=[("h", b"%d" % n)] * (n % 4),
                    )
                    for n in range(part, part + 20)
                ]
            )

        batches = batches_of(log, limits=limits)
        whole = batches_of(log)

    assert rows_of(batches) == rows_of(whole)
    assert len(batches) >= 5
    assert all(batch.num_rows <= limits.get("rows_max", 100) for batch in batches)
    for batch in batches:
        batch.validate(full=True)


def test_each_record_says_who_dated_it(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a")
        topic.append_many([(b"k", b"v")] * 3)
        store.alter_topic("a", config={"message.timestamp.type": "LogAppendTime"})
        topic.append_many([(b"k", b"v")] * 2)
        store.alter_topic("a", config={"message.timestamp.type": "CreateTime"})
        topic.append_many([(b"k", b"v")])

        rows = rows_of(batches_of(topic.partition(0)))

    assert [row["timestampType"] for row in rows] == [0, 0, 0, 1, 1, 0]


def test_times_that_spark_cannot_hold_become_the_last_it_can(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        config = {"message.timestamp.after.max.ms": INT64_MAX}
        log = store.create_topic("a", config=config).partition(0)
        log.append_many([cordwood.Record(value=b"", timestamp_ms=t) for t in (5, INT64_MAX - 1, 6)])

        [batch] = batches_of(log, ("timestamp",))

    times = batch.column(0).cast(pa.int64()).to_pylist()
    assert times == [5000, INT64_MAX // 1000 * 1000, 6000]
