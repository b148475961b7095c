"""Drivers that are killed, for real, in the middle of their work: run again, nothing is amiss.

Each is a process of its own with a session of its own. It is watched from outside, by the files
it makes, and killed with all of its group by SIGKILL.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.quantities import TimestampMs
from cordwood.spark.jobs.compact import CompactOptions, run_compact
from cordwood.spark.jobs.compaction.group_plan import CompactionScope
from cordwood.spark.jobs.export import ExportOptions, run_export
from cordwood.spark.jobs.ingest import IngestColumns, IngestOptions, run_ingest
from cordwood.spark.jobs.materialize import MaterializeOptions, run_materialize
from cordwood.spark.jobs.topic_target import TopicTarget
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from spark.compacted_topic import NOW, compact_locally, fill, records_of, staged
from spark.sink_stores import leftovers, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DEADLINE_S = 500
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A Python with its own group of processes, none of which is left in the end.

    Spark's Python workers have a group of their own, and end when the JVM is gone.
    """
    with TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield process
        except EndedEarlyError as error:
            said.seek(0)
            error.add_note(said.read()[-3000:].decode(errors="replace"))
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class EndedEarlyError(Exception):
    """It was done, or had failed, before it could be killed."""


def kill_job(*arguments: object, when: Callable[[], bool]) -> None:
    """Start a job as people do, and kill it as soon as that is so."""
    conf = [text for key, value in CONF.items() for text in ("--conf", f"{key}={value}")]
    master = ("--master", "local[2]")
    with started("-m", "cordwood", "spark", *arguments, *master, *conf) as process:
        wait(process, when)


def wait(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        if process.poll() is not None:
            raise EndedEarlyError(f"exit code {process.returncode}")
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.01)


def until_quiet(read: Callable[[], Any]) -> Any:
    """What it reads, once that stays the same: workers of a killed JVM end a little later."""
    deadline_s = time.monotonic() + DEADLINE_S
    before, now = None, read()
    while before != now:
        assert time.monotonic() < deadline_s
        time.sleep(0.5)
        before, now = now, read()
    return now


# --- a stream from topic to topic ----------------------------------------------------------------

COPY = """
import json, sys
import cordwood.spark

path, checkpoint, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spark = cordwood.spark.session("to be killed", master="local[2]", config=conf)
reader = spark.readStream.format("cordwood").option("subscribe", "orders")
reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
writer = reader.load(path).select("key", "value").writeStream.format("cordwood")
writer = writer.option("topic", "copy").option("checkpointLocation", checkpoint)
writer.start(path).awaitTermination()
"""


