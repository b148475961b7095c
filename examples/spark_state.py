"""State with a lifetime: visits of a page, ended by silence, with Spark's `transformWithState`.

    python examples/spark_state.py [DIRECTORY]

A topic has clicks. Each user has a state, which counts the clicks of the visit. A timer ends a
visit that was silent for a second and writes it to another topic. The state also has a time to
live, so that what is forgotten costs nothing. The stream is stopped and restarted in between;
timers and state are in its checkpoint.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import cordwood
import cordwood.spark

SILENCE_MS = 1_000
DAY_MS = 24 * 60 * 60 * 1_000


class Visits(StatefulProcessor):
    """One state for each user; Spark keeps it in RocksDB and in the checkpoint."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._visit = handle.getValueState("visit", "clicks BIGINT", DAY_MS)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        (clicks,) = self._visit.get() or (0,)
        self._visit.update((int(clicks) + sum(map(len, rows)),))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)  # the visit goes on
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + SILENCE_MS)
        yield pd.DataFrame({"key": [], "value": []}, dtype=str)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        (clicks,) = self._visit.get() or (0,)
        self._visit.clear()
        yield pd.DataFrame({"key": [key[0]], "value": [str(clicks)]})

    def close(self) -> None:
        pass


def click(directory: Path, *users: str) -> None:
    with cordwood.open(directory) as store:
        for user in users:
            store.topic("clicks").append(b"{}", key=user.encode())


def run_until(spark: SparkSession, directory: Path, visits_wanted: int) -> None:
    source = spark.readStream.format("cordwood").option("subscribe", "clicks")
    rows = source.option("startingOffsets", "earliest").load(str(directory))
    clicks = rows.select(sql.col("key").cast("string").alias("user"))
    visits = clicks.groupBy("user").transformWithStateInPandas(
        Visits(),
        outputStructType="key STRING, value STRING",
        outputMode="Append",
        timeMode="ProcessingTime",
    )
    sink = visits.writeStream.format("cordwood").option("topic", "visits")
    sink = sink.option("checkpointLocation", str(directory.with_name("checkpoint")))
    # Timers need a query that goes on: `availableNow` would not end.
    query = sink.trigger(processingTime="1 second").start(str(directory))
    while len(ended(directory)) < visits_wanted and query.isActive:
        time.sleep(0.5)
    # Between two batches: an interrupted one is done again, which is harmless but noisy.
    deadline_s = time.monotonic() + 30
    while query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.01)
    query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


def ended(directory: Path) -> list[tuple[str, int]]:
    """Users and the clicks of their visits."""
    with cordwood.open(directory, read_only=True) as store:
        records = store.topic("visits").partition(0).read()
        return sorted(((r.key or b"").decode(), int(r.value or 0)) for r in records)


def main(directory: Path) -> None:
    with cordwood.open(directory) as store:
        store.create_topic("clicks")
        store.create_topic("visits")
    spark = cordwood.spark.session(
        "visits",
        config={
            "spark.sql.shuffle.partitions": 2,
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": False,
            # Spark 4.3 starts a Python process for such a state that cannot use Unix sockets.
            "spark.python.unix.domain.socket.enabled": False,
            "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution."
            "streaming.state.RocksDBStateStoreProvider",
        },
    )
    click(directory, "ada", "bob", "ada")
    run_until(spark, directory, 2)
    print(f"visits that ended: {ended(directory)}")
    click(directory, "eve")
    run_until(spark, directory, 3)
    print(f"visits that ended: {ended(directory)}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "data")
