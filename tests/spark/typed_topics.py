"""Topics of typed values, and the rows of tables as different readers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import cordwood
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

TOPIC = "orders"
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def target(home: Path, kind: TableFormat) -> LakeTarget:
    if kind is TableFormat.ICEBERG:
        return LakeTarget(format=kind, table="lake.orders", warehouse=str(home / "warehouse"))
    return LakeTarget(format=kind, table=str(home / f"{kind}-table"))


def append(data: Path, values: list[bytes | None], *, partitions: int = 2, **rest: Any) -> None:
    with cordwood.open(data, config={"durability": "os"}) as store:
        if TOPIC not in store.topics():
            store.create_topic(TOPIC, partitions=partitions)
        topic = store.topic(TOPIC)
        for number, value in enumerate(values):
            topic.append(
                value,
                key=b"key-%d" % number,
                partition=number % partitions,
                timestamp_ms=START_MS + number * HOUR_MS,
                **rest,
            )


def export(data: Path, to: LakeTarget, **rest: Any) -> JobReport:
    """An export without Spark: the same tasks, in this process."""
    return run_export(None, ExportOptions(paths=(str(data),), topics=(TOPIC,), target=to, **rest))


def rows_of(to: LakeTarget) -> list[dict[str, Any]]:
    """The rows of a table's files, in the order of the log."""
    table = to.open()
    found: list[dict[str, Any]] = []
    if table.load() is not None:
        for path in table.files():
            found += pq.ParquetFile(path.removeprefix("file://")).read().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def places_of(to: LakeTarget) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows_of(to)]


def rejected(to: LakeTarget) -> LakeTarget:
    return to.beside("_rejected")


def log_places(data: Path) -> list[tuple[int, int]]:
    with cordwood.open(data, read_only=True) as store:
        return [
            (log.partition, record.offset)
            for log in store.topic(TOPIC).partitions
            for record in log.read()
        ]
