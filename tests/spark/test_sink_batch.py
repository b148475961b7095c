"""Batch queries write to a store: all rows, at their places, once, or nothing."""

from __future__ import annotations

import threading
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
from cordwood.log.topics.topic import partition_for
from spark.sink_stores import leftovers, records, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with cordwood.open(tmp_path / "store") as store:
        store.create_topic("orders", partitions=3)
    return tmp_path / "store"


def writing(frame: DataFrame, **options: object) -> DataFrameWriter:
    writer = frame.write.format("cordwood").mode("append")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    return writer


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows with a key and a value, over two tasks."""
    return spark.range(0, count, 1, 2).selectExpr(
        "concat('key ', id % 100) AS key", "cast(id AS string) AS value"
    )


def test_rows_are_where_a_kafka_producer_would_have_put_them(
    spark: SparkSession, path: Path
) -> None:
    writing(numbers(spark, 5000), topic="orders").save(str(path))

    found = records(path)
    assert values(path) == sorted(b"%d" % number for number in range(5000))
    for partition, log in found.items():
        assert log
        assert all(partition_for(record.key or b"", 3) == partition for record in log)
    assert leftovers(path) == []


def test_keys_are_hashed_as_librdkafka_does_where_that_is_asked_for(
    spark: SparkSession, path: Path
) -> None:
    writing(numbers(spark, 500), topic="orders", partitioner="crc32").save(str(path))

    assert len(values(path)) == 500
    for partition, log in records(path).items():
        assert all(zlib.crc32(record.key or b"") % 3 == partition for record in log)


def test_batches_are_compressed_where_that_is_asked_for(spark: SparkSession, path: Path) -> None:
    frame = numbers(spark, 2000).selectExpr("key", "repeat(value, 50) AS value").coalesce(1)
    sizes = []
    for topic in ("plain", "packed"):
        compression = {"plain": "none", "packed": "zstd"}[topic]
        writing(frame, topic=topic, partitions=1, compression=compression).save(str(path))
        sizes.append(sum(log.stat().st_size for log in path.glob(f"{topic}-0/*.log")))

    assert sizes[1] < sizes[0] / 4
    assert values(path, "plain") == values(path, "packed")


def test_every_column_is_written(spark: SparkSession, path: Path) -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    schema = (
        "key binary, value binary, headers array<struct<key: string, value: binary>>, "
        "topic string, partition int, timestamp timestamp, offset bigint"
    )
    rows = [
        (b"k", b"v", [("h", b"x"), ("h", None)], "orders", 2, when, 77),
        (None, None, None, "orders", 2, when, 78),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)

    writing(frame).save(str(path))

    first, second = records(path)[2]
    assert (first.key, first.value) == (b"k", b"v")
    assert list(first.headers) == [("h", b"x"), ("h", None)]
    assert first.timestamp_ms == int(when.timestamp() * 1000)
    assert (first.offset, second.offset) == (0, 1)
    assert (second.key, second.value, list(second.headers)) == (None, None, [])


def test_topics_are_created_where_the_option_says_how(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "new" / "store"
    frame = numbers(spark, 100).selectExpr("*", "concat('topic-', length(value)) AS topic")

    writing(frame, partitions=2).save(str(path))

    with cordwood.open(path, read_only=True) as store:
        assert store.topics() == ["topic-1", "topic-2"]
        assert store.topic("topic-1").partition_count == 2
    assert len(values(path, "topic-1")) == 10
    assert len(values(path, "topic-2")) == 90


def test_a_store_that_is_open_elsewhere_is_written_by_its_owner(
    spark: SparkSession, path: Path
) -> None:
    with cordwood.open(path) as store:
        store.topic("orders").append(b"before", partition=0)
        stop, appended = threading.Event(), [0]

        def append() -> None:
            while not stop.is_set():
                store.topic("orders").append(b"beside", partition=0)
                appended[0] += 1

        thread = threading.Thread(target=append)
        thread.start()
        try:
            writing(numbers(spark, 1000), topic="orders").save(str(path))
        finally:
            stop.set()
            thread.join()

        ends = [log.high_watermark for log in store.topic("orders").partitions]
    assert sum(ends) == 1001 + appended[0]
    assert len([value for value in values(path) if value != b"beside"]) == 1001
    assert leftovers(path) == []


def test_a_numbered_batch_is_written_once(spark: SparkSession, path: Path) -> None:
    for number in (4, 4, 3, 5):
        frame = numbers(spark, 10).selectExpr("key", f"concat('{number}: ', value) AS value")
        writing(frame, topic="orders", applicationId="nightly", batchNumber=number).save(str(path))

    assert values(path) == sorted(b"%d: %d" % (n, i) for n in (4, 5) for i in range(10))
    assert leftovers(path) == []


def test_a_batch_without_a_number_is_written_each_time(spark: SparkSession, path: Path) -> None:
    for _ in range(2):
        writing(numbers(spark, 10), topic="orders").save(str(path))

    assert len(values(path)) == 20


def test_a_task_that_fails_leaves_nothing_of_the_batch(spark: SparkSession, path: Path) -> None:
    # One task: another that is still at work when the batch is given up may leave its file, which
    # the owner sweeps in time.
    rows = numbers(spark, 2000).coalesce(1)
    frame = rows.selectExpr(
        "key", "if(value = '1999', raise_error('out of order'), value) AS value"
    )

    with pytest.raises(Exception, match="out of order"):
        writing(frame, topic="orders").save(str(path))

    assert values(path) == []
    assert leftovers(path) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"topic": "nowhere"}, "nowhere"),
        ({"topic": "a/b"}, "topic = a/b"),
        ({"topic": "orders", "partitions": "0"}, "partitions = 0"),
        ({"topic": "orders", "partitioner": "md5"}, "partitioner = md5"),
        ({"topic": "orders", "kafka.partitioner": "random"}, "use the option partitioner"),
        ({"topic": "orders", "compression": "brotli"}, "compression = brotli"),
        ({"topic": "orders", "timeout": "soon"}, "timeout = soon"),
        ({"topic": "orders", "applicationId": "a"}, "applicationId = a"),
        ({"topic": "orders", "batchNumber": "-1"}, "batchNumber = -1"),
        ({"topic": "orders", "partition": "1"}, "did you mean partitions"),
        ({"topic": "orders", "kafka.bootstrap.servers": "127.0.0.1:1"}, "set either"),
        ({}, "topic"),
    ],
)
def test_options_that_cannot_be_used_are_named(
    spark: SparkSession, path: Path, options: dict[str, str], named: str
) -> None:
    with pytest.raises(Exception, match=named):
        writing(numbers(spark, 1), **options).save(str(path))


def test_a_log_is_not_overwritten(spark: SparkSession, path: Path) -> None:
    with pytest.raises(Exception, match="use mode append"):
        writing(numbers(spark, 1), topic="orders").mode("overwrite").save(str(path))


def test_a_compacted_topic_needs_keys(spark: SparkSession, path: Path) -> None:
    with cordwood.open(path) as store:
        store.create_topic("state", config={"cleanup.policy": "compact"})

    with pytest.raises(Exception, match="compacted"):
        writing(numbers(spark, 5).select("value"), topic="state").save(str(path))

    assert leftovers(path) == []


def test_what_is_read_can_be_written_as_it_is(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    writing(numbers(spark, 500), topic="orders").save(str(path))
    frame = spark.read.format("cordwood").option("subscribe", "orders").load(str(path))

    writing(frame, partitions=3).save(str(tmp_path / "copy"))

    copied = records(tmp_path / "copy")
    assert {p: {(r.key, r.value, r.timestamp_ms) for r in log} for p, log in copied.items()} == {
        p: {(r.key, r.value, r.timestamp_ms) for r in log} for p, log in records(path).items()
    }
