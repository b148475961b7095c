"""Queries beside a writer that appends, deletes and compacts: right, or an error that says why."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
from cordwood.log.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 50
PAUSE_S = 0.02  # so that some queries are faster than what goes on beside them, and some are not
CONFIG = {"file.delete.delay.ms": "0"}


class Writer(threading.Thread):
    """Appends to both topics and maintains the store until stopped. Values name their offset."""

    def __init__(self, store: Store) -> None:
        super().__init__(name="writer")
        self._store = store
        self._stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.wait(PAUSE_S):
                self.step()
        except BaseException as error:  # shown by the test, in its own thread
            self.error = error

    def step(self) -> None:
        for name in ("deleted", "compacted"):
            topic = self._store.topic(name)
            first = topic.partition(0).end_offset
            topic.append_many([(b"%d" % (n % KEYS), b"%d" % n) for n in range(first, first + 100)])
        self._store.maintain()
        self._store.compact("compacted")

    def stop(self) -> None:
        """Safe to repeat."""
        self._stopping.set()
        self.join()
        if self.error is not None:
            raise self.error


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Store, Writer]]:
    with cordwood.open(tmp_path) as store:
        store.create_topic(
            "deleted", config={**CONFIG, "segment.records": "400", "retention.segments": "12"}
        )
        store.create_topic(
            "compacted",
            config={
                **CONFIG,
                "segment.records": "2000",
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                "key.index": "true",
            },
        )
        writer = Writer(store)
        for _ in range(50):
            writer.step()
        writer.start()
        yield store, writer
        writer.stop()


def test_queries_beside_retention_and_compaction_are_right_or_say_why_not(
    spark: "SparkSession", live: tuple[Store, Writer]
) -> None:
    from pyspark.errors import PySparkException

    store, writer = live
    refused: list[PySparkException] = []

    for topic in ("deleted", "compacted") * 4:
        try:
            check(topic, _read(spark, store, topic))
        except PySparkException as error:
            refused.append(error)
    writer.stop()

    assert all("DataLossError" in str(error) for error in refused), refused
    for topic in ("deleted", "compacted"):
        check(topic, _read(spark, store, topic))


@pytest.mark.slow
def test_a_stream_beside_retention_and_compaction_has_each_record_once_or_says_what_is_gone(
    spark: "SparkSession", live: tuple[Store, Writer], tmp_path: Path
) -> None:
    store, writer = live
    stream = LiveStream(spark, store.path, tmp_path / "checkpoint")

    for _ in range(4):
        stream.run()
    writer.stop()
    stream.run()
    stream.run()

    seen = stream.seen
    assert len({(topic, offset) for topic, offset, _, _ in seen}) == len(seen)
    assert all(int(value) == offset for _, offset, _, value in seen)
    deleted = sorted(offset for topic, offset, _, _ in seen if topic == "deleted")
    assert deleted[-1] == store.topic("deleted").partition(0).end_offset - 1
    assert stream.losses or deleted == list(range(deleted[0], deleted[-1] + 1))
    newest = {key: value for topic, _, key, value in sorted(seen) if topic == "compacted"}
    held = {record.key: record.value for record in store.topic("compacted").partition(0).read()}
    assert newest == held


class LiveStream:
    """Reads both topics to where they end now, again and again, on one checkpoint."""

    def __init__(self, spark: "SparkSession", path: str, checkpoint: Path) -> None:
        self._spark = spark
        self._path = path
        self._checkpoint = checkpoint
        self.seen: list[tuple[str, int, bytes, bytes]] = []
        self.losses: list[str] = []

    def run(self) -> None:
        from pyspark.errors import StreamingQueryException

        options = {"subscribe": "deleted,compacted", "startingOffsets": "earliest"}
        # What a run has lost is lost to all that come after it.
        options["failOnDataLoss"] = "false" if self.losses else "true"
        frame = self._spark.readStream.format("cordwood").options(**options).load(self._path)
        writer = frame.writeStream.foreachBatch(self._keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            assert "DataLossError" in str(error)
            self.losses.append(str(error))

    def _keep(self, frame: "DataFrame", _batch: int) -> None:
        rows = frame.select("topic", "offset", "key", "value").collect()
        self.seen += [(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in rows]


def check(topic: str, found: list[tuple[int, bytes, bytes]]) -> None:
    """A result is the log as it was at some moment."""
    offsets = [offset for offset, _, _ in found]
    assert [int(value) for _, _, value in found] == offsets
    assert len(set(offsets)) == len(offsets)
    if topic == "deleted":
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
    else:
        assert {int(key) for _, key, _ in found} == set(range(KEYS))


def _read(
    spark: "SparkSession", store: Store, topic: str, **options: str
) -> list[tuple[int, bytes, bytes]]:
    given = {"subscribe": topic, "columns": "offset,key,value", "minPartitions": "3", **options}
    rows = spark.read.format("cordwood").options(**given).load(store.path).collect()
    return sorted((row[0], bytes(row[1]), bytes(row[2])) for row in rows)
