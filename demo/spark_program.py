"""The Spark program of the demo: `python -m demo.spark_program STORE TOPIC DIRECTORY`.

It reads commands from standard input, one per line, and answers with a JSON object per line:

    (start)   ->  {"kind": "ready", ...} once a session has run its first query
    follow    ->  {"kind": "totals", ...} after every micro-batch, until `halt`
    halt      ->  {"kind": "halted"}
    history   ->  {"kind": "history", ...}: the same totals, from a batch query over all records
    (end of input)  ->  stops

After an error it answers {"kind": "failed", ...} and ends. All of Spark's own output goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_VALUE: Final = "kind STRING, merchant STRING, amount BIGINT, currency STRING"
_EARNED: Final = "CASE kind WHEN 'captured' THEN amount WHEN 'refunded' THEN -amount ELSE 0 END"
# For a JVM that lives two minutes on two cores: starting takes a third less work.
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def totals(events: DataFrame) -> DataFrame:
    """By merchant: currency, number of events, amount earned. For batches and streams."""
    from pyspark.sql import functions as f

    decoded = events.select(f.from_json(f.col("value").cast("string"), _VALUE).alias("v"))
    return (
        decoded.select("v.*")
        .groupBy("merchant", "currency")
        .agg(f.count("*").alias("events"), f.sum(f.expr(_EARNED)).alias("amount"))
    )


class SparkProgram:
    """One session, at most one stream. Used by one thread and the stream's callbacks."""

    def __init__(self, store: str, topic: str, directory: str, answers: TextIO) -> None:
        self._store = store
        self._topic = topic
        self._directory = directory
        self._answers = answers
        self._query: StreamingQuery | None = None
        self._spark: SparkSession | None = None

    def run(self, commands: TextIO) -> None:
        began_s = time.monotonic()
        spark = self._session()
        spark.range(1).count()
        self._answer("ready", version=spark.version, seconds=time.monotonic() - began_s)
        for line in commands:
            match line.strip():
                case "follow":
                    self._follow(spark)
                case "halt":
                    self._halt()
                case "history":
                    self._history(spark)
        self._halt()
        spark.stop()

    def _session(self) -> SparkSession:
        import cordwood.spark

        return cordwood.spark.session(
            "cordwood demo",
            master="local[2]",
            config={
                "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
                "spark.ui.enabled": False,
                "spark.ui.showConsoleProgress": False,
                "spark.log.level": "ERROR",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": os.path.join(self._directory, "warehouse"),
                "spark.local.dir": os.path.join(self._directory, "local"),
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
            },
        )

    def _events(self, reader: Any) -> DataFrame:
        source = reader.format("cordwood").option("subscribe", self._topic)
        events: DataFrame = source.option("columns", "value").load(self._store)
        return events

    def _follow(self, spark: SparkSession) -> None:
        reader = spark.readStream.option("startingOffsets", "earliest")
        writer = totals(self._events(reader)).writeStream.outputMode("complete")
        checkpoint = os.path.join(self._directory, "checkpoint")
        self._query = (
            writer.foreachBatch(self._show_batch)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="1 second")
            .start()
        )

    def _show_batch(self, batch: DataFrame, number: int) -> None:
        self._answer("totals", batch=number, rows=_rows(batch))

    def _halt(self) -> None:
        query, self._query = self._query, None
        if query is None:
            return
        failure = query.exception()
        if failure is not None:
            raise failure
        query.stop()
        self._answer("halted")

    def _history(self, spark: SparkSession) -> None:
        began_s = time.monotonic()
        rows = _rows(totals(self._events(spark.read)))
        self._answer("history", rows=rows, seconds=time.monotonic() - began_s)

    def _answer(self, kind: str, **facts: object) -> None:
        self._answers.write(json.dumps({"kind": kind, **facts}) + "\n")
        self._answers.flush()


def _rows(frame: DataFrame) -> list[list[Any]]:
    return [[r["merchant"], r["currency"], r["events"], r["amount"]] for r in frame.collect()]


def main() -> int:
    # The JVM and Spark's launcher inherit standard output, so answers use a copy of it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        store, topic, directory = sys.argv[1:4]
        SparkProgram(store, topic, directory, answers).run(sys.stdin)
    except Exception as error:
        traceback.print_exc()
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        answers.write(json.dumps({"kind": "failed", "reason": reason}) + "\n")
        answers.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
