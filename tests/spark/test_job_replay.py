"""A part of a topic again, elsewhere, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cordwood
from cordwood.errors import ConfigError
from cordwood.spark.jobs.replay import ReplayOptions, run_replay
from cordwood.spark.jobs.topic_target import TopicTarget
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

TOPIC = "orders"
NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        topic = store.create_topic(TOPIC, partitions=2)
        for n in range(20):
            topic.append(
                b"value-%d" % n,
                key=b"key-%d" % (n % 3),
                headers=[("n", b"%d" % n)],
                partition=n % 2,
                timestamp_ms=NOW + n * 1000,
            )
    return path


def options(data: Path, into: TopicTarget | LakeTarget | None = None, **rest: Any) -> ReplayOptions:
    chosen = into or TopicTarget(paths=(str(data),), topic="again", partitions=2)
    return ReplayOptions(paths=(str(data),), topic=TOPIC, into=chosen, **rest)


def values(data: Path, topic: str = "again") -> dict[int, list[bytes | None]]:
    with cordwood.open(data, read_only=True) as store:
        return {
            log.partition: [record.value for record in log.read()]
            for log in store.topic(topic).partitions
        }


def test_a_range_of_time_is_replayed_with_all_that_a_record_has(
    spark: SparkSession, data: Path
) -> None:
    bounds = {"startingTimestamp": str(NOW + 5000), "endingTimestamp": str(NOW + 9000)}

    report = run_replay(spark, options(data, bounds=bounds, keeps_partition=True))

    assert report.totals["outcome"] == "done"
    assert report.totals["records"] == 4
    assert values(data) == {0: [b"value-6", b"value-8"], 1: [b"value-5", b"value-7"]}
    with cordwood.open(data, read_only=True) as store:
        record = next(iter(store.topic("again").partition(0).read()))
    assert (record.key, record.timestamp_ms, record.headers) == (
        b"key-0",
        NOW + 6000,
        [("n", b"6")],
    )


def test_the_same_replay_is_done_once_also_when_the_topic_has_grown(
    spark: SparkSession, data: Path
) -> None:
    chosen = options(data, where="CAST(key AS STRING) = 'key-1'")

    first = run_replay(spark, chosen)
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(b"later", key=b"key-1")
    again = run_replay(spark, chosen)
    other = run_replay(spark, options(data, where=chosen.where, run_id="second"))

    assert first.totals["records"] == 7
    assert again.totals["outcome"] == "was already done"
    assert other.totals["records"] == 8
    assert sum(map(len, values(data).values())) == 15


def test_a_replay_into_a_table_makes_it_whole_or_not_at_all(
    spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = LakeTarget(format=TableFormat.PARQUET, table=str(tmp_path / "table"))
    bounds = {"startingOffsets": '{"orders": {"0": 2, "1": 2}}'}
    chosen = options(data, to, bounds=bounds, where="offset < 5")
    home = type(to.open())

    def die(*_arguments: Any, **_rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(home, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_replay(spark, chosen)
    first = run_replay(spark, chosen)
    again = run_replay(spark, chosen)

    assert (first.totals["records"], again.totals["outcome"]) == (6, "was already done")
    rows = spark.read.parquet(to.table).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]


def test_a_table_that_holds_something_else_is_refused(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = LakeTarget(format=TableFormat.PARQUET, table=str(tmp_path / "table"))
    run_replay(spark, options(data, to))

    with pytest.raises(ConfigError, match="holds something else"):
        run_replay(spark, options(data, to, where="offset = 1"))


def test_a_topic_is_not_replayed_into_itself(data: Path) -> None:
    with pytest.raises(ConfigError, match="is the topic that is replayed"):
        options(data, TopicTarget(paths=(str(data),), topic=TOPIC))


def test_a_dry_run_says_which_offsets_and_needs_no_spark(data: Path) -> None:
    report = run_replay(
        None,
        options(data, bounds={"startingTimestamp": str(NOW + 15_000)}, is_dry_run=True),
    )

    assert [(row["partition"], row["from"], row["up_to"]) for row in report.rows] == [
        (0, 8, 10),
        (1, 7, 10),
    ]


def test_a_dry_run_checks_what_a_run_checks_and_changes_nothing(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    missing = TopicTarget(paths=(str(data),), topic="nowhere")
    table = LakeTarget(format=TableFormat.PARQUET, table=str(tmp_path / "table"))
    before = sorted(tmp_path.rglob("*"))

    fresh = run_replay(None, options(data, is_dry_run=True))
    with pytest.raises(ConfigError, match="to topic = nowhere: does not exist"):
        run_replay(None, options(data, missing, is_dry_run=True))
    with pytest.raises(ConfigError, match="where = valeu = 'a': is not a condition"):
        run_replay(spark, options(data, where="valeu = 'a'", is_dry_run=True))
    with pytest.raises(ConfigError, match="where = offset >: is not a condition"):
        run_replay(spark, options(data, table, where="offset >", is_dry_run=True))
    assert sorted(tmp_path.rglob("*")) == before
    run_replay(spark, options(data))
    done = run_replay(None, options(data, is_dry_run=True))

    assert fresh.totals["outcome"] == "would be done"
    assert done.totals["outcome"] == "was already done"


@pytest.mark.parametrize(
    "where", ["partition = 0 AND offset >= 8", "partition + 0 = 0 AND offset > 7"]
)
def test_a_condition_selects_the_same_rows_whoever_evaluates_it(
    spark: SparkSession, data: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    report = run_replay(spark, options(data, where=where, keeps_partition=True))

    assert report.totals["records"] == 2
    assert values(data) == {0: [b"value-16", b"value-18"], 1: []}
    assert ("every record between the bounds is read" in caplog.text) == ("+" in where)
