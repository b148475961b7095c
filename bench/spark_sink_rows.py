"""Writing the same cached rows into a store by its path, and into Parquet files."""

import shutil
from typing import TYPE_CHECKING, Final

from bench.broker_stage import figure_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.spark_stage import CORDWOOD, PARQUET, SparkStage
from bench.workload import OS, TOPIC, fresh_path
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_OF_PARQUET: Final = 0.5
_SNAPPY: Final = "Parquet, snappy"
_PARTITIONS: Final = 2


def sink_rows(context: Context, stage: SparkStage, value_size: int) -> list[Row]:
    """Rows/s of a whole write, including the publication."""
    spark = stage.spark(context)
    count = (
        context.pick(600_000, 150_000) if value_size == KIB else context.pick(3_000_000, 500_000)
    )
    rows = _cached(spark, value_size, count)
    seconds = measure_in_turns(
        {
            CORDWOOD: lambda: _into_store(context, rows, count),
            PARQUET: lambda: _into_parquet(context, rows, "uncompressed"),
            _SNAPPY: lambda: _into_parquet(context, rows, "snappy"),
        },
        runs=context.runs,
    )
    rows.unpersist(blocking=True)
    size = "1 KiB" if value_size == KIB else f"{value_size} B"
    return [
        figure_row(
            f"sink, {size} values",
            "disk",
            "k rows/s",
            {name: [count / s / 1e3 for s in each] for name, each in seconds.items()},
            judge=PARQUET,
            ratio=_OF_PARQUET,
            note=f"{count:,} rows of key, value and timestamp from Spark's cache; ours "
            "exactly once and synced, Parquet's writer syncs nothing",
        )
    ]


def _cached(spark: "SparkSession", value_size: int, count: int) -> "DataFrame":
    """Rows in the JVM's memory, with random values from UUIDs and hashes."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    noise = fn.concat(*(fn.unhex(fn.sha2(fn.concat("id", fn.lit(n)), 512)) for n in range(16)))
    rows = spark.range(0, count, 1, _PARTITIONS).select(
        fn.concat(fn.lit("key-"), fn.lpad((fn.col("id") % (count // 10)).cast("string"), 10, "0"))
        .cast("binary")
        .alias("key"),
        fn.substring(noise, 1, value_size).alias("value"),
        fn.timestamp_millis(fn.col("id") + 1_700_000_000_000).alias("timestamp"),
    )
    cached = rows.persist(StorageLevel.MEMORY_ONLY)
    assert cached.count() == count
    return cached


def _into_store(context: Context, rows: "DataFrame", count: int) -> float:
    path = fresh_path(context.directory, "sink")
    with Store([str(path)], StoreSetup(has_housekeeping=False)) as store:
        store.create_topic(TOPIC, partitions=_PARTITIONS, config=OS)
    writer = rows.write.format("cordwood").mode("append").option("topic", TOPIC)
    seconds = seconds_of(lambda: writer.save(str(path)))
    _check(path, count)
    shutil.rmtree(path)
    return seconds


def _check(path: "Path", count: int) -> None:
    with Store([str(path)], StoreSetup(has_housekeeping=False)) as store:
        found = sum(log.end_offset for log in store.topic(TOPIC).partitions)
    assert found == count, (found, count)


def _into_parquet(context: Context, rows: "DataFrame", compression: str) -> float:
    path = fresh_path(context.directory, "sink")
    writer = rows.write.option("compression", compression)
    seconds = seconds_of(lambda: writer.parquet(str(path)))
    shutil.rmtree(path)
    return seconds
