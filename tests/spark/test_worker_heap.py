"""Spark's Python workers after they have run our tasks."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import cordwood
import cordwood.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def freeze_counts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"count": pa.array([gc.get_freeze_count()], pa.int64())})


def test_workers_that_read_a_log_do_not_search_it_all_for_garbage(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a", partitions=2)
        for number in range(20):
            topic.append(b"v%d" % number, partition=number % 2)
    table = cordwood.spark.table(spark, tmp_path, "a", where="key IS NULL")

    for _ in range(3):
        assert table.count() == 20
    found = spark.range(0, 4, 1, 4).mapInArrow(freeze_counts, "count long").collect()

    assert max(row["count"] for row in found) > 10_000
