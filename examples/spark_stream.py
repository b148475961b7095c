"""Follow a log with Spark: a running total per merchant, kept in another topic of the same store.

    python examples/spark_stream.py [DIRECTORY]

The stream is stopped and restarted. It continues where it stopped, and each payment counts once. A
permanent query has `trigger(processingTime="1 second")` instead of `availableNow`. A broker may own
the store at the same time.
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


def pay(directory: Path, *payments: tuple[str, int]) -> None:
    with cordwood.open(directory) as store:
        for merchant, cents in payments:
            event = json.dumps({"merchant": merchant, "cents": cents})
            store.topic("payments").append(event.encode(), key=merchant.encode())


def totals(payments: DataFrame) -> DataFrame:
    """The columns of the sink: the key chooses the partition, the value is the new total."""
    event = sql.from_json(sql.col("value").cast("string"), "merchant STRING, cents BIGINT")
    owed = (
        payments.select(event.alias("event")).groupBy("event.merchant").agg(sql.sum("event.cents"))
    )
    return owed.toDF("merchant", "cents").select(
        sql.col("merchant").alias("key"), sql.col("cents").cast("string").alias("value")
    )


def run_until_caught_up(spark: SparkSession, directory: Path) -> None:
    def append_changes(changed: DataFrame, number: int) -> None:
        """Write a batch once, even if Spark repeats it after a crash: its number identifies it."""
        sink = changed.write.format("cordwood").mode("append").option("topic", "totals")
        sink.option("applicationId", "totals").option("batchNumber", number).save(str(directory))

    source = spark.readStream.format("cordwood").option("subscribe", "payments")
    rows = source.option("startingOffsets", "earliest").load(str(directory))
    # Spark lets a Python sink only append. Totals change, so they need foreachBatch.
    query = totals(rows).writeStream.outputMode("update").foreachBatch(append_changes)
    query = query.option("checkpointLocation", str(directory.with_name("checkpoint")))
    query.trigger(availableNow=True).start().awaitTermination()


def show(directory: Path) -> None:
    """The newest record of each key is the table; compaction removes the others."""
    with cordwood.open(directory, read_only=True) as store:
        records = store.topic("totals").partition(0).read()
        current = {(record.key or b"").decode(): int(record.value or 0) for record in records}
    print(dict(sorted(current.items())))


def main(directory: Path) -> None:
    with cordwood.open(directory) as store:
        store.create_topic("payments", partitions=2)
        store.create_topic("totals", config={"cleanup.policy": "compact"})
    config = {"spark.sql.shuffle.partitions": 2}
    spark = cordwood.spark.session("totals", master="local[2]", config=config)
    try:
        pay(directory, ("bakery", 250), ("florist", 1500), ("bakery", 100))
        run_until_caught_up(spark, directory)
        show(directory)

        pay(directory, ("bakery", 50), ("garage", 9900))
        run_until_caught_up(spark, directory)
        show(directory)
    finally:
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "data")
