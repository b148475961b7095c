"""Jobs: compaction compared with the store's own cleaner, export compared with a Parquet copy."""

import os
import shutil
from pathlib import Path
from typing import Final

from bench.broker_stage import figure_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.spark_log import LogShape, SparkLog
from bench.spark_scan_rows import describe, shape_of
from bench.spark_stage import CORDWOOD, SparkStage, parquet_frame
from bench.workload import TOPIC, fresh_path
from cordwood.log.compaction.compaction_run import CompactionOutcome
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB

_CLEANER: Final = "the store's cleaner, 1 thread"
_OF_CLEANER: Final = 0.5
_COPY: Final = "Parquet to Parquet by Spark"
_OF_COPY: Final = 0.8
_JOB_COMPRESSION: Final = "zstd"  # the files that the export writes
_JOB_LEVEL: Final = "1"  # Arrow's default


def compact_rows(context: Context, stage: SparkStage) -> list[Row]:
    rows = context.pick(700_000, 150_000)
    shape = LogShape(
        value_size=KIB,
        rows=rows,
        keys=rows // 10,
        config={"cleanup.policy": "compact"},
        name="compact",
    )
    log = stage.log(context, shape)
    seconds = measure_in_turns(
        {
            CORDWOOD: lambda: _compacted_by_spark(context, stage, log),
            _CLEANER: lambda: _compacted_by_store(context, log),
        },
        runs=context.runs,
    )
    stage.drop(log)
    return [
        figure_row(
            "compact job, 1 KiB values",
            "disk",
            "MB/s",
            {name: [log.size_bytes / s / 1e6 for s in each] for name, each in seconds.items()},
            judge=_CLEANER,
            ratio=_OF_CLEANER,
            note=f"{describe(log)}, nine records of ten superseded; rate of input",
        )
    ]


def export_rows(context: Context, stage: SparkStage) -> list[Row]:
    log = stage.log(context, shape_of(context, KIB))
    table = stage.table(context, log)
    seconds = measure_in_turns(
        {
            CORDWOOD: lambda: _exported(context, stage, log),
            _COPY: lambda: _copied_table(context, stage, table),
        },
        runs=context.runs,
    )
    return [
        figure_row(
            "export job to Parquet, 1 KiB values",
            "disk",
            "k rows/s",
            {name: [log.shape.rows / s / 1e3 for s in each] for name, each in seconds.items()},
            judge=_COPY,
            ratio=_OF_COPY,
            note=f"{describe(log)}; {_JOB_COMPRESSION}, level {_JOB_LEVEL}; offsets committed with "
            "the rows",
        )
    ]


def _compacted_by_spark(context: Context, stage: SparkStage, log: SparkLog) -> float:
    from cordwood.spark.jobs.compact import CompactOptions, run_compact
    from cordwood.spark.jobs.compaction.group_plan import CompactionScope

    path = copied_log(context, log)
    spark = stage.spark(context)
    options = CompactOptions(paths=(str(path),), topics=(TOPIC,), scope=CompactionScope.ALL)
    seconds = seconds_of(lambda: run_compact(spark, options))
    shutil.rmtree(path)
    return seconds


def _compacted_by_store(context: Context, log: SparkLog) -> float:
    path = copied_log(context, log)
    with Store([str(path)], StoreSetup(has_housekeeping=False)) as store:
        seconds = seconds_of(lambda: _compact(store))
    shutil.rmtree(path)
    return seconds


def _compact(store: Store) -> None:
    for result in store.compact(TOPIC, force=True):
        assert result.outcome is CompactionOutcome.DONE, result


def copied_log(context: Context, log: SparkLog) -> Path:
    """A copy to compact. Sealed segments are hard links, because they are never written."""

    def copy(source: str, target: str) -> None:
        if source.endswith(".log") and os.path.getsize(source):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    path = fresh_path(context.directory, "copy")
    shutil.copytree(log.path, path, copy_function=copy)
    return path


def _exported(context: Context, stage: SparkStage, log: SparkLog) -> float:
    from cordwood.spark.jobs.export import ExportOptions, run_export
    from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

    path = fresh_path(context.directory, "export")
    target = LakeTarget(format=TableFormat.PARQUET, table=str(path))
    options = ExportOptions(paths=(str(log.path),), topics=(TOPIC,), target=target)
    spark = stage.spark(context)
    seconds = seconds_of(lambda: run_export(spark, options))
    shutil.rmtree(path)
    return seconds


def _copied_table(context: Context, stage: SparkStage, table: Path) -> float:
    path = fresh_path(context.directory, "export")
    rows = parquet_frame(stage.spark(context), table)
    writer = rows.write.option("compression", _JOB_COMPRESSION)
    writer = writer.option("parquet.compression.codec.zstd.level", _JOB_LEVEL)
    seconds = seconds_of(lambda: writer.parquet(str(path)))
    shutil.rmtree(path)
    return seconds
