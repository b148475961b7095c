"""Spark's own Kafka source and sink against our broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cordwood

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BASE_MS = 1_760_000_000_000
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-kafka")]


@pytest.fixture
def spark(kafka_spark: SparkSession) -> SparkSession:
    return kafka_spark


def fill(broker: cordwood.Broker, topic: str, count: int, *, start: int = 0) -> None:
    """Records a second apart, in turn to each partition."""
    made = broker.store.registry.find(topic) or broker.create_topic(topic, partitions=2)
    for n in range(start, start + count):
        made.append(
            b"value %d" % n,
            key=None if n % 5 == 4 else b"key %d" % n,
            headers=[("n", b"%d" % n)] * (n % 3),
            partition=n % made.partition_count,
            timestamp_ms=BASE_MS + n * 1000,
        )


def read(spark: SparkSession, broker: cordwood.Broker, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka").option("subscribe", topic)
    return reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load(
        **{name: str(value) for name, value in options.items()}
    )


def values_in(frame: DataFrame) -> list[str]:
    return sorted(
        (row.value.decode() for row in frame.select("value").collect()),
        key=lambda text: int(text.split()[1]),
    )


def values(*numbers: int) -> list[str]:
    return [f"value {n}" for n in numbers]


def stored(broker: cordwood.Broker, topic: str) -> list[cordwood.Record]:
    return [r for log in broker.store.topic(topic).partitions for r in log.read()]


def test_every_column_of_a_batch_is_what_was_appended(
    spark: SparkSession, broker: cordwood.Broker
) -> None:
    fill(broker, "columns", 12)

    frame = read(spark, broker, "columns", includeHeaders=True)
    rows = frame.selectExpr(
        "*", "unix_millis(timestamp) AS time_ms"
    ).orderBy("partition", "offset").collect()  # fmt: skip

    expected = [
        (log.partition, record)
        for log in broker.store.topic("columns").partitions
        for record in log.read()
    ]
    assert [
        (row.topic, row.partition, row.offset, row.time_ms, row.timestampType) for row in rows
    ] == [("columns", number, r.offset, r.timestamp_ms, 0) for number, r in expected]
    assert [
        (row.key, row.value, [(h.key, bytes(h.value)) for h in row.headers or ()]) for row in rows
    ] == [(r.key, r.value, list(r.headers)) for _, r in expected]


def test_a_batch_may_be_cut_by_offsets_and_by_times(
    spark: SparkSession, broker: cordwood.Broker
) -> None:
    fill(broker, "cuts", 12)
    # Partition 0 has the even numbers, partition 1 the odd ones.
    offsets = {
        "startingOffsets": json.dumps({"cuts": {"0": 1, "1": -2}}),
        "endingOffsets": json.dumps({"cuts": {"0": -1, "1": 2}}),
    }
    times = {"startingTimestamp": BASE_MS + 2500, "endingTimestamp": BASE_MS + 7000}
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({"cuts": {"0": BASE_MS + 9999, "1": BASE_MS}}),
        "endingOffsetsByTimestamp": json.dumps({"cuts": {"0": BASE_MS * 2, "1": BASE_MS + 3000}}),
    }

    assert values_in(read(spark, broker, "cuts", **offsets)) == values(1, 2, 3, 4, 6, 8, 10)
    assert values_in(read(spark, broker, "cuts", **times)) == values(3, 4, 5, 6)
    assert values_in(read(spark, broker, "cuts", **by_partition)) == values(1, 10)


def stream(
    spark: SparkSession, broker: cordwood.Broker, topic: str, work: Path, **options: Any
) -> list[str]:
    """Run a query to the end of the topic; all that it and those before it have read."""
    reader = spark.readStream.format("kafka").option("subscribe", topic)
    query = (
        reader.options(**options, startingOffsets="earliest")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "read"))
    )
    query.awaitTermination()
    return values_in(spark.read.parquet(str(work / "read")))


def test_a_stream_goes_on_from_its_checkpoint_after_a_restart_of_everything(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cordwood.Broker() as broker:
        fill(broker, "events", 10)
        first = stream(spark, broker, "events", tmp_path, maxOffsetsPerTrigger=3)
        fill(broker, "events", 4, start=10)
        broker.store.alter_topic("events", partitions=3)
        broker.restart()
        fill(broker, "events", 3, start=14)  # one to each partition, of which one is new
        second = stream(spark, broker, "events", tmp_path, maxOffsetsPerTrigger=3)

    assert first == values(*range(10))
    assert second == values(*range(17))


def test_a_stream_says_when_records_it_had_not_read_are_gone(
    spark: SparkSession, broker: cordwood.Broker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    fill(broker, "lossy", 4)
    stream(spark, broker, "lossy", tmp_path)
    fill(broker, "lossy", 8, start=4)
    broker.store.topic("lossy").partition(0).delete_before(4)  # 4 and 6 were never read

    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        stream(spark, broker, "lossy", tmp_path)
    rest = stream(spark, broker, "lossy", tmp_path, failOnDataLoss="false")

    assert rest == values(0, 1, 2, 3, 5, 7, 8, 9, 10, 11)


def test_the_sink_writes_rows_to_the_topic_and_partition_they_name(
    spark: SparkSession, broker: cordwood.Broker
) -> None:
    broker.create_topic("north", partitions=2)
    broker.create_topic("south", partitions=2)
    frame = spark.range(20).selectExpr(
        "CASE WHEN id % 2 = 0 THEN 'north' ELSE 'south' END AS topic",
        "CAST(id DIV 10 AS INT) AS partition",
        "IF(id % 7 = 0, NULL, CAST(id AS STRING)) AS key",
        "concat('value ', id) AS value",
        "array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )

    writer = frame.write.format("kafka").option("includeHeaders", "true")
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()

    for parity, topic in enumerate(("north", "south")):
        for number, log in enumerate(broker.store.topic(topic).partitions):
            ids = [n for n in range(number * 10, number * 10 + 10) if n % 2 == parity]
            assert sorted(
                (record.value, record.key, list(record.headers)) for record in log.read()
            ) == [
                (b"value %d" % n, None if n % 7 == 0 else b"%d" % n, [("id", b"%d" % n)])
                for n in sorted(ids, key=str)
            ], (topic, number)


def test_a_stream_moves_records_from_one_topic_to_another(
    spark: SparkSession, broker: cordwood.Broker, tmp_path: Path
) -> None:
    fill(broker, "inward", 50)
    servers = ("kafka.bootstrap.servers", broker.bootstrap_servers)
    source = spark.readStream.format("kafka").option(*servers).option("subscribePattern", "inw.*")

    query = (
        source.option("startingOffsets", "earliest")
        .load()
        .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.format("kafka")
        .option(*servers)
        .option("topic", "outward")  # which is created for it
        .option("kafka.compression.type", "zstd")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    moved = sorted((record.value or b"", record.key) for record in stored(broker, "outward"))
    assert moved == sorted(
        ((record.value or b"").upper(), record.key) for record in stored(broker, "inward")
    )


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_spark_reads_and_writes_over_every_kind_of_listener(
    spark: SparkSession, protocol: str
) -> None:
    users = {} if protocol == "SSL" else {"spark": "a-good-password"}
    with cordwood.Broker(security=protocol, users=users) as broker:
        fill(broker, "secured", 10)
        broker.create_topic("copy")
        options = {f"kafka.{key}": value for key, value in broker.java_config("spark").items()}
        source = spark.read.format("kafka").options(**options).option("subscribe", "secured")
        frame = source.load()
        assert values_in(frame) == values(*range(10))

        columns = frame.select("key", "value")
        columns.write.format("kafka").options(**options, topic="copy").save()
        copied = sorted(record.value or b"" for record in stored(broker, "copy"))

    assert copied == sorted(b"value %d" % n for n in range(10))