def test_a_stream_between_topics_that_is_killed_in_mid_batch_copies_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    with cordwood.open(path, config={"durability": "os"}) as store:
        store.create_topic("copy", partitions=3)
        topic = store.create_topic("orders", partitions=2)
        topic.append_many([(b"k%d" % n, b"%d" % n) for n in range(400)], partition=0)

    for batch in (1, 3):
        with started("-c", COPY, path, checkpoint, json.dumps(CONF)) as process:
            # Its offsets are written down, and it is not: it is under way.
            wait(process, (checkpoint / "offsets" / str(batch)).exists)
    until_quiet(lambda: leftovers(path))
    with cordwood.open(path) as store:
        store.topic("orders").append_many([(b"k", b"%d" % n) for n in range(400, 450)], partition=1)
    reader = spark.readStream.format("cordwood").option("subscribe", "orders")
    writer = reader.load(str(path)).select("key", "value").writeStream.format("cordwood")
    query = (
        writer.options(topic="copy", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start(str(path))
    )
    assert query.awaitTermination(DEADLINE_S)

    assert values(path, "copy") == sorted(b"%d" % n for n in range(450))


# --- jobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(TableFormat))
def test_an_export_that_is_killed_has_each_offset_once_in_the_end(
    spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    data = orders(tmp_path, 600)
    warehouse = str(tmp_path / "warehouse") if kind is TableFormat.ICEBERG else None
    table = "lake.orders" if warehouse else str(tmp_path / "table")
    to = LakeTarget(format=kind, table=table, warehouse=warehouse)
    place = ("--warehouse", warehouse) if warehouse else ()
    shape = ("--format", kind, "--table", table, *place, "--commit-records", 100)

    kill_job(
        "export", "orders", "--at", data, *shape, when=lambda: exported(to) >= 200
    )  # between two commits, or in one
    held = until_quiet(lambda: exported(to))
    options = ExportOptions(paths=(str(data),), topics=("orders",), target=to)
    report = run_export(spark, options)

    assert report.totals["records"] == 600 - held
    table_of = to.open()
    table_of.load()
    rows = read_files(spark, table_of.files()).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(p, n) for p in range(2) for n in range(300)]


def exported(to: LakeTarget) -> int:
    """How many records the table says that it has."""
    state = to.open().load()
    return 0 if state is None else sum(state.offsets.values())


def orders(tmp_path: Path, count: int) -> Path:
    data = tmp_path / "data"
    with cordwood.open(data, config={"durability": "os"}) as store:
        topic = store.create_topic("orders", partitions=2)
        for partition in range(2):
            pairs = [(b"key-%d" % (n % 20), b"%d" % n) for n in range(count // 2)]
            topic.partition(partition).append_many(pairs)
    return data


def test_a_compaction_that_is_killed_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, same = tmp_path / "data", tmp_path / "same"
    fill(data, seed=21, batches=300, segment_bytes=3000)
    shutil.copytree(data, same)
    compact_locally(same, now_ms=NOW)

    kill_job("compact", "users", "--force", "--at", data, when=lambda: bool(staged(data)))
    until_quiet(lambda: staged(data))
    options = CompactOptions(
        paths=(str(data),),
        topics=("users",),
        scope=CompactionScope.ALL,
        now_ms=TimestampMs(NOW),
    )
    report = run_compact(spark, options)

    assert report.problems == ()
    assert records_of(data) == records_of(same)


def test_a_materialization_that_is_killed_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, table = orders(tmp_path, 200), tmp_path / "table"
    to = LakeTarget(format=TableFormat.PARQUET, table=str(table))

    kill_job(
        "materialize", "orders", "--at", data, "--table", table,
        when=lambda: any(table.glob("_staging/*/files/*.parquet")),
    )  # fmt: skip
    until_quiet(lambda: sorted(table.glob("**/*")))
    run_materialize(spark, MaterializeOptions(paths=(str(data),), topic="orders", target=to))

    rows = spark.read.parquet(f"{table}/current").select("partition", "key", "value").collect()
    assert sorted((row[0], bytes(row[1]), bytes(row[2])) for row in rows) == sorted(
        (p, b"key-%d" % (n % 20), b"%d" % n) for p in range(2) for n in range(80, 100)
    )


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_follower_of_a_changelog_that_is_killed_again_and_again_comes_to_its_state(
    spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    data = orders(tmp_path, 40)
    is_iceberg = kind is TableFormat.ICEBERG
    to = LakeTarget(
        format=kind,
        table="lake.orders" if is_iceberg else str(tmp_path / "table"),
        warehouse=str(tmp_path / "warehouse") if is_iceberg else None,
    )
    where = ("--warehouse", to.warehouse) if is_iceberg else ()

    def progress(number: int) -> int:
        """Files are written, and perhaps not committed; the second time they are."""
        return _held(to) if number == 1 else len(list(tmp_path.glob("**/bucket-*.parquet")))

    def is_further(number: int, before: int) -> bool:
        return progress(number) > before

    for number in range(3):
        kill_job(
            "materialize", "orders", "--at", data, "--table", to.table, "--format", kind.value,
            *where, "--buckets", 2, "--follow", "--every", "100ms", "--upkeep",
            when=partial(is_further, number, progress(number)),
        )  # fmt: skip
        with cordwood.open(data) as store:
            topic = store.topic("orders")
            for n in range(20):
                key = b"key-%d" % n
                topic.append(None if n % 3 == number else b"of kill %d" % number, key=key)

    run_materialize(spark, MaterializeOptions(paths=(str(data),), topic="orders", target=to))

    state: dict[tuple[int, bytes], bytes] = {}
    with cordwood.open(data, read_only=True) as final:
        for log in final.topic("orders").partitions:
            for record in log.read():
                place = (log.partition, record.key or b"")
                state.pop(place, None)
                if record.value is not None:
                    state[place] = record.value
    table = to.open(replaces=True)
    table.load()
    rows = read_files(spark, table.files()).select("partition", "key", "value").collect()
    assert len(rows) == len(state)
    assert {(row[0], bytes(row[1])): bytes(row[2]) for row in rows} == state


def _held(to: LakeTarget) -> int:
    """How many offsets the table has taken in."""
    state = to.open(replaces=True).load()
    return 0 if state is None else sum(state.offsets.values())


def test_an_ingestion_that_is_killed_is_written_once_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, source = tmp_path / "data", tmp_path / "source"
    source.mkdir()
    for part in range(4):
        lines = [json.dumps({"id": n}) for n in range(part * 500, part * 500 + 500)]
        (source / f"{part}.json").write_text("\n".join(lines))
    with cordwood.open(data) as store:
        store.create_topic("events", partitions=2)

    kill_job(
        "ingest", "events", source, "--from", "json", "--value", "id", "--at", data,
        when=lambda: bool(leftovers(data)),
    )  # fmt: skip
    until_quiet(lambda: leftovers(data))
    target = TopicTarget(paths=(str(data),), topic="events")
    run_ingest(
        spark,
        IngestOptions(
            source="json", path=str(source), target=target, columns=IngestColumns(value="id")
        ),
    )

    assert values(data, "events") == sorted(b"%d" % n for n in range(2000))
