"""Spark over the log, compared with Parquet, Spark's own Kafka source and its rate source.

One session with two cores, as `cordwood.spark.session()` creates it, and one JVM for all rows. A
figure covers a whole query, including planning. Kafka runs only while rows need it.
"""

from functools import partial

from bench.measure import RowMaker
from bench.spark_job_rows import compact_rows, export_rows
from bench.spark_query_rows import query_rows
from bench.spark_real_time_rows import real_time_rows
from bench.spark_reject_rows import reject_rows
from bench.spark_scan_rows import scan_rows, window_rows
from bench.spark_sink_rows import sink_rows
from bench.spark_stage import SparkStage
from bench.spark_table_rows import table_rows
from bench.spark_trigger_rows import trigger_rows
from cordwood.quantities import KIB


def row_makers() -> dict[str, RowMaker]:
    """Each makes the rows of one kind of query. Session and logs stay between them."""
    stage = SparkStage()
    return {
        "scan 1 KiB": partial(scan_rows, stage=stage, value_size=KIB),
        "scan 100 B": partial(scan_rows, stage=stage, value_size=100),
        "table 1 KiB": partial(table_rows, stage=stage, value_size=KIB),
        "table 100 B": partial(table_rows, stage=stage, value_size=100),
        "queries 100 B": partial(query_rows, stage=stage),
        "time window": partial(window_rows, stage=stage),
        "sink 1 KiB": partial(sink_rows, stage=stage, value_size=KIB),
        "sink 100 B": partial(sink_rows, stage=stage, value_size=100),
        "trigger": partial(trigger_rows, stage=stage),
        "real time": partial(real_time_rows, stage=stage),
        "compact": partial(compact_rows, stage=stage),
        "export": partial(export_rows, stage=stage),
        "rejects": partial(reject_rows, stage=stage),
    }
