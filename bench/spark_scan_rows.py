"""Reading whole rows: a full log, and a time window."""

from functools import partial
from typing import Final

from bench.broker_stage import figure_row
from bench.measure import Context, Row
from bench.spark_log import LogShape, SparkLog
from bench.spark_stage import (
    CORDWOOD,
    KAFKA,
    PARQUET,
    WARMED,
    Frames,
    SparkStage,
    cordwood_reader,
    cpu_row,
    kafka_reader,
    measure_warm,
    parquet_frame,
    seconds_by_name,
    subjects,
    to_noop,
)
from cordwood.quantities import KIB

_OF_PARQUET: Final = 0.85
_OF_KAFKA: Final = 3.5
_OF_FULL_SCAN: Final = 15.0
WINDOW_PART: Final = 0.01


def shape_of(context: Context, value_size: int) -> LogShape:
    """The log for rows of this value size."""
    if value_size == KIB:
        rows = context.pick(1_500_000, 200_000)
        return LogShape(value_size=value_size, rows=rows, keys=rows // 10)
    rows = context.pick(4_000_000, 600_000)
    indexed = {"key.index": "true"}
    return LogShape(value_size=value_size, rows=rows, keys=rows // 10, config=indexed)


def scan_rows(context: Context, stage: SparkStage, value_size: int) -> list[Row]:
    """The same samples twice: compared with Parquet, and with Spark's own Kafka source."""
    spark, log = stage.spark(context), stage.log(context, shape_of(context, value_size))
    table = stage.table(context, log)
    with stage.kafka(context, log) as servers:
        frames: Frames = {
            CORDWOOD: cordwood_reader(spark, path=log.path).load,
            PARQUET: partial(parquet_frame, spark, table),
            KAFKA: None if servers is None else kafka_reader(spark, servers).load,
        }
        taken = measure_warm(subjects(frames, to_noop), runs=context.runs)
    rates = {
        name: [log.shape.rows / seconds / 1e3 for seconds in each]
        for name, each in seconds_by_name(taken).items()
    }
    title = f"full-row scan, {_size(value_size)} values"
    note = stage.note(f"{describe(log)}, to noop, {WARMED}; Parquet uncompressed")
    beside_parquet = {name: values for name, values in rates.items() if name != KAFKA}
    beside_kafka = {name: values for name, values in rates.items() if name != PARQUET}
    rows = [
        figure_row(
            title, "-", "k rows/s", beside_parquet, judge=PARQUET, ratio=_OF_PARQUET, note=note
        )
    ]
    if servers is not None:
        rows.append(
            figure_row(
                f"{title}, beside Kafka",
                "-",
                "k rows/s",
                beside_kafka,
                judge=KAFKA,
                ratio=_OF_KAFKA,
                note="the same rows from a real Kafka on the same cores",
            )
        )
    return [*rows, cpu_row(title, taken, log.shape.rows)]


def window_rows(context: Context, stage: SparkStage) -> list[Row]:
    """A time window of a log; judged only if a full scan takes seconds."""
    rows = context.pick(30_000_000, 2_000_000)
    shape = LogShape(value_size=100, rows=rows, keys=rows // 10, name="window")
    spark, log = stage.spark(context), stage.log(context, shape)
    start_ms, end_ms = log.window_ms(WINDOW_PART)
    window = cordwood_reader(
        spark, path=log.path, startingTimestamp=start_ms, endingTimestamp=end_ms
    )
    whole = cordwood_reader(spark, path=log.path)
    full_scan = "full scan"
    taken = measure_warm(
        subjects({CORDWOOD: window.load, full_scan: whole.load}, to_noop), runs=context.runs
    )
    stage.drop(log)
    return [
        figure_row(
            f"a time window of {WINDOW_PART:.0%}, beside the full scan",
            "-",
            "s",
            seconds_by_name(taken),
            judge=full_scan,
            ratio=None if context.is_quick else _OF_FULL_SCAN,
            is_lower_better=True,
            note=f"{describe(log)}, to noop; startingTimestamp and endingTimestamp"
            + (", not judged: the log is small" if context.is_quick else ""),
        )
    ]


def describe(log: SparkLog) -> str:
    shape = log.shape
    return f"{shape.rows:,} rows, {log.size_bytes / 1e6:,.0f} MB, {shape.keys:,} keys, 2 partitions"


def _size(value_size: int) -> str:
    return f"{value_size // KIB} KiB" if value_size >= KIB else f"{value_size} B"
