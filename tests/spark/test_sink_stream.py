"""Streams write to a store exactly once, through restarts, replays, failures and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
from spark.failing_sink import failing_sink
from spark.sink_stores import leftovers, records, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROOT = Path(__file__).resolve().parents[2]


class Stream:
    """Lines of text files, each of which becomes a batch of its own, into the topic `lines`."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.input = directory / "input"
        self.checkpoint = directory / "checkpoint"
        self.store = directory / "store"
        self.expected: list[bytes] = []
        self.input.mkdir()
        with cordwood.open(self.store) as store:
            store.create_topic("lines", partitions=3)

    def add_file(self, name: str, count: int = 40) -> None:
        lines = [f"{name} {number}" for number in range(count)]
        (self.input / name).write_text("\n".join(lines))
        # Spark takes the files in the order of their times.
        os.utime(self.input / name, (len(self.expected) * 10 + 1,) * 2)
        self.expected += [line.encode() for line in lines]

    def start(self, source: str = "cordwood", **options: object) -> StreamingQuery:
        frame = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.input))
        writer = frame.repartition(2).writeStream.format(source).trigger(availableNow=True)
        settings = {"topic": "lines", "path": self.store, "checkpointLocation": self.checkpoint}
        for name, value in {**settings, **options}.items():
            writer = writer.option(name, str(value))
        return writer.start()

    def run(self, source: str = "cordwood", **options: object) -> None:
        query = self.start(source, **options)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_commit(self) -> None:
        """As if the driver had died before it wrote down that the last batch was done."""
        commits = [int(p.name) for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit()]
        (self.checkpoint / "commits" / str(max(commits))).unlink()
        (self.checkpoint / "commits" / f".{max(commits)}.crc").unlink(missing_ok=True)

    def check(self) -> None:
        assert values(self.store, "lines") == sorted(self.expected)
        assert leftovers(self.store) == []


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_a_stream_goes_on_where_it_ended(stream: Stream) -> None:
    stream.add_file("a")
    stream.add_file("b")
    stream.run()
    stream.check()
    stream.add_file("c")

    stream.run()

    stream.check()
    with cordwood.open(stream.store) as store:
        [(application, number)] = store.publisher.applications().items()
        assert application.startswith("stream ")
        assert number == 2


def test_a_batch_that_spark_writes_again_is_not_there_twice(stream: Stream) -> None:
    stream.add_file("a")
    stream.run()
    stream.forget_commit()

    stream.run()

    stream.check()


@pytest.mark.parametrize("moment", ["staged", "published"])
def test_a_batch_that_fails_on_the_way_is_there_once_after_a_restart(
    stream: Stream, moment: str
) -> None:
    stream.spark.dataSource.register(failing_sink(moment, 1))
    stream.add_file("a")
    stream.add_file("b")

    with pytest.raises(Exception, match=f"failed once it was {moment}"):
        stream.run("cordwood-failing")

    stream.add_file("c")
    stream.run()
    stream.check()


def test_a_stream_that_begins_anew_is_another_one(stream: Stream) -> None:
    stream.add_file("a")
    stream.run()
    stream.checkpoint = stream.checkpoint.with_name("another")

    stream.run()

    stream.expected *= 2
    stream.check()


def test_a_stream_may_be_given_a_name_that_outlives_its_checkpoint(stream: Stream) -> None:
    stream.add_file("a")
    stream.run(applicationId="lines")
    stream.checkpoint = stream.checkpoint.with_name("another")

    stream.run(applicationId="lines")

    stream.check()


def test_readers_see_whole_batches_or_nothing(stream: Stream) -> None:
    from cordwood.log.publishing.consistent_ends import whole_ends

    for name in "abcd":
        stream.add_file(name, 60)
    seen: set[int] = set()

    query = stream.start()
    with cordwood.open(stream.store, read_only=True) as store:
        while query.isActive:
            seen.add(sum(whole_ends(store, ["lines"]).values()))
        query.awaitTermination()
        seen.add(sum(whole_ends(store, ["lines"]).values()))

    assert seen <= {0, 60, 120, 180, 240}
    stream.check()


def test_keyless_rows_of_small_batches_do_not_all_go_to_one_partition(stream: Stream) -> None:
    for name in "abc":
        stream.add_file(name, 4)

    stream.run()

    assert all(records(stream.store, "lines").values())


KILLED = """
import sys
import cordwood.spark
from pathlib import Path
from spark.failing_sink import failing_sink
from spark.test_sink_stream import Stream

directory, moment = Path(sys.argv[1]), sys.argv[2]
config = {"spark.ui.enabled": False, "spark.log.level": "OFF",
          "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = cordwood.spark.session("to be killed", master="local[2]", config=config)
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
spark.dataSource.register(failing_sink(moment, 1, killed_pid=pid))
stream = Stream.__new__(Stream)
stream.spark, stream.input = spark, directory / "input"
stream.checkpoint, stream.store = directory / "checkpoint", directory / "store"
stream.run("cordwood-failing")
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["staged", "published"])
def test_a_driver_that_is_killed_leaves_every_record_once(
    stream: Stream, tmp_path: Path, moment: str
) -> None:
    stream.add_file("a")
    stream.add_file("b")
    search = os.pathsep.join([f"{ROOT}/src", f"{ROOT}/tests"])
    command = [sys.executable, "-c", KILLED, str(tmp_path), moment]

    killed = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        timeout=240,
        check=False,
    )

    assert killed.returncode not in (0, -signal.SIGKILL), killed.stderr[-2000:]
    assert (stream.checkpoint / "offsets" / "1").exists(), killed.stderr[-2000:]
    assert not (stream.checkpoint / "commits" / "1").exists()
    stream.add_file("c")
    stream.run()
    assert values(stream.store, "lines") == sorted(stream.expected)
