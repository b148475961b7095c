"""Spark Structured Streaming over the segment files: a growing total for each merchant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from demo.quantities_shown import shown_money, shown_s
from demo.scene import Scene
from demo.spark_process import SparkFailedError, SparkProcess, Totals

_START_TIMEOUT_S: Final = 180.0
_BATCH_TIMEOUT_S: Final = 180.0
_BATCHES_MIN: Final = 3


def follow(scene: Scene) -> None:
    spark, screen = scene.spark, scene.screen
    if spark is None:
        screen.say("skipped: no Spark")
        return
    try:
        _wait_until_ready(scene, spark)
    except SparkFailedError as error:
        # For example, there is no Java. The rest of the demo does not need Spark.
        screen.trouble(f"skipped: Spark does not run here: {error}")
        spark.close()
        scene.spark = None
        return
    _watch_totals(scene, spark)


def _wait_until_ready(scene: Scene, spark: SparkProcess) -> None:
    """Usually Spark is ready by now, because it was started first."""
    if not spark.has_answered():
        scene.screen.follow(
            lambda: f"waiting for Spark, started {scene.recording.now_s:.0f} s ago",
            spark.has_answered,
            timeout_s=_START_TIMEOUT_S,
        )
    ready = spark.answer("ready", 0.0)
    scene.screen.say(
        f"Spark {ready['version']} started in the background in {shown_s(ready['seconds'])}; "
        'format("cordwood") reads the directory, not the broker'
    )


def _watch_totals(scene: Scene, spark: SparkProcess) -> None:
    screen = scene.screen
    before = scene.live_totals
    began_s = time.monotonic()

    def line() -> str:
        if not scene.micro_batches:
            return "the first micro-batch is running"
        return (
            f"micro-batch {scene.micro_batches}: {scene.recording.streamed:,} of "
            f"{scene.producer.produced:,} events counted"
        )

    def is_over() -> bool:
        has_grown = scene.micro_batches >= _BATCHES_MIN and scene.live_totals != before
        return has_grown and time.monotonic() - began_s >= scene.plan.watch_s

    went_on = screen.follow(
        line, is_over, rows=lambda: totals_table(scene.live_totals), timeout_s=_BATCH_TIMEOUT_S
    )
    if not went_on:
        spark.ask("halt")  # the answer has the reason
        spark.answer("halted", _BATCH_TIMEOUT_S)
    screen.check(f"the totals grew over {scene.micro_batches} micro-batches", went_on)
    screen.say("the stream keeps running during the next stages")


def totals_table(totals: Totals) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows, the merchant with most events first."""
    ordered = sorted(totals.items(), key=lambda item: -item[1][1])
    return (
        ("merchant", "events", "earned"),
        [
            (name, f"{count:,}", shown_money(amount, currency))
            for name, (currency, count, amount) in ordered
        ],
    )
