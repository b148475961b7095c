"""What is wrong with a store is found and named; what is right is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.errors import ConfigError
from cordwood.spark.jobs.verify import VerifyOptions, plan_checks, run_verify

TOPIC = "orders"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "data"
    config = {
        "internal.segment.bytes": 6000,
        "index.interval.bytes": 500,
        "file.delete.delay.ms": 0,
        "durability": "os",
    }
    with cordwood.open(path) as store:
        topic = store.create_topic(TOPIC, partitions=2, config=config)
        for n in range(300):
            topic.append(
                b"value-%d" % n, key=b"key-%d" % (n % 9), timestamp_ms=1_700_000_000_000 + n
            )
        compacted = store.create_topic("users", config={**config, "cleanup.policy": "compact"})
        for n in range(100):
            compacted.append(b"value-%d" % n, key=b"key-%d" % (n % 9))
        store.compact("users", force=True)
    return path


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    shutil.copytree(sound, path)
    return path


def options(path: Path, *topics: str) -> VerifyOptions:
    return VerifyOptions(paths=(str(path),), topics=topics, task_bytes=20_000)


def first_segment(path: Path, ending: str) -> Path:
    return path / f"{TOPIC}-0" / f"00000000000000000000.{ending}"


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_a_sound_store_has_no_problems_and_every_record_is_counted(
    spark: SparkSession, sound: Path
) -> None:
    report = run_verify(spark, options(sound))

    assert report.problems == ()
    with cordwood.open(sound, read_only=True) as store:
        expected = {
            (log.topic, log.partition): sum(1 for _ in log.read())
            for name in store.topics()
            for log in store.topic(name).partitions
        }
    assert {(row["topic"], row["partition"]): row["records"] for row in report.rows} == expected
    assert report.totals["segments"] > 6


def test_every_kind_of_damage_is_named_with_its_place(spark: SparkSession, data: Path) -> None:
    log = first_segment(data, "log")
    overwrite(log, 100, bytes([log.read_bytes()[100] ^ 0xFF]))
    index = data / f"{TOPIC}-1" / "00000000000000000000.index"
    overwrite(index, 4, (7).to_bytes(4, "big"))
    times = data / f"{TOPIC}-1" / "00000000000000000000.timeindex"
    overwrite(times, 0, (1_600_000_000_000).to_bytes(8, "big"))
    lost = sorted((data / f"{TOPIC}-1").glob("*.log"))[1]
    lost.write_bytes(lost.read_bytes()[:-90])

    report = run_verify(spark, options(data, TOPIC))

    found = "\n".join(report.problems)
    assert f"{TOPIC}-0, segment 0: byte 80: the checksum does not match" in found
    assert f"{TOPIC}-1, segment 0: the offset index says that offset" in found
    assert f"{TOPIC}-1, segment 0: the time index says 1600000000000" in found
    assert f"{TOPIC}-1, segment {int(lost.stem)}: " in found
    assert report.totals["problems"] == len(report.problems)


def test_a_missing_index_is_no_problem(spark: SparkSession, data: Path) -> None:
    first_segment(data, "index").unlink()
    first_segment(data, "timeindex").unlink()

    report = run_verify(spark, options(data, TOPIC))

    assert report.problems == ()


def test_a_store_is_checked_while_it_is_written(spark: SparkSession, data: Path) -> None:
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b"being written", partition=0)

        report = run_verify(spark, options(data, TOPIC))

    assert report.problems == ()
    assert report.totals["records"] == 301


def test_tasks_take_segments_up_to_their_size(sound: Path) -> None:
    small = plan_checks(options(sound))
    large = plan_checks(VerifyOptions(paths=(str(sound),)))

    assert [len(task.base_offsets) for task in large] == [
        sum(len(task.base_offsets) for task in small if task.place.name == whole.place.name)
        for whole in large
    ]
    assert all(task.size <= 20_000 for task in small)


def test_a_topic_that_is_not_there_is_refused(sound: Path) -> None:
    with pytest.raises(ConfigError, match="known are: orders, users"):
        plan_checks(options(sound, "nothing"))
