"""Records that do not fit a schema: what they cost the records around them.

An export decodes JSON with a schema. Records that do not fit go to a second table, with a reason.
"""

import json
import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.broker_stage import figure_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.process_tree import descendants_cpu_seconds
from bench.spark_log import LogShape, SparkLog, write_log
from bench.spark_stage import CORDWOOD, SparkStage
from bench.workload import TOPIC, fresh_path

if TYPE_CHECKING:
    from cordwood.spark.jobs.job_report import JobReport

_NONE: Final = "all records fit"
_OF_NONE: Final = 0.8
_BAD_EVERY: Final = 50
_POOL_RECORDS: Final = 50_000
_SCHEMA: Final = (
    "id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, "
    "place STRUCT<x: INT, y: INT>"
)


def reject_rows(context: Context, stage: SparkStage) -> list[Row]:
    """An export in which one record of 50 does not fit, beside one in which all fit."""
    logs = {
        CORDWOOD: _log(context, stage, "misfits", is_bad=True),
        _NONE: _log(context, stage, "fits", is_bad=False),
    }
    taken = measure_in_turns(
        {name: partial(_exported, context, stage, log) for name, log in logs.items()},
        runs=context.runs,
    )
    for log in logs.values():
        shutil.rmtree(log.path)
    rows = logs[CORDWOOD].shape.rows
    return [
        figure_row(
            "export of JSON, 2 % rejected, processor time",
            "disk",
            "µs/record",
            {name: [each / rows * 1e6 for each in every] for name, every in taken.items()},
            judge=_NONE,
            ratio=_OF_NONE,
            is_lower_better=True,
            note=f"{rows:,} records of about 150 B with a schema, to Parquet; bad kinds, bad times "
            "and bad JSON in turn; the rejected ones with reasons in a second table",
        )
    ]


def _log(context: Context, stage: SparkStage, name: str, *, is_bad: bool) -> SparkLog:
    stage.spark(context)
    rows = context.pick(2_000_000, 400_000)
    shape = LogShape(value_size=150, rows=rows, keys=rows // 10, name=name)
    return write_log(context.directory, shape, _values(is_bad=is_bad))


def _values(*, is_bad: bool) -> "pa.Array[Any]":
    values = [_value(number).encode() for number in range(_POOL_RECORDS)]
    if is_bad:
        spoil = (
            lambda text: text.replace(b'"id": ', b'"id": "a", "was": '),
            lambda text: text.replace(b"2026-", b"yesterday "),
            lambda text: text[:-5],
        )
        for turn, number in enumerate(range(0, _POOL_RECORDS, _BAD_EVERY)):
            values[number] = spoil[turn % len(spoil)](values[number])
    return pa.array(values, pa.binary())


def _value(number: int) -> str:
    return json.dumps(
        {
            "id": number,
            "name": f"name {number}",
            "amount": number * 1.25,
            "at": f"2026-01-31T12:{number % 60:02d}:00.123Z",
            "tags": ["new", "paid"],
            "place": {"x": number % 9, "y": 2},
        }
    )


def _exported(context: Context, stage: SparkStage, log: SparkLog) -> float:
    """Seconds of processor time, of the JVM and its Python workers."""
    from cordwood.spark.jobs.export import ExportOptions, run_export
    from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

    path = fresh_path(context.directory, "export")
    options = ExportOptions(
        paths=(str(log.path),),
        topics=(TOPIC,),
        target=LakeTarget(format=TableFormat.PARQUET, table=str(path)),
        value_schema=_SCHEMA,
    )
    spark = stage.spark(context)
    found: list[JobReport] = []
    cpu_s = descendants_cpu_seconds(os.getpid())
    seconds_of(lambda: found.append(run_export(spark, options)))
    cpu_s = descendants_cpu_seconds(os.getpid()) - cpu_s
    assert found[0].totals["records"] + found[0].totals["rejected"] == log.shape.rows, found
    for table in path.parent.glob(f"{path.name}*"):
        shutil.rmtree(table)
    return cpu_s
