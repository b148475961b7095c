"""A job that follows a topic into a table, killed with SIGKILL at random moments.

The driver is a process of its own; it stages in the same process, so it needs no JVM, and the
commits are those of `cordwood spark export --follow --upkeep`. Records keep coming. In the end each
offset is once in the table or among the rejected rows, with the value that the log has. After each
kill, a tool that lists the files of a Parquet table finds no row twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import cordwood
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

TOPIC = "orders"
STARTS_S = 120.0
_FOLLOW = """
import json, sys
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
from cordwood.spark.tables.lake_table import UpkeepPolicy
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

given = json.loads(sys.argv[1])
target = LakeTarget(
    format=TableFormat(given["format"]), table=given["table"], warehouse=given["warehouse"]
)
choice = RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"), grows=True)
print("ready", flush=True)
run_export(None, ExportOptions(
    paths=(given["data"],), topics=("orders",), target=target, rows=choice,
    commit_records=25, follow_s=0.1, upkeep=UpkeepPolicy(), upkeep_commits=3,
))
"""


def kill_followers(
    directory: Path, kind: TableFormat, kills: int, seed: int, show: Callable[[str], None]
) -> int:
    """Kill that many; return how many promises were broken."""
    chosen = random.Random(seed)
    data = directory / "data"
    is_iceberg = kind is TableFormat.ICEBERG
    to = LakeTarget(
        format=kind,
        table="lake.orders" if is_iceberg else str(directory / "table"),
        warehouse=str(directory / "warehouse") if is_iceberg else None,
    )
    given = {
        "format": kind.value, "table": to.table, "warehouse": to.warehouse, "data": str(data),
    }  # fmt: skip
    with cordwood.open(data, config={"durability": "os"}) as store:
        store.create_topic(TOPIC, partitions=2)
    written = broken = 0
    for number in range(kills):
        written = _append(data, written, chosen.randrange(20, 120), chosen)
        _kill_one(given, chosen.random() * 1.2)
        if kind is TableFormat.PARQUET:
            broken += _listed_twice(Path(to.table), show)
        show(f"table kills, {kind}: {number + 1} of {kills}")
    choice = RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"), grows=True)
    run_export(None, ExportOptions(paths=(str(data),), topics=(TOPIC,), target=to, rows=choice))
    return broken + _broken(data, to, show)


def _listed_twice(table: Path, show: Callable[[str], None]) -> int:
    """How many rows a tool that lists the directory would find more than once."""
    seen: dict[tuple[int, int], int] = {}
    for path in table.glob("run=*/**/*.parquet"):
        for row in pq.ParquetFile(path).read(["partition", "offset"]).to_pylist():
            place = (row["partition"], row["offset"])
            seen[place] = seen.get(place, 0) + 1
    twice = sum(count > 1 for count in seen.values())
    if twice:
        show(f"FAILED parquet: {twice} rows twice in the listed files")
    return twice


def _append(data: Path, start: int, count: int, chosen: random.Random) -> int:
    """Good values, values with a new field now and then, and bad ones."""
    with cordwood.open(data) as store:
        topic = store.topic(TOPIC)
        for number in range(start, start + count):
            value = json.dumps({"id": number, "name": "n"})
            luck = chosen.random()
            if luck < 0.1:
                value = f"bad {number}"
            elif luck < 0.12:
                value = json.dumps({"id": number, f"f{chosen.randrange(20)}": number})
            topic.append(value.encode(), partition=number % 2)
    return start + count


def _kill_one(given: dict[str, Any], delay_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _FOLLOW, json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # its imports take longer than its work
        assert line == b"ready\n", "the job did not start"
        deadline_s = time.monotonic() + delay_s
        while time.monotonic() < deadline_s and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, "the job ended by itself"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _broken(data: Path, to: LakeTarget, show: Callable[[str], None]) -> int:
    expected: dict[tuple[int, int], bytes] = {}
    with cordwood.open(data, read_only=True) as store:
        for log in store.topic(TOPIC).partitions:
            expected |= {(log.partition, r.offset): r.value or b"" for r in log.read()}
    seen: dict[tuple[int, int], int] = {}
    wrong = 0
    for each, is_rejected in ((to, False), (to.beside("_rejected"), True)):
        for row in _rows(each):
            place = (row["partition"], row["offset"])
            seen[place] = seen.get(place, 0) + 1
            value = expected.get(place, b"")
            is_bad = value.startswith(b"bad")
            if is_rejected:
                is_right = is_bad and row["value"] == value
            else:
                is_right = not is_bad and _same(row["value"], json.loads(value or b"{}"))
            if not is_right:
                wrong += 1
                show(f"FAILED {to.format} {place}: {value!r} became {row['value']!r}")
    lost = len(expected.keys() - seen.keys())
    twice = sum(count > 1 for count in seen.values())
    if lost or twice:
        show(f"FAILED {to.format}: {lost} lost, {twice} twice, of {len(expected)}")
    return wrong + lost + twice


def _same(row: dict[str, Any], value: dict[str, Any]) -> bool:
    return {name: found for name, found in row.items() if found is not None} == value


def _rows(to: LakeTarget) -> list[dict[str, Any]]:
    table = to.open()
    found: list[dict[str, Any]] = []
    if table.load() is not None:
        for path in table.files():
            found += pq.ParquetFile(path.removeprefix("file://")).read().to_pylist()
    return found
