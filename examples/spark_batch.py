"""Query a log with Spark: executors open the segment files, no broker is involved.

    python examples/spark_batch.py [DIRECTORY]

A topic with three partitions holds a day of payments, in segments of about two hours. Three
queries read all of it, only the last hours, and only one customer. The store is in `DIRECTORY`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import cordwood
import cordwood.spark

MERCHANTS = ("bakery", "florist", "garage")
MIDNIGHT_MS = 1_767_225_600_000  # 2026-01-01, UTC
HOUR_MS = 3_600_000


def write_a_day(directory: Path) -> None:
    """One payment each minute. `retention.ms` is off, because these old records would expire."""
    config = {"segment.records": 40, "retention.ms": -1, "key.index": "true"}
    with cordwood.open(directory) as store:
        topic = store.create_topic("payments", partitions=3, config=config)
        for minute in range(24 * 60):
            payment = {"merchant": MERCHANTS[minute % 3], "cents": 100 + minute % 7}
            topic.append(
                json.dumps(payment).encode(),
                key=b"customer-%d" % (minute % 10),
                timestamp_ms=MIDNIGHT_MS + minute * 60_000,
            )
        segments = sum(len(log.segments()) for log in topic.partitions)
        store.maintain()  # builds the key indexes of sealed segments
    print(f"wrote 1440 payments to {segments} segments")


def payments(spark: SparkSession, directory: Path, **options: object) -> DataFrame:
    """Rows have the columns of Spark's Kafka source; our values are JSON."""
    reader = spark.read.format("cordwood").option("subscribe", "payments")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    rows = reader.load(str(directory))
    event = sql.from_json(sql.col("value").cast("string"), "merchant STRING, cents BIGINT")
    return rows.select("partition", "offset", "timestamp", event.alias("event"))


def main(directory: Path) -> None:
    write_a_day(directory)
    spark = cordwood.spark.session("payments", master="local[2]")
    try:
        totals = payments(spark, directory).groupBy("event.merchant").agg(sql.sum("event.cents"))
        print("all day:", dict(sorted(map(tuple, totals.collect()))))

        # Spark opens only segments with such timestamps.
        late = payments(spark, directory, startingTimestamp=MIDNIGHT_MS + 22 * HOUR_MS)
        print("since 22:00:", late.count(), "payments")

        # With the key index, Spark reads only batches that may hold the key.
        mine = payments(spark, directory, key="customer-7")
        print("customer-7:", mine.agg(sql.sum("event.cents")).collect()[0][0], "cents")
    finally:
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
