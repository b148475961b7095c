"""What is in a topic, in figures."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.spark.jobs.stats import StatsOptions, run_stats, transform
from spark.spark_tasks import tasks_of

TOPIC = "orders"
HOUR_MS = 3_600_000
START = 1_699_999_200_000  # 2023-11-14 22:00 UTC


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        topic = store.create_topic(TOPIC, partitions=2)
        for key, value, after_ms in [
            (b"a", b"12345", 0),
            (b"b", b"12345", 60_000),
            (b"a", b"12345", 30_000),
            (b"a", None, HOUR_MS),
            (None, b"123", HOUR_MS - 1),
        ]:
            topic.append(value, key=key, partition=0, timestamp_ms=START + after_ms)
        topic.append(b"1", key=b"c", partition=1, timestamp_ms=START)
        store.create_topic("empty")
    return path


def test_records_bytes_keys_duplicates_and_late_ones_by_partition_and_hour(
    spark: SparkSession, data: Path
) -> None:
    report = run_stats(spark, StatsOptions(paths=(str(data),), topics=(TOPIC,)))

    assert [tuple(row.values())[1:] for row in report.rows] == [
        (0, datetime(2023, 11, 14, 22), 4, 21, 2, 0.3333, 2, 30_000),
        (0, datetime(2023, 11, 14, 23), 1, 1, 1, 0.0, 0, 0),
        (1, datetime(2023, 11, 14, 22), 1, 2, 1, 0.0, 0, 0),
    ]
    assert dict(report.totals) == {
        "records": 6,
        "bytes": 24,
        "keys": 3,
        "duplicates": 0.4,
        "late": 2,
        "late_ms_max": 30_000,
    }


def test_a_partition_that_many_tasks_read_has_the_figures_that_sorting_it_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(5)
    with cordwood.open(tmp_path, config={"durability": "os"}) as store:
        topic = store.create_topic(TOPIC, partitions=2, config={"segment.records": 7})
        for number in range(200):
            topic.append(
                b"v" * chance.randint(0, 9),
                key=None if number % 9 == 0 else b"k%d" % chance.randint(0, 20),
                partition=number % 2,
                timestamp_ms=START + number * 60_000 - chance.choice([0, 0, 0, 900_000]),
            )
    options = StatsOptions(paths=(str(tmp_path),), topics=(TOPIC,), task_bytes=300)
    rows = spark.read.format("cordwood").option("subscribe", TOPIC).load(str(tmp_path))

    report = run_stats(spark, options)

    assert list(report.rows) == [row.asDict() for row in transform(rows).collect()]
    assert report.totals["records"] == 200
    assert report.totals["late"] > 20
    assert tasks_of(spark, lambda: run_stats(spark, options)) > 40


def test_an_empty_topic_has_nothing_to_count(spark: SparkSession, data: Path) -> None:
    report = run_stats(spark, StatsOptions(paths=(str(data),), topics=("empty",)))

    assert (report.rows, report.totals["records"]) == ((), 0)


def test_a_dry_run_says_over_how_much_it_would_count(data: Path) -> None:
    report = run_stats(None, StatsOptions(paths=(str(data),), topics=(TOPIC,), is_dry_run=True))

    assert report.totals == {"offsets": 6}


def test_few_records_make_few_tasks(spark: SparkSession, data: Path) -> None:
    options = StatsOptions(paths=(str(data),), topics=(TOPIC,))
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 200)
    try:
        tasks = tasks_of(spark, lambda: run_stats(spark, options))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or 2)

    assert 0 < tasks < 20
