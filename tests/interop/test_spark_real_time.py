"""Spark's real-time mode on our broker: records come out while the batch that reads them goes on.

It works only with sources of the JVM, so `format("kafka")` is the way to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cordwood
from interop.committed_topic import CommittedTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A batch of ten minutes does not end during a test; five seconds are the shortest.
LONG, SHORT = "10 minutes", "5 seconds"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-kafka"),
    pytest.mark.timeout(300),
]


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


@contextmanager
def written(
    frame: DataFrame, servers: str, topic: str, work: Path, duration: str
) -> Iterator[StreamingQuery]:
    """A query in real-time mode; it is stopped at the end, and must not have failed."""
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    trigger: dict[str, Any] = {"realTime": duration}  # pyspark's overloads lack it
    query = (
        writer.option("topic", topic)
        .option("kafka.linger.ms", "0")
        .option("checkpointLocation", str(work / "checkpoint"))
        .outputMode("update")
        .trigger(**trigger)
        .start()
    )
    try:
        yield query
    finally:
        failure = query.exception()
        query.stop()
    assert failure is None, failure


def append(broker: cordwood.Broker, topic: str, numbers: range) -> None:
    made = broker.store.topic(topic)
    for n in numbers:
        made.append(b"value %d" % n, key=b"key %d" % (n % 3), partition=n % 2)


def found(topic: CommittedTopic) -> Counter[bytes]:
    return Counter(message.value() or b"" for message in topic.messages)


def values(count: int) -> Counter[bytes]:
    return Counter(b"VALUE %d" % n for n in range(count))


def test_records_come_out_while_the_batch_goes_on(
    kafka_spark: SparkSession, broker: cordwood.Broker, tmp_path: Path
) -> None:
    broker.create_topic("requests", partitions=2)
    broker.create_topic("replies")
    servers = broker.bootstrap_servers
    frame = read(kafka_spark, servers, "requests")
    replies = frame.selectExpr("key", "upper(CAST(value AS STRING)) AS value")

    with (
        CommittedTopic(servers, "replies") as out,
        written(replies, servers, "replies", tmp_path, LONG) as query,
    ):
        for end in (10, 11, 30):
            append(broker, "requests", range(len(out.messages), end))
            out.wait_for(end)
        progress = query.recentProgress

    assert found(out) == values(30)
    assert progress == [], "no batch has ended"


def test_a_query_goes_on_from_its_last_batch_though_the_broker_restarts(
    kafka_spark: SparkSession, tmp_path: Path
) -> None:
    with cordwood.Broker() as broker:
        broker.create_topic("requests", partitions=2)
        broker.create_topic("replies")
        servers = broker.bootstrap_servers
        frame = read(kafka_spark, servers, "requests")
        replies = frame.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        with CommittedTopic(servers, "replies") as out:
            append(broker, "requests", range(20))
            with written(replies, servers, "replies", tmp_path, SHORT) as query:
                out.wait_until(lambda _: _read_rows(query) >= 20)
                broker.restart()
                append(broker, "requests", range(20, 30))
                out.wait_until(lambda _: _read_rows(query) >= 30)
            append(broker, "requests", range(30, 40))
            with written(replies, servers, "replies", tmp_path, SHORT):
                out.wait_until(lambda messages: len({m.value() for m in messages}) >= 40)

            seen = found(out)

    assert seen.keys() == values(40).keys()
    assert {seen[b"VALUE %d" % n] for n in range(30)} == {1}, "a batch that ended is not repeated"


def _read_rows(query: StreamingQuery) -> int:
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def test_a_running_count_tells_each_change_at_once(
    kafka_spark: SparkSession, broker: cordwood.Broker, tmp_path: Path
) -> None:
    broker.create_topic("clicks", partitions=2)
    broker.create_topic("counts")
    servers = broker.bootstrap_servers
    counts = read(kafka_spark, servers, "clicks").groupBy("key").count()
    frame = counts.selectExpr("key", "CAST(count AS STRING) AS value")

    with (
        CommittedTopic(servers, "counts") as out,
        written(frame, servers, "counts", tmp_path, LONG),
    ):
        append(broker, "clicks", range(6))
        out.wait_for(6)
        append(broker, "clicks", range(6, 12))
        out.wait_for(12)

    told: dict[Any, list[int]] = {}
    for message in out.messages:
        told.setdefault(message.key(), []).append(int(message.value() or b""))
    assert {key: sorted(numbers) for key, numbers in told.items()} == {
        b"key %d" % n: [1, 2, 3, 4] for n in range(3)
    }


def test_our_own_source_says_that_it_cannot(
    kafka_spark: SparkSession, broker: cordwood.Broker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("ours")
    reader = kafka_spark.readStream.format("cordwood").option("subscribe", "ours")
    frame = reader.load(str(tmp_path / "data")).select("value")

    with (
        pytest.raises(StreamingQueryException, match="not supported in Real-time Mode"),
        written(frame, broker.bootstrap_servers, "theirs", tmp_path, LONG) as query,
    ):
        query.awaitTermination(60)
