"""The same jobs on a real cluster of several processes, one of which is killed at work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.log.inbox.change_inbox import LOST_RUN_MS
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

from .compacted_topic import (
    NOW,
    TOPIC,
    cleaner_checkpoint,
    compact_locally,
    fill,
    records_of,
    staged,
)
from .standalone_cluster import StandaloneCluster

# Each starts a driver, and executors; on a busy machine that takes its time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield started
    started.stop()


def start_job(cluster: StandaloneCluster, *arguments: object) -> subprocess.Popen[str]:
    conf = [text for key, value in _CONF.items() for text in ("--conf", f"{key}={value}")]
    return subprocess.Popen(
        [
            sys.executable, "-m", "cordwood", "spark", *map(str, arguments),
            "--master", cluster.url, "--json", *conf,
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def finish(job: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = job.communicate(timeout=600)
    assert job.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def wait_for(condition: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Until it holds, as long as the job runs."""
    deadline_s = time.monotonic() + 600
    while not condition():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_whole_store_is_read_by_executors_on_two_workers(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    fill(data, seed=11, partitions=2, batches=100)

    report = finish(start_job(cluster, "stats", TOPIC, "--at", data))

    assert report["totals"]["records"] == len(records_of(data))


def test_compaction_survives_the_death_of_a_worker(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    data, same = tmp_path / "data", tmp_path / "same"
    fill(data, seed=12, partitions=2, batches=400, segment_bytes=3000)
    shutil.copytree(data, same)

    job = start_job(cluster, "compact", TOPIC, "--force", "--at", data)
    wait_for(lambda: any(path.is_dir() and any(path.iterdir()) for path in staged(data)), job)
    cluster.kill_worker()
    report = finish(job)
    cluster.add_worker("another")

    compact_locally(same, now_ms=NOW)
    assert report["problems"] == []
    assert report["totals"]["bytes_reclaimed"] > 0
    assert records_of(data) == records_of(same)
    assert cleaner_checkpoint(data) == cleaner_checkpoint(same)
    assert staged(data) == []


def test_a_driver_that_dies_leaves_a_sound_log_and_the_next_run_finishes_and_tidies_up(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    data, same = tmp_path / "data", tmp_path / "same"
    fill(data, seed=13, partitions=4, batches=300, segment_bytes=3000)
    shutil.copytree(data, same)
    before = set(records_of(data))

    job = start_job(cluster, "compact", TOPIC, "--force", "--at", data)
    wait_for(lambda: any(path.is_dir() and any(path.iterdir()) for path in staged(data)), job)
    job.kill()
    job.communicate()
    assert set(records_of(data)) <= before
    wait_until_quiet(data)
    _make_older(staged(data), seconds=LOST_RUN_MS // 1000 + 1)
    report = finish(start_job(cluster, "compact", TOPIC, "--force", "--at", data))

    compact_locally(same, now_ms=NOW)
    assert report["problems"] == []
    assert records_of(data) == records_of(same)
    assert [path for path in staged(data) if path.is_dir()] == []


def wait_until_quiet(data: Path) -> None:
    """Executors notice the death of their driver and end; until then they may write."""
    seen: list[tuple[Path, int]] = []
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        time.sleep(3)
        now = [(file, file.stat().st_size) for path in staged(data) for file in path.glob("*")]
        if now == seen:
            return
        seen = now
    raise TimeoutError("tasks of a dead driver write for minutes")


def _make_older(paths: list[Path], *, seconds: int) -> None:
    inside = [file for path in paths if path.is_dir() for file in path.iterdir()]
    for each in [*paths, *inside]:
        found = each.stat()
        os.utime(each, (found.st_atime - seconds, found.st_mtime - seconds))


def test_a_worker_that_hangs_for_a_while_delays_a_scan_and_changes_nothing(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    fill(data, seed=14, partitions=4, batches=200)

    job = start_job(cluster, "verify", TOPIC, "--at", data)
    with stopped(cluster.workers[-1]):
        time.sleep(5)
    report = finish(job)

    assert report["problems"] == []
    assert sum(row["records"] for row in report["rows"]) >= len(records_of(data))


@contextmanager
def stopped(worker: subprocess.Popen[bytes]) -> Iterator[None]:
    """The worker and its executors stand still, as if their disk did not answer."""
    os.killpg(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(worker.pid, signal.SIGCONT)


def test_an_export_survives_the_death_of_a_worker_and_has_each_offset_once(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with cordwood.open(data, config={"durability": "os"}) as store:
        topic = store.create_topic("orders", partitions=24)
        for number in range(24):
            pairs = [(b"key-%d" % n, b"value-%d" % n) for n in range(200)]
            topic.partition(number).append_many(pairs)
    table = tmp_path / "table"
    target = LakeTarget(format=TableFormat.DELTA, table=str(table))

    job = start_job(
        cluster, "export", "orders", "--format", "delta", "--table", table, "--at", data
    )
    wait_for(lambda: any(table.glob("cordwood/*/*.parquet")), job)
    cluster.kill_worker()
    report = finish(job)
    cluster.add_worker("a third")

    assert report["totals"]["records"] == 24 * 200
    opened = target.open()
    state = opened.load()
    assert state is not None
    assert set(state.offsets.values()) == {200}
    assert _offsets(opened.files()) == sorted((p, n) for p in range(24) for n in range(200))


def _offsets(paths: list[str]) -> list[tuple[int, int]]:
    import pyarrow.parquet as pq

    found: list[tuple[int, int]] = []
    for path in paths:
        table = pq.read_table(path, columns=["partition", "offset"])
        found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(found)
