"""What the Spark suite makes of what it measured."""

from __future__ import annotations

import pytest

from bench.spark import row_makers
from bench.spark_stage import CORDWOOD, PARQUET, SparkStage, Taken, cpu_row, seconds_by_name
from bench.spark_trigger_rows import trigger_durations_ms


def test_triggers_without_rows_do_not_count() -> None:
    progress = [
        {"numInputRows": 20, "durationMs": {"triggerExecution": 120, "addBatch": 50}},
        {"numInputRows": 0, "durationMs": {"triggerExecution": 5}},
        {"numInputRows": 20, "durationMs": {"triggerExecution": 130}},
    ]

    assert trigger_durations_ms(progress) == [120.0, 130.0]


def test_processor_time_is_told_for_a_million_rows_and_less_is_better() -> None:
    taken = {
        CORDWOOD: [Taken(seconds=1.0, cpu_s=2.0)],
        PARQUET: [Taken(seconds=1.0, cpu_s=3.0)],
    }

    row = cpu_row("scan", taken, rows=500_000)

    assert row.cordwood.values == (4.0,)
    assert row.limit is not None
    assert row.ratio_to(row.limit) == pytest.approx(1.5)
    assert row.target is None
    assert seconds_by_name(taken) == {CORDWOOD: [1.0], PARQUET: [1.0]}


def test_a_row_says_why_kafka_is_not_beside_it() -> None:
    stage = SparkStage()
    stage.kafka_absence = "there is no Java"

    assert stage.note("10 rows") == "10 rows; Kafka skipped: there is no Java"
    assert SparkStage().note("10 rows") == "10 rows"


def test_asking_for_the_rows_starts_nothing() -> None:
    assert list(row_makers()) == [
        "scan 1 KiB",
        "scan 100 B",
        "table 1 KiB",
        "table 100 B",
        "queries 100 B",
        "time window",
        "sink 1 KiB",
        "sink 100 B",
        "trigger",
        "real time",
        "compact",
        "export",
        "rejects",
    ]
