"""`spark.readStream.format("cordwood")` on a real session: each record once, whatever happens.

Most rules of a stream are tested without Spark, in `unit/spark/test_source_stream_driver.py`.
Here is what only Spark can show: checkpoints, restarts, triggers, limits, progress.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cordwood
import cordwood.spark
from cordwood.log.beside.job_traces import read_traces
from cordwood.log.store.store import Store
from cordwood.storage.files import RealFileSystem

from .spark_rows import Row, expected, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cordwood.open(tmp_path / "data") as opened:
        yield opened


class Stream:
    """A query from a store to a list of batches, started again and again on one checkpoint."""

    def __init__(self, spark: "SparkSession", path: str, home: Path, **options: object) -> None:
        self._spark = spark
        self._path = path
        self.options = {"subscribe": "a", **options}
        self.checkpoint = home / "checkpoint"
        self.batches: list[tuple[int, list[Row]]] = []
        self.progress: list[dict[str, Any]] = []

    def start(self, *, is_endless: bool = False) -> "StreamingQuery":
        texts = {name: str(value) for name, value in self.options.items()}
        frame = self._spark.readStream.format("cordwood").options(**texts).load(self._path)
        writer = frame.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(self.checkpoint)
        )
        if is_endless:
            return writer.start()
        return writer.trigger(availableNow=True).start()

    def _keep(self, frame: "DataFrame", batch: int) -> None:
        self.batches.append((batch, rows(frame)))

    def run(self) -> list[int]:
        """Read all there is now; how many rows each batch had that had some."""
        before = len(self.batches)
        query = self.start()
        assert query.awaitTermination(DEADLINE_S)
        self.progress = [json.loads(each.json) for each in query.recentProgress]
        return [len(found) for _, found in self.batches[before:] if found]

    def rows(self) -> list[Row]:
        """Of all batches, each counted once however often it was run."""
        return sorted(row for found in dict(self.batches).values() for row in found)

    def offsets(self) -> list[int]:
        return [row[2] for row in self.rows()]

    def has_done(self, batch: int) -> bool:
        return (self.checkpoint / "commits" / str(batch)).exists()

    def forget_that_it_is_done(self, batch: int) -> None:
        """As if Spark had died before it wrote that down."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink()


def fill(store: Store, partition: int, count: int) -> None:
    store.topic("a").append_many(
        [(b"k%d" % n, b"v%d" % n) for n in range(count)], partition=partition
    )


def all_rows(store: Store) -> list[Row]:
    return sorted(
        row
        for number, log in enumerate(store.topic("a").partitions)
        for row in expected(log.read(), "a", number)
    )


