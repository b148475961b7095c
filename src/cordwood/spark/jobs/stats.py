"""`stats`: figures of topics, by partition and hour.

records      how many
bytes        of keys and values
keys         approximate number of distinct keys
duplicates   the share of records whose key an earlier record of that hour has
late         records that are older than one before them in their partition, and by how much

Hours follow the timestamps of the records. A key is counted once per hour; in the totals it is
counted once.
"""

from typing import TYPE_CHECKING, Final

from cordwood.log.rules.isolation import READ_UNCOMMITTED
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.lateness_scan import LatenessScan
from cordwood.spark.jobs.topic_span import plan_span
from cordwood.spark.source.source_options import TASK_BYTES
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NAMES: Final = ("records", "bytes", "keys", "duplicates", "late", "late_ms_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsOptions:
    """What to count."""

    paths: tuple[str, ...]
    topics: tuple[str, ...]
    is_dry_run: bool = False
    task_bytes: int = TASK_BYTES


def transform(df: "DataFrame") -> "DataFrame":
    """A row for each topic, partition and hour, from rows of `format("cordwood")`."""
    return by_hour(measure(df))


def by_hour(measured: "DataFrame") -> "DataFrame":
    """The figures of each partition and hour."""
    from pyspark.sql import functions as fn

    hour = fn.date_trunc("hour", "timestamp").alias("hour")
    return (
        measured.groupBy("topic", "partition", hour)
        .agg(*_figures())
        .select("topic", "partition", "hour", *_NAMES)
        .orderBy("topic", "partition", "hour")
    )


def measure(df: "DataFrame") -> "DataFrame":
    """The size of each row, and by how many milliseconds it is late.

    Spark sorts each partition for that, in one task. The job itself does not: see `LatenessScan`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    before = (
        Window.partitionBy("topic", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    sized = df.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        (_length("key") + _length("value")).alias("size"),
    )
    newest = fn.max("timestamp").over(before)
    late_ms = fn.unix_millis(newest) - fn.unix_millis("timestamp")
    return sized.withColumn("late_ms", fn.greatest(fn.coalesce(late_ms, fn.lit(0)), fn.lit(0)))


def _length(name: str) -> "Column":
    from pyspark.sql import functions as fn

    return fn.coalesce(fn.octet_length(name), fn.lit(0)).cast("long")


def _figures() -> "list[Column]":
    from pyspark.sql import functions as fn

    keyed = fn.count("key")
    keys = fn.approx_count_distinct("key", 0.02)
    return [
        fn.count(fn.lit(1)).alias("records"),
        fn.sum("size").alias("bytes"),
        fn.least(keys, keyed).alias("keys"),
        fn.round(
            fn.coalesce(
                fn.greatest(1 - keys / fn.nullif(keyed, fn.lit(0)), fn.lit(0.0)), fn.lit(0.0)
            ),
            4,
        ).alias("duplicates"),
        fn.count_if(fn.col("late_ms") > 0).alias("late"),
        fn.max("late_ms").alias("late_ms_max"),
    ]


def run_stats(
    spark: "SparkSession | None", options: StatsOptions, report: Report = report_nothing
) -> JobReport:
    """Count, or report how much there is to count."""
    span = plan_span(options.paths, options.topics, isolation=READ_UNCOMMITTED)
    if options.is_dry_run:
        return JobReport(
            job="stats", rows=span.rows(), totals={"offsets": span.count}, is_dry_run=True
        )
    assert spark is not None, "a session is needed for all but a dry run"
    if not span.count:
        return JobReport(job="stats", totals=dict.fromkeys(_NAMES, 0))
    progress = JobProgress(spark, report)
    scan = LatenessScan.of(span, task_bytes=options.task_bytes)
    with progress.step("reading timestamps"):
        scan = scan.with_newest_before(spark)
    with progress.step("counting"):
        found = [row.asDict() for row in with_total(scan.measured(spark)).collect()]
    whole = next(row for row in found if row["is_total"])
    rows = [row for row in found if not row["is_total"]]
    return JobReport(
        job="stats",
        rows=tuple(
            {name: row[name] for name in ("topic", "partition", "hour", *_NAMES)} for row in rows
        ),
        totals={name: whole[name] for name in _NAMES},
    )


def with_total(measured: "DataFrame") -> "DataFrame":
    """The figures of each partition and hour, and one row of all; in one pass."""
    from pyspark.sql import functions as fn

    hours = measured.withColumn("hour", fn.date_trunc("hour", "timestamp"))
    columns = [fn.col(name) for name in ("topic", "partition", "hour")]
    return (
        hours.groupingSets([columns, []], *columns)
        .agg(*_figures(), (fn.grouping_id() > 0).alias("is_total"))
        .orderBy("topic", "partition", "hour")
    )
