"""`cordwood.spark.table`: queries that say which columns and rows they need.

Parquet and Spark's Kafka source get the same query in their own words: Parquet with its pruned
columns and filters, Kafka with its options for time. Where all rows are read, `spark_ready` says
what a source in Python costs at least; a query of two rows says what Spark costs for any.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import cordwood.spark
from bench.broker_stage import figure_row
from bench.measure import Context, Row
from bench.spark_log import SparkLog
from bench.spark_ready import ready_frame
from bench.spark_scan_rows import WINDOW_PART, describe, shape_of
from bench.spark_stage import (
    CORDWOOD,
    KAFKA,
    PARQUET,
    WARMED,
    SparkStage,
    kafka_reader,
    measure_warm,
    parquet_frame,
    seconds_by_name,
    timed,
    to_noop,
)
from bench.workload import TOPIC
from cordwood.quantities import KIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cordwood.spark import LogTable

_NARROW: Final = ("offset", "timestamp")
_OF_KAFKA: Final = 3.5
_READY: Final = "Python with ready batches"
_NOTHING: Final = "Spark with two rows"

Calls = Mapping[str, Callable[[], object] | None]  # None: leave the subject out


def table_rows(context: Context, stage: SparkStage, value_size: int) -> list[Row]:
    """Four queries, each beside Parquet and beside Spark's Kafka source."""
    spark, log = stage.spark(context), stage.log(context, shape_of(context, value_size))
    parquet = partial(parquet_frame, spark, stage.table(context, log))
    size = "1 KiB" if value_size == KIB else f"{value_size} B"
    rows: list[Row] = []
    with stage.kafka(context, log) as servers:
        for title, ratio, calls in _queries(spark, log, parquet, servers):
            taken = measure_warm(timed(calls), runs=context.runs)
            rows += _judged(f"table: {title}, {size} values", seconds_by_name(taken), ratio, log)
    return rows


def _queries(
    spark: "SparkSession", log: SparkLog, parquet: "Callable[[], DataFrame]", servers: str | None
) -> list[tuple[str, float, Calls]]:
    """Title, the ratio to Parquet to reach, and the query over each subject."""

    def table(**options: object) -> "LogTable":
        return cordwood.spark.table(spark, log.path, TOPIC, **options)  # type: ignore[arg-type]

    def kafka(query: "Callable[[DataFrame], object]", **options: object) -> Calls:
        if servers is None:
            return {}
        return {KAFKA: lambda: query(kafka_reader(spark, servers, **options).load())}

    ready_rows = ready_frame(spark, log.path, table().columns)
    ready_narrow = ready_frame(spark, log.path, _NARROW)
    start_ms, end_ms = log.window_ms(WINDOW_PART)
    window = f"timestamp >= timestamp_millis({start_ms}) AND "
    window += f"timestamp < timestamp_millis({end_ms})"
    times = {"startingTimestamp": start_ms, "endingTimestamp": end_ms}
    return [
        (
            "full rows",
            0.85,
            {
                CORDWOOD: lambda: to_noop(table().to_df()),
                PARQUET: lambda: to_noop(parquet()),
                _READY: lambda: to_noop(ready_rows()),
                **kafka(to_noop),
            },
        ),
        (
            "offsets and timestamps",
            1.0,
            {
                CORDWOOD: lambda: to_noop(table(columns=_NARROW).to_df()),
                PARQUET: lambda: to_noop(parquet().select(*_NARROW)),
                _READY: lambda: to_noop(ready_narrow()),
                **kafka(lambda frame: to_noop(frame.select(*_NARROW))),
            },
        ),
        (
            "count()",
            1.0,
            {
                CORDWOOD: lambda: table().count(),
                PARQUET: lambda: parquet().count(),
                **kafka(lambda frame: frame.count()),
            },
        ),
        (
            f"a time window of {WINDOW_PART:.0%}",
            2.0,
            {
                CORDWOOD: lambda: to_noop(table(where=window, **times).to_df()),
                PARQUET: lambda: to_noop(parquet().where(window)),
                _NOTHING: lambda: to_noop(spark.range(0, 2, 1, 2)),
                **kafka(lambda frame: to_noop(frame.where(window)), **times),
            },
        ),
    ]


def _judged(title: str, seconds: dict[str, list[float]], ratio: float, log: SparkLog) -> list[Row]:
    found = []
    for judge, bound in ((PARQUET, ratio), (KAFKA, _OF_KAFKA)):
        if judge not in seconds:
            continue
        names = (CORDWOOD, judge, *((_READY, _NOTHING) if judge == PARQUET else ()))
        found.append(
            figure_row(
                title if judge == PARQUET else f"{title}, beside Kafka",
                "-",
                "s",
                {name: seconds[name] for name in names if name in seconds},
                judge=judge,
                ratio=bound,
                is_lower_better=True,
                note=f"{describe(log)}; {WARMED}",
            )
        )
    return found
