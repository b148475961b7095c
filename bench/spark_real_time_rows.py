"""Latency through a query in Spark's real-time mode, from one topic of a broker to another."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bench.broker_latency_rows import Pace, end_to_end_latency
from bench.broker_servers import OS, BrokerServer, new_topic
from bench.broker_stage import figure_row
from bench.measure import Context, Latency, Row, measure_in_turns
from bench.spark_stage import SparkStage
from bench.wire_load import HOST
from bench.workload import fresh_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_KAFKA: Final = 1.0
_RECORDS_PER_S: Final = 100
_NOT_COUNTED_S: Final = 5.0  # the first batch is planned, and the JVM compiles
# Longer than a sample: nothing waits for its end. pyspark's overloads lack the keyword.
_TRIGGER: Final[dict[str, Any]] = {"realTime": "10 minutes"}


def real_time_rows(context: Context, stage: SparkStage) -> list[Row]:
    """The median and the 99th percentile; no rows without Spark's Kafka source."""
    spark = stage.spark(context)
    seconds = context.pick(10, 3)
    pace = Pace(records_per_s=_RECORDS_PER_S, not_counted_s=_NOT_COUNTED_S)
    with stage.brokers(context) as servers:
        if not servers:
            return []
        taken = measure_in_turns(
            {
                server.label(OS): partial(_measure, context, spark, server, seconds, pace)
                for server in servers
            },
            runs=context.runs,
            warm_up=False,  # each sample has a query of its own
        )
        judge = next(server.label(OS) for server in servers[1:])
    title = f"real-time mode, topic to topic, {_RECORDS_PER_S} records/s"
    note = f"Spark's Kafka source and sink, linger.ms=0, 1 KiB; {seconds} s a run"
    return [
        figure_row(
            f"{title}, p50",
            "os",
            "ms",
            {name: [each.p50_us / 1000 for each in every] for name, every in taken.items()},
            judge=judge,
            ratio=_OF_KAFKA,
            is_lower_better=True,
            note=note,
        ),
        figure_row(
            f"{title}, p99",
            "os",
            "ms",
            {name: [each.p99_us / 1000 for each in every] for name, every in taken.items()},
            judge=judge,
            is_lower_better=True,
        ),
    ]


def _measure(
    context: Context, spark: "SparkSession", server: BrokerServer, seconds: float, pace: Pace
) -> Latency:
    with (
        new_topic(server, OS) as read,
        new_topic(server, OS) as written,
        _query(context, spark, server, read, written),
    ):
        return end_to_end_latency(server, read, seconds, to=written, pace=pace)


@contextmanager
def _query(
    context: Context, spark: "SparkSession", server: BrokerServer, read: str, written: str
) -> Iterator[None]:
    """A query that copies one topic to another, record by record."""
    servers = f"{HOST}:{server.port}"
    checkpoint = fresh_path(context.directory, "checkpoint")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", read).option("startingOffsets", "earliest").load()
    writer = frame.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", servers).option("kafka.linger.ms", "0")
    writer = writer.option("topic", written).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**_TRIGGER).start()
    try:
        yield
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