def wait_for(query: "StreamingQuery", is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_there():
        assert time.monotonic() < deadline, "waited too long"
        assert query.exception() is None, query.exception()
        time.sleep(0.02)


def test_each_record_comes_once_over_restarts_and_limits_hold(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a", partitions=2)
    fill(store, 0, 30)
    fill(store, 1, 10)
    stream = Stream(
        spark, store.path, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=16
    )

    first = stream.run()
    fill(store, 1, 7)
    second = stream.run()

    assert (first, second) == ([16, 16, 8], [7])
    assert stream.rows() == all_rows(store)
    source = stream.progress[-1]["sources"][0]
    assert source["endOffset"]["a"] == {"0": 30, "1": 17} == source["latestOffset"]["a"]
    assert stream.run() == []


def test_a_replayed_first_batch_loses_nothing_though_it_began_at_the_latest(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a")
    fill(store, 0, 5)
    stream = Stream(spark, store.path, tmp_path, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    query = stream.start(is_endless=True)
    try:
        wait_for(query, lambda: stream.has_done(0))
        fill(store, 0, 3)
        wait_for(query, lambda: stream.has_done(1))
    finally:
        query.stop()
    _make_first_of_second(stream.checkpoint)
    stream.batches.clear()
    fill(store, 0, 4)

    counts = stream.run()

    assert counts == [3, 4]
    assert stream.offsets() == list(range(5, 12))


def _make_first_of_second(checkpoint: Path) -> None:
    """What Spark leaves when it dies in a first batch that has rows.

    By itself it never begins with one that starts at the latest: the first is always empty.
    """
    shutil.rmtree(checkpoint / "commits")
    offsets = checkpoint / "offsets"
    second = (offsets / "1").read_text()
    assert "@from" in json.loads(second.splitlines()[-1])
    shutil.rmtree(offsets)
    offsets.mkdir()
    (offsets / "0").write_text(second)


def test_a_replayed_batch_is_the_same_batch(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a")
    fill(store, 0, 5)
    stream = Stream(spark, store.path, tmp_path, startingOffsets="earliest")
    stream.run()
    stream.forget_that_it_is_done(0)
    fill(store, 0, 7)

    counts = stream.run()

    assert counts == [5, 7]
    assert [batch for batch, _ in stream.batches] == [0, 0, 1]
    assert stream.rows() == all_rows(store)


def test_a_recreated_topic_fails_the_query_or_is_read_anew(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    store.create_topic("a")
    fill(store, 0, 5)
    stream = Stream(spark, store.path, tmp_path, startingOffsets="earliest")
    stream.run()
    store.delete_topic("a")
    store.create_topic("a")
    fill(store, 0, 9)

    with pytest.raises(StreamingQueryException, match="recreated"):
        stream.run()
    stream.options["failOnDataLoss"] = False

    assert stream.run() == [9]


def test_an_idle_stream_makes_no_batches_and_a_busy_one_follows_the_log(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a")
    stream = Stream(spark, store.path, tmp_path, group="lag")
    query = stream.start(is_endless=True)
    try:
        for batch, count in enumerate((3, 4)):
            wait_for(query, partial(stream.has_done, batch))
            fill(store, 0, count)
        wait_for(query, lambda: stream.has_done(2))
        wait_for(query, lambda: store.group("lag").committed("a", 0) == 7)
    finally:
        query.stop()

    assert [len(found) for _, found in stream.batches] == [0, 3, 4]
    assert stream.rows() == all_rows(store)


def test_progress_is_committed_to_a_group_before_the_query_ends(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a", partitions=2)
    fill(store, 0, 5)
    stream = Stream(spark, store.path, tmp_path, startingOffsets="earliest", group="lag")

    stream.run()

    assert store.group("lag").committed() == {("a", 0): 5, ("a", 1): 0}


def test_a_stream_leaves_a_trace_of_how_far_it_is(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    store.create_topic("a", partitions=2)
    fill(store, 0, 5)
    stream = Stream(spark, store.path, tmp_path, startingOffsets="earliest")

    stream.run()

    [trace] = read_traces(RealFileSystem(), store.path)
    assert (trace.kind, trace.subject, trace.state(0)) == ("stream", "a", "done")
    assert trace.positions == (("a", 0, 5), ("a", 1, 0))


OPTIONS: list[tuple[dict[str, object], Callable[[Row], bool]]] = [
    (
        {
            "assign": '{"a": [1]}',
            "startingOffsets": '{"a": {"1": 4}}',
            "columns": "timestamp,value,key,offset,partition,topic",
        },
        lambda row: row[1] == 1 and row[2] >= 4,
    ),
    (
        {"subscribePattern": "^a$", "startingTimestamp": "-1h", "minPartitions": 5},
        lambda row: row[2] >= 8,
    ),
    (
        {
            "startingOffsetsByTimestamp": '{"a": {"0": 1006, "1": 99999999999999}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "maxRecordsPerPartition": 1,
            "includeHeaders": True,
        },
        lambda row: row[1] == 0 and row[2] >= 6,
    ),
    (
        {"startingOffsets": "earliest", "key": "k1", "maxBytesPerTrigger": "400"},
        lambda row: row[4] == b"k1",
    ),
]


@pytest.mark.parametrize(("options", "is_wanted"), OPTIONS)
def test_options_choose_what_a_stream_reads(
    spark: "SparkSession",
    store: Store,
    tmp_path: Path,
    options: dict[str, object],
    is_wanted: Callable[[Row], bool],
) -> None:
    """Offsets below 8 are from 1970, those from there on are of now."""
    topic = store.create_topic("a", partitions=2, config={"segment.records": "3"})
    now_ms = int(time.time() * 1000)
    for number in range(24):
        offset = number // 2
        topic.append(
            b"v%d" % number,
            key=b"k%d" % (offset % 3),
            partition=number % 2,
            timestamp_ms=1000 + offset if offset < 8 else now_ms,
        )
    stream = Stream(spark, store.path, tmp_path, **options)
    if {"assign", "subscribePattern"} & set(options):
        del stream.options["subscribe"]

    stream.run()

    assert stream.rows() == [row for row in all_rows(store) if is_wanted(row)]
    if "maxBytesPerTrigger" in options:
        assert len(stream.batches) > 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets = latest: a stream has no end"),
        ({"maxOffsetsPerTrigger": "all"}, "maxOffsetsPerTrigger = all"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger = 0"),
        ({"minOffsetsPerTrigger": 5, "maxTriggerDelay": "late"}, "maxTriggerDelay = late"),
        ({"maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger = -1"),
        ({"group": " "}, "group = "),
        ({"startingOffsets": "earlyest"}, "startingOffsets = earlyest"),
    ],
)
def test_a_bad_option_fails_the_query_by_name(
    spark: "SparkSession", store: Store, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    from pyspark.errors import StreamingQueryException

    store.create_topic("a")
    stream = Stream(spark, store.path, tmp_path, **options)

    with pytest.raises(StreamingQueryException) as failed:
        stream.run()

    assert cordwood.spark.explain(failed.value).startswith(words)
