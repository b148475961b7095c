"""Tables in Iceberg's own REST catalog: fed by `export --follow`, read by others."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cordwood
from cordwood.errors import CordwoodError
from cordwood.spark.jobs.export import ExportOptions, run_export, table_and_tail
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
from cordwood.spark.tables.lake_table import UpkeepPolicy
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat
from interop.iceberg_server import IcebergServer
from interop.kafka_peer import KafkaTools, KafkaUnavailableError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

TOPIC = "orders"
TIMEOUT_S = 60.0
pytestmark = [pytest.mark.xdist_group("spark-kafka"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergServer]:
    pytest.importorskip("pyspark")
    try:
        found = IcebergServer(kafka, tmp_path_factory.mktemp("iceberg"))
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    with found:
        yield found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        store.create_topic(TOPIC, partitions=2)
    return path


def append(data: Path, numbers: range) -> None:
    """Values that fit; each tenth does not."""
    with cordwood.open(data) as store:
        topic = store.topic(TOPIC)
        for n in numbers:
            value = b"bad" if n % 10 == 9 else json.dumps({"id": n, "name": f"n{n}"}).encode()
            topic.append(value, key=b"key %d" % n, partition=n % 2)


def target(server: IcebergServer, table: str) -> LakeTarget:
    return LakeTarget(format=TableFormat.ICEBERG, table=table, properties={"uri": server.uri})


def options(data: Path, to: LakeTarget, **rest: Any) -> ExportOptions:
    rows = RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"))
    return ExportOptions(paths=(str(data),), topics=(TOPIC,), target=to, rows=rows, **rest)


def open_catalog(server: IcebergServer) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog("judge", type="rest", uri=server.uri)


def expected(data: Path) -> list[tuple[int, int, int]]:
    """Partition, offset and id of every value that fits."""
    with cordwood.open(data, read_only=True) as store:
        return sorted(
            (log.partition, record.offset, json.loads(record.value)["id"])
            for log in store.topic(TOPIC).partitions
            for record in log.read()
            if record.value is not None and record.value != b"bad"
        )


def rows_of(server: IcebergServer, table: str) -> list[tuple[int, int, int]]:
    found = open_catalog(server).load_table(table).scan().to_arrow().to_pylist()
    return sorted((row["partition"], row["offset"], row["value"]["id"]) for row in found)


class Follower:
    """A job that follows a topic, in a thread of its own."""

    def __init__(self, given: ExportOptions) -> None:
        self._stop = threading.Event()
        self.failure: Exception | None = None
        self.report: JobReport | None = None

        def run() -> None:
            try:
                self.report = run_export(None, given, stop=self._stop)
            except Exception as error:  # the test looks at it
                self.failure = error

        self._thread = threading.Thread(target=run, name="follower")
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the job does not stop"


@contextmanager
def following(given: ExportOptions) -> Iterator[Follower]:
    follower = Follower(given)
    try:
        yield follower
    finally:
        follower.stop()


def wait_for_rows(
    server: IcebergServer, table: str, wanted: list[tuple[int, int, int]], follower: Follower
) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not _has(server, table, wanted):
        assert follower.failure is None, follower.failure
        assert time.monotonic() < deadline_s, "timeout"
        time.sleep(0.05)


def test_a_followed_topic_is_read_by_pyiceberg_duckdb_and_spark(
    server: IcebergServer, data: Path, kafka_spark: SparkSession
) -> None:
    duckdb = pytest.importorskip("duckdb")
    to = target(server, "shop.orders")  # a namespace that nobody has made

    append(data, range(40))
    with following(options(data, to, follow_s=0.1, commit_records=15)) as follower:
        for numbers in (range(40, 60), range(60, 90)):
            append(data, numbers)
            wait_for_rows(server, "shop.orders", expected(data), follower)
    wanted = expected(data)

    table = open_catalog(server).load_table("shop.orders")
    assert table.location().startswith(str(server.warehouse)), "the server decides the place"
    connection = duckdb.connect()
    table.scan().to_duckdb("orders", connection=connection)
    by_duckdb = connection.sql('SELECT partition, "offset", value.id FROM orders').fetchall()
    append(data, range(90, 100))  # not in the table yet
    whole = table_and_tail(kafka_spark, to, [str(data)])
    by_spark = whole.select("partition", "offset", "value.id").collect()
    rejected = open_catalog(server).load_table("shop.orders_rejected").scan().to_arrow()
    assert sorted(by_duckdb) == wanted
    assert sorted(tuple(row) for row in by_spark) == expected(data)
    assert rejected.num_rows == 9


def _has(server: IcebergServer, table: str, wanted: list[tuple[int, int, int]]) -> bool:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return rows_of(server, table) == wanted
    except NoSuchTableError:
        return False


def test_upkeep_merges_files_and_expires_snapshots_on_the_server(
    server: IcebergServer, data: Path
) -> None:
    to = target(server, "shop.merged")
    for start in range(0, 50, 10):
        append(data, range(start, start + 10))
        run_export(None, options(data, to))
    policy = UpkeepPolicy(expire_ms=0, leftover_ms=0)

    report = run_export(None, options(data, to, upkeep=policy))

    table = open_catalog(server).load_table("shop.merged")
    assert report.totals["merged_files"] >= 5
    assert len(list(table.scan().plan_files())) < 5
    assert len(table.metadata.snapshots) == 1
    assert rows_of(server, "shop.merged") == expected(data)


def test_a_dry_run_makes_nothing_on_the_server(server: IcebergServer, data: Path) -> None:
    append(data, range(5))

    report = run_export(None, options(data, target(server, "fresh.orders"), is_dry_run=True))

    assert report.totals["table"] == "new"
    assert ("fresh",) not in open_catalog(server).list_namespaces()


def test_each_offset_is_there_once_though_the_server_is_killed_again_and_again(
    kafka: KafkaTools, server: IcebergServer, data: Path, tmp_path: Path
) -> None:
    chosen = random.Random(11)
    with IcebergServer(kafka, tmp_path / "killed") as fragile:
        to = target(fragile, "shop.orders")
        for number in range(8):
            append(data, range(number * 40, number * 40 + 40))
            with following(options(data, to, follow_s=0.1, commit_records=10)) as follower:
                deadline_s = time.monotonic() + chosen.random() * 1.5
                while time.monotonic() < deadline_s and follower.is_running:
                    time.sleep(0.01)
                fragile.kill()
                while follower.is_running:  # it notices, says so, and ends
                    follower._thread.join(TIMEOUT_S)
            assert isinstance(follower.failure, CordwoodError), repr(follower.failure)
            assert str(fragile.port) in str(follower.failure)
            fragile.start()
        run_export(None, options(data, to))

        assert rows_of(fragile, "shop.orders") == expected(data)
