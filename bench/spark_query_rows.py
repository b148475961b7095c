"""Queries that need only some rows or columns, where formats differ most."""

from functools import partial
from typing import TYPE_CHECKING

from bench.broker_stage import figure_row
from bench.measure import Context, Row
from bench.spark_log import SparkLog
from bench.spark_scan_rows import WINDOW_PART, describe, shape_of
from bench.spark_stage import (
    CORDWOOD,
    KAFKA,
    PARQUET,
    WARMED,
    Frames,
    Query,
    SparkStage,
    cordwood_reader,
    kafka_reader,
    measure_warm,
    parquet_frame,
    seconds_by_name,
    subjects,
    to_noop,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def query_rows(context: Context, stage: SparkStage) -> list[Row]:
    """Each query over Cordwood with the suitable option, over Parquet, and over Kafka."""
    spark, log = stage.spark(context), stage.log(context, shape_of(context, 100))
    table = stage.table(context, log)
    about = describe(log)
    with stage.kafka(context, log) as servers:
        queries: dict[str, tuple[Frames, Query, str]] = {
            "count(*)": (
                _frames(spark, log, table, servers, columns="offset"),
                _count,
                "columns=offset; Parquet counts in its footers",
            ),
            f"a time window of {WINDOW_PART:.0%}": (
                _window_frames(spark, log, table, servers),
                to_noop,
                "startingTimestamp and endingTimestamp; a filter on Parquet",
            ),
            "latest value of each key": (
                _frames(spark, log, table, servers, columns="key,value,offset"),
                _latest_per_key,
                "max_by(value, offset) by key; columns=key,value,offset",
            ),
            "all values of one key": (
                _key_frames(spark, log, table, servers),
                to_noop,
                "option key with key.index=true; a filter on Parquet and Kafka",
            ),
        }
        rows = []
        for title, (frames, query, note) in queries.items():
            taken = measure_warm(subjects(frames, query), runs=context.runs)
            rows.append(
                figure_row(
                    f"{title}, 100 B values",
                    "-",
                    "s",
                    seconds_by_name(taken),
                    judge=PARQUET,
                    is_lower_better=True,
                    note=stage.note(f"{about}; {note}; {WARMED}"),
                )
            )
    return rows


def _count(frame: "DataFrame") -> None:
    assert frame.count() > 0


def _latest_per_key(frame: "DataFrame") -> None:
    from pyspark.sql import functions as fn

    to_noop(frame.groupBy("key").agg(fn.max_by("value", "offset"), fn.max("offset")))


def _frames(
    spark: "SparkSession", log: SparkLog, table: "Path", servers: str | None, **options: object
) -> Frames:
    return {
        CORDWOOD: cordwood_reader(spark, path=log.path, **options).load,
        PARQUET: partial(parquet_frame, spark, table),
        KAFKA: None if servers is None else kafka_reader(spark, servers).load,
    }


def _window_frames(
    spark: "SparkSession", log: SparkLog, table: "Path", servers: str | None
) -> Frames:
    start_ms, end_ms = log.window_ms(WINDOW_PART)
    times = {"startingTimestamp": start_ms, "endingTimestamp": end_ms}
    condition = f"timestamp >= timestamp_millis({start_ms}) AND "
    condition += f"timestamp < timestamp_millis({end_ms})"
    return {
        CORDWOOD: cordwood_reader(spark, path=log.path, **times).load,
        PARQUET: lambda: parquet_frame(spark, table).where(condition),
        KAFKA: None if servers is None else kafka_reader(spark, servers, **times).load,
    }


def _key_frames(spark: "SparkSession", log: SparkLog, table: "Path", servers: str | None) -> Frames:
    key = log.shape.key(log.shape.keys // 2)
    condition = f"key = CAST('{key}' AS BINARY)"
    kafka = None
    if servers is not None:
        kafka_rows = kafka_reader(spark, servers).load

        def kafka() -> "DataFrame":
            return kafka_rows().where(condition)

    return {
        CORDWOOD: cordwood_reader(spark, path=log.path, key=key).load,
        PARQUET: lambda: parquet_frame(spark, table).where(condition),
        KAFKA: kafka,
    }
