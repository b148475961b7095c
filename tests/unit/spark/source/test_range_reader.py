"""One task: the records of its range, or a clear word on why not. The log changes meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import cordwood
from cordwood.errors import DataLossError
from cordwood.format.batch import RecordRun
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.store.store import Store
from cordwood.spark.source.opened_source import open_source
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.range_reader import LossPolicy, RangeReader
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import guard_ranges, plan_ranges, survey
from fakes.stopped_swap import TOPIC, store_with_a_stopped_swap

CONFIG = {"segment.records": "10", "file.delete.delay.ms": "0", "retention.ms": "-1"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Topic a with 100 records in ten segments; keys k0 to k9 in turn."""
    with cordwood.open(tmp_path) as opened:
        topic = opened.create_topic("a", config=CONFIG)
        for n in range(100):
            topic.append(b"v%d" % n, key=b"k%d" % (n % 10))
        yield opened


def task(store: Store, start: int, stop: int) -> OffsetRange:
    with open_source(store.data_dirs, lambda topic, _: topic == "a") as source:
        return OffsetRange(place=source.look()["a"].place(0), start=start, stop=stop)


def reader(*, fails: bool = True, key: bytes | None = None) -> RangeReader:
    return RangeReader(columns=("offset", "value"), key=key, loss=LossPolicy(fails))


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def test_a_task_reads_its_range_and_nothing_else(store: Store) -> None:
    assert offsets(reader().read(task(store, 7, 34))) == list(range(7, 34))


def test_a_task_opens_no_segment_outside_its_range(store: Store) -> None:
    planned = task(store, 42, 48)
    for base in (0, 10, 20, 30, 50, 60):
        name = f"{base:020d}.log"
        os.rename(f"{planned.place.directory}/{name}", f"{planned.place.directory}/{base}.hidden")
        Path(planned.place.directory, name).write_bytes(b"not a log")

    assert offsets(reader().read(planned)) == list(range(42, 48))


def test_plan_and_task_read_everything_in_the_middle_of_a_swap(tmp_path: Path) -> None:
    records = store_with_a_stopped_swap(tmp_path)

    with open_source([str(tmp_path)], lambda *_: True) as source:
        options = SourceOptions.for_batch({"path": "d", "subscribe": TOPIC})
        tasks = plan_ranges(survey(source), [((TOPIC, 0), 0, len(records))], options)
    found = {
        row["offset"]: row["value"]
        for planned in tasks
        for batch in reader().read(planned)
        for row in batch.to_pylist()
    }

    assert found == records


def test_records_deleted_since_the_plan_are_an_error(store: Store) -> None:
    planned = task(store, 7, 34)
    store.topic("a").partition(0).delete_before(25)

    with pytest.raises(DataLossError, match="offsets from 7 to 25 were deleted"):
        offsets(reader().read(planned))

    assert offsets(reader(fails=False).read(planned)) == list(range(25, 34))


def test_records_deleted_while_they_are_read_are_an_error(store: Store) -> None:
    rows = RangeReader(columns=("offset",), key=None, loss=LossPolicy(True))
    planned = task(store, 0, 100)
    with planned.place.open() as log:
        assert log is not None
        runs = rows.runs(log, planned)
        next(runs)
        store.topic("a").partition(0).delete_before(95)
        store.maintain()

        with pytest.raises(DataLossError, match="to 95 were deleted"):
            list(runs)


def test_a_task_whose_records_were_all_deleted_reads_nothing_when_told_to_go_on(
    store: Store,
) -> None:
    planned = task(store, 7, 34)
    store.topic("a").partition(0).delete_before(60)

    assert offsets(reader(fails=False).read(planned)) == []


def test_a_topic_deleted_since_the_plan_is_an_error(store: Store) -> None:
    planned = task(store, 7, 34)
    store.delete_topic("a")

    with pytest.raises(DataLossError, match="deleted or recreated"):
        offsets(reader().read(planned))

    assert offsets(reader(fails=False).read(planned)) == []


def test_a_topic_recreated_since_the_plan_is_not_taken_for_the_old_one(store: Store) -> None:
    planned = task(store, 7, 34)
    store.delete_topic("a")
    store.create_topic("a").append_many([(None, b"other")] * 100)

    with pytest.raises(DataLossError, match="deleted or recreated"):
        offsets(reader().read(planned))

    assert offsets(reader(fails=False).read(planned)) == []


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_recreated_while_it_is_read_fails_the_task_before_its_last_rows(
    store: Store, fails: bool
) -> None:
    class Interrupted(RangeReader):
        def runs(self, log: LogReader, task: OffsetRange) -> Iterator[RecordRun]:
            yield from RangeReader.runs(self, log, task)
            store.delete_topic("a")
            store.create_topic("a").append_many([(None, b"other")] * 100)

    interrupted = Interrupted(columns=("offset",), key=None, loss=LossPolicy(fails))
    handed_over: list[pa.RecordBatch] = []

    with pytest.raises(DataLossError, match="while it was read"):
        handed_over.extend(interrupted.read(task(store, 0, 100)))

    assert handed_over == []


