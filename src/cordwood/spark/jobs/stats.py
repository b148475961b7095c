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

from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.shuffle_width import narrowed
from cordwood.spark.jobs.topic_span import plan_span
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_NAMES: Final = ("records", "bytes", "keys", "duplicates", "late", "late_ms_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsOptions:
    """What to count."""

    paths: tuple[str, ...]
    topics: tuple[str, ...]
    is_dry_run: bool = False


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


def measure(df: "DataFrame", rows_max: int | None = None) -> "DataFrame":
    """The size of each row, and by how many milliseconds it is late.

    `rows_max`: `df` has no more rows than that.
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
    if rows_max is not None:
        sized = narrowed(sized, rows_max, "topic", "partition")
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
    span = plan_span(options.paths, options.topics)
    if options.is_dry_run:
        return JobReport(
            job="stats", rows=span.rows(), totals={"offsets": span.count}, is_dry_run=True
        )
    assert spark is not None, "a session is needed for all but a dry run"
    if not span.count:
        return JobReport(job="stats", totals=dict.fromkeys(_NAMES, 0))
    from pyspark import StorageLevel

    # Only the sizes of values are kept.
    measured = measure(span.load(spark, _COLUMNS), span.count)
    measured = measured.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with JobProgress(spark, report).step("counting"):
            rows = [row.asDict() for row in by_hour(measured).collect()]
            whole = measured.agg(*_figures()).select(*_NAMES).collect()[0].asDict()
    finally:
        measured.unpersist()
    return JobReport(job="stats", rows=tuple(rows), totals=whole)