def test_a_log_that_is_shorter_than_planned_is_an_error(store: Store) -> None:
    planned = task(store, 90, 100)
    store.topic("a").partition(0).truncation.truncate_to(95)

    with pytest.raises(DataLossError, match="ends at offset 95"):
        offsets(reader().read(planned))

    assert offsets(reader(fails=False).read(planned)) == list(range(90, 95))


def test_gaps_from_compaction_are_not_data_loss(store: Store) -> None:
    store.alter_topic("a", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    planned = task(store, 0, 100)
    store.compact("a", force=True)

    assert offsets(reader().read(planned)) == list(range(90, 100))


def test_a_topic_that_is_compacted_only_since_the_plan_is_read_too(store: Store) -> None:
    planned = task(store, 0, 100)
    store.alter_topic("a", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    store.compact("a", force=True)

    assert offsets(reader().read(planned)) == list(range(90, 100))


def guarded(store: Store, end: int) -> OffsetRange:
    with open_source(store.data_dirs, lambda topic, _: topic == "a") as source:
        found = survey(source)
        span = (("a", 0), 0, end)
        options = SourceOptions.for_batch({"path": "d", "subscribe": "a"})
        [planned] = guard_ranges(found, plan_ranges(found, [span], options), [span])
        return planned


def test_compaction_up_to_the_end_of_a_query_takes_nothing_from_it(store: Store) -> None:
    store.alter_topic("a", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    store.topic("a").append(b"v100", key=b"k0")
    planned = guarded(store, 101)
    for n in range(5):
        store.topic("a").append(b"more", key=b"k%d" % n)
    store.compact("a")

    assert planned.guard is not None
    assert offsets(reader().read(planned)) == list(range(90, 101))


def test_compaction_past_the_end_of_a_query_is_an_error_as_keys_may_be_missing(
    store: Store,
) -> None:
    store.alter_topic("a", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    planned = guarded(store, 100)
    for n in range(100, 120):
        store.topic("a").append(b"v%d" % n, key=b"k%d" % (n % 5))
    store.compact("a")

    with pytest.raises(DataLossError, match="compacted past offset 100"):
        offsets(reader().read(planned))

    assert offsets(reader(fails=False).read(planned)) == list(range(95, 100))


def test_a_log_that_only_goes_on_is_no_error_to_a_query(store: Store) -> None:
    store.alter_topic("a", config={"cleanup.policy": "compact"})
    planned = guarded(store, 95)
    for n in range(40):
        store.topic("a").append(b"more", key=b"k%d" % n)

    assert offsets(reader().read(planned)) == list(range(95))


def test_a_query_that_ends_in_the_past_has_nothing_to_guard(store: Store) -> None:
    store.alter_topic("a", config={"cleanup.policy": "compact"})

    assert guarded(store, 42).guard is None


def test_damage_is_an_error_that_says_where(store: Store) -> None:
    planned = task(store, 0, 100)
    path = Path(planned.place.directory, f"{20:020d}.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(DataLossError, match="is damaged at byte"):
        offsets(reader().read(planned))

    left = offsets(reader(fails=False).read(planned))
    lost = sorted(set(range(100)) - set(left))
    assert left == sorted(left)
    assert lost
    assert set(lost) <= set(range(20, 30))


@pytest.mark.parametrize("is_indexed", [True, False])
def test_only_the_records_of_a_key_are_read(store: Store, is_indexed: bool) -> None:
    store.alter_topic("a", config={"key.index": str(is_indexed).lower()})
    store.maintain()

    found = offsets(reader(key=b"k3").read(task(store, 10, 78)))

    assert found == [13, 23, 33, 43, 53, 63, 73]


def test_a_key_whose_records_are_deleted_while_they_are_read_is_an_error(store: Store) -> None:
    planned = task(store, 0, 100)
    store.topic("a").partition(0).delete_before(50)

    with pytest.raises(DataLossError):
        offsets(reader(key=b"k3").read(planned))

    assert offsets(reader(key=b"k3", fails=False).read(planned)) == [53, 63, 73, 83, 93]
