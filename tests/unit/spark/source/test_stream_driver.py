"""How far micro-batches go and what they read, without Spark: only its questions in its order."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError, DataLossError
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs
from cordwood.spark.source.opened_source import open_source
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.stream_driver import StreamDriver
from cordwood.spark.source.stream_offsets import StreamOffset
from fakes.manual_clock import ManualClock

Opener = Callable[..., StreamDriver]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cordwood.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(TimestampMs(1_000_000))


@pytest.fixture
def driver(store: Store, clock: ManualClock) -> Iterator[Opener]:
    """Opens the driver of a new run of the query, as Spark does in a new process."""
    opened: list[StreamDriver] = []

    def open_driver(**given: str) -> StreamDriver:
        choice = {} if {"subscribePattern", "assign"} & set(given) else {"subscribe": "a"}
        options = SourceOptions.for_stream({"path": store.path, **choice, **given})
        source = open_source(options.paths, options.topics.wants)
        opened.append(StreamDriver(options, source, clock, None))
        return opened[-1]

    yield open_driver
    for each in opened:
        each.close()


def fill(store: Store, partition: int, count: int, topic: str = "a", size: int = 1) -> None:
    store.topic(topic).append_many([(None, b"x" * size)] * count, partition=partition)


def spans(stream: StreamDriver, start: StreamOffset, end: StreamOffset) -> dict[str, list[int]]:
    """What is read: partition -> offsets, through the text that Spark keeps."""
    start, end = (
        StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) for offset in (start, end)
    )
    found: dict[str, list[int]] = {}
    for task in stream.tasks(start, end):
        found.setdefault(task.place.name, []).extend(range(task.start, task.stop))
    return found


def test_a_stream_reads_what_is_appended_after_it_started(store: Store, driver: Opener) -> None:
    store.create_topic("a", partitions=2)
    fill(store, 0, 5)
    stream = driver()
    start = stream.initial()
    fill(store, 0, 2)
    fill(store, 1, 3)

    end = stream.latest(start, is_limited=False)

    assert spans(stream, start, end) == {"a-0": [5, 6], "a-1": [0, 1, 2]}


def test_without_anything_new_the_answer_is_the_very_start(store: Store, driver: Opener) -> None:
    store.create_topic("a", partitions=2)
    stream = driver()
    start = stream.initial()

    again = stream.latest(start, is_limited=False)

    assert again is start
    assert spans(stream, start, again) == {}


def test_the_initial_offset_is_the_same_however_often_it_is_asked(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a")
    stream = driver()
    first = stream.initial()
    fill(store, 0, 5)

    assert stream.initial() == first


def test_the_first_batch_is_replayed_from_where_it_started_also_in_a_new_process(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a")
    fill(store, 0, 10)
    first_run = driver()
    start = first_run.initial()
    fill(store, 0, 5)
    end = first_run.latest(start, is_limited=False)
    planned = spans(first_run, start, end)
    fill(store, 0, 7)

    second_run = driver()

    assert second_run.initial().positions == {("a", 0): 22}
    assert spans(second_run, second_run.initial(), end) == planned == {"a-0": list(range(10, 15))}


def test_an_empty_first_batch_is_replayed_as_an_empty_one(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    first_run = driver()
    start = first_run.initial()
    end = first_run.latest(start, is_limited=False)
    fill(store, 0, 7)
    second_run = driver()

    replayed = spans(second_run, second_run.initial(), end)
    following = second_run.latest(end, is_limited=False)

    assert replayed == {}
    assert spans(second_run, end, following) == {"a-0": list(range(7))}


def test_batches_follow_each_other_without_gap_and_end_where_nothing_is_left(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a", partitions=2)
    fill(store, 0, 25)
    fill(store, 1, 5)
    stream = driver(startingOffsets="earliest", maxOffsetsPerTrigger="12")
    read: list[dict[str, list[int]]] = []

    offset = stream.initial()
    while (end := stream.latest(offset, is_limited=True)) is not offset:
        read.append(spans(stream, offset, end))
        offset = end

    assert [sum(map(len, batch.values())) for batch in read] == [12, 12, 6]
    assert [n for batch in read for n in batch.get("a-0", [])] == list(range(25))
    assert [n for batch in read for n in batch.get("a-1", [])] == list(range(5))


def test_everything_is_taken_at_once_when_spark_asks_for_it(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    fill(store, 0, 25)
    stream = driver(startingOffsets="earliest", maxOffsetsPerTrigger="2")

    end = stream.latest(stream.initial(), is_limited=False)

    assert end.positions == {("a", 0): 25}


def test_a_limit_in_bytes_is_kept_to_within_a_batch_or_so(store: Store, driver: Opener) -> None:
    store.create_topic("a", partitions=2, config={"segment.records": "5"})
    for _ in range(100):
        fill(store, 0, 1, size=1000)
        fill(store, 1, 1, size=1000)
    stream = driver(startingOffsets="earliest", maxBytesPerTrigger="50000")
    sizes: list[int] = []

    offset = stream.initial()
    while (end := stream.latest(offset, is_limited=True)) is not offset:
        sizes.append(sum(map(len, spans(stream, offset, end).values())))
        offset = end

    assert sum(sizes) == 200
    assert 4 <= len(sizes) <= 8
    assert max(sizes) <= 60


def test_both_limits_hold(store: Store, driver: Opener) -> None:
    store.create_topic("a", config={"segment.records": "5"})
    for _ in range(50):
        fill(store, 0, 1, size=1000)
    start_options = {"startingOffsets": "earliest", "maxBytesPerTrigger": "20000"}

    few_offsets = driver(maxOffsetsPerTrigger="3", **start_options)
    few_bytes = driver(maxOffsetsPerTrigger="45", **start_options)

    assert few_offsets.latest(few_offsets.initial(), is_limited=True).positions["a", 0] == 3
    assert few_bytes.latest(few_bytes.initial(), is_limited=True).positions["a", 0] <= 25


def test_a_batch_waits_for_enough_records_but_not_for_ever(
    store: Store, driver: Opener, clock: ManualClock
) -> None:
    store.create_topic("a")
    fill(store, 0, 3)
    stream = driver(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1m")

    first = stream.latest(stream.initial(), is_limited=True)
    fill(store, 0, 4)
    too_few = stream.latest(first, is_limited=True)
    fill(store, 0, 1)
    enough = stream.latest(too_few, is_limited=True)
    fill(store, 0, 1)
    early = stream.latest(enough, is_limited=True)
    clock.advance(60_000)
    late = stream.latest(early, is_limited=True)

    assert first.positions["a", 0] == 3  # nothing was ever read: no reason to wait
    assert too_few is first
    assert enough.positions["a", 0] == 8
    assert early is enough
    assert late.positions["a", 0] == 9


def test_a_frozen_stream_ends_at_what_was_there(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    fill(store, 0, 10)
    stream = driver(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    stream.freeze()
    start = stream.initial()
    fill(store, 0, 10)
    store.alter_topic("a", partitions=2)
    fill(store, 1, 3)

    first = stream.latest(start, is_limited=True)
    second = stream.latest(first, is_limited=True)
    third = stream.latest(second, is_limited=True)

    assert first.positions == {("a", 0): 6}
    assert second.positions == {("a", 0): 10}
    assert third is second


def test_a_frozen_stream_that_starts_at_the_latest_reads_nothing(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a")
    fill(store, 0, 10)
    stream = driver()
    stream.freeze()
    fill(store, 0, 10)

    start = stream.initial()

    assert start.positions == {("a", 0): 10}
    assert stream.latest(start, is_limited=False) is start


def test_a_new_partition_is_read_from_its_beginning(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    stream = driver()
    start = stream.initial()
    store.alter_topic("a", partitions=2)
    fill(store, 1, 3)

    end = stream.latest(start, is_limited=False)

    assert spans(stream, start, end) == {"a-1": [0, 1, 2]}


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a1")
    stream = driver(subscribePattern="^a")
    start = stream.initial()
    store.create_topic("a2")
    store.create_topic("b")
    fill(store, 0, 2, topic="a2")
    fill(store, 0, 2, topic="b")

    end = stream.latest(start, is_limited=False)

    assert spans(stream, start, end) == {"a2-0": [0, 1]}
    assert set(end.topic_ids) == {"a1", "a2"}


def test_a_new_partition_whose_beginning_is_gone_is_data_loss(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    streams = [driver(), driver(failOnDataLoss="false")]
    starts = [stream.initial() for stream in streams]
    store.alter_topic("a", partitions=2)
    fill(store, 1, 5)
    store.topic("a").partition(1).delete_before(3)

    with pytest.raises(DataLossError, match="begins at offset 3"):
        streams[0].latest(starts[0], is_limited=False)
    end = streams[1].latest(starts[1], is_limited=False)

    assert spans(streams[1], starts[1], end) == {"a-1": [3, 4]}


def test_a_recreated_topic_is_noticed_though_it_has_grown_past_the_old_one(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a")
    fill(store, 0, 5)
    streams = [driver(), driver(failOnDataLoss="false")]
    starts = [stream.initial() for stream in streams]
    store.delete_topic("a")
    store.create_topic("a")
    fill(store, 0, 8)

    with pytest.raises(DataLossError, match="recreated"):
        streams[0].latest(starts[0], is_limited=False)
    end = streams[1].latest(starts[1], is_limited=False)

    assert spans(streams[1], starts[1], end) == {"a-0": list(range(8))}
    assert end.topic_ids != starts[1].topic_ids


def test_a_batch_that_was_planned_on_the_old_topic_reads_nothing_of_the_new_one(
    store: Store, driver: Opener
) -> None:
    store.create_topic("a")
    first_run = driver()
    start = first_run.initial()
    fill(store, 0, 5)
    end = first_run.latest(start, is_limited=False)
    store.delete_topic("a")
    store.create_topic("a")
    fill(store, 0, 8)

    with pytest.raises(DataLossError, match="recreated"):
        spans(driver(), start, end)
    assert spans(driver(failOnDataLoss="false"), start, end) == {}


def test_a_deleted_topic_is_data_loss(store: Store, driver: Opener) -> None:
    store.create_topic("a1")
    store.create_topic("a2")
    fill(store, 0, 5, topic="a1")
    strict, lenient = (
        driver(subscribePattern="^a", startingOffsets="earliest", failOnDataLoss=fails)
        for fails in ("true", "false")
    )
    starts = [stream.initial() for stream in (strict, lenient)]
    planned = lenient.latest(starts[1], is_limited=False)
    store.delete_topic("a1")

    with pytest.raises(DataLossError, match=r"a1-0: .*it was deleted"):
        strict.latest(starts[0], is_limited=False)
    with pytest.raises(DataLossError, match=r"a1-0: was deleted before offset 0"):
        spans(strict, starts[0], planned)
    end = lenient.latest(starts[1], is_limited=False)

    assert set(end.positions) == {("a2", 0)}
    assert spans(lenient, starts[1], planned) == {}


def test_records_deleted_before_they_were_read_are_data_loss(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    fill(store, 0, 10)
    strict, lenient = (
        driver(startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    start = strict.initial()
    end = strict.latest(start, is_limited=False)
    store.topic("a").partition(0).delete_before(4)

    with pytest.raises(DataLossError, match=r"offsets from 0 to 4 .*retention.ms") as lost:
        spans(strict, start, end)

    assert "failOnDataLoss=false" in str(lost.value)
    assert spans(lenient, start, end) == {"a-0": list(range(4, 10))}


def test_a_log_that_ends_before_what_was_read_is_data_loss(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    for _ in range(10):
        fill(store, 0, 1)
    strict, lenient = driver(), driver(failOnDataLoss="false")
    start = strict.initial()
    store.topic("a").partition(0).truncation.truncate_to(6)

    with pytest.raises(DataLossError, match="ends at 6"):
        strict.latest(start, is_limited=False)
    end = lenient.latest(start, is_limited=False)
    fill(store, 0, 1)
    following = lenient.latest(end, is_limited=False)

    assert end.positions == {("a", 0): 6}
    assert spans(lenient, start, end) == {}
    assert spans(lenient, end, following) == {"a-0": [6]}


def test_only_assigned_partitions_are_read(store: Store, driver: Opener) -> None:
    store.create_topic("a", partitions=3)
    for number in range(3):
        fill(store, number, 2)
    stream = driver(assign='{"a": [0, 2]}', startingOffsets="earliest")
    start = stream.initial()

    end = stream.latest(start, is_limited=False)

    assert spans(stream, start, end) == {"a-0": [0, 1], "a-2": [0, 1]}


def test_what_is_newest_is_reported_whatever_the_limits_are(store: Store, driver: Opener) -> None:
    store.create_topic("a")
    fill(store, 0, 10)
    stream = driver(startingOffsets="earliest", maxOffsetsPerTrigger="2")

    stream.latest(stream.initial(), is_limited=True)

    assert stream.newest is not None
    assert stream.newest.positions == {("a", 0): 10}


def test_a_group_cannot_be_told_of_an_archive(tmp_path: Path) -> None:
    options = SourceOptions.for_stream(
        {"path": f"file://{tmp_path}", "subscribe": "a", "group": "g"}
    )

    with pytest.raises(ConfigError, match="group = g"):
        StreamDriver.open(options, options.paths)


def test_a_store_replaced_by_an_older_copy_that_has_grown_is_data_loss(
    tmp_path: Path, clock: ManualClock
) -> None:
    path, copy = tmp_path / "data", tmp_path / "copy"
    with cordwood.open(path) as store:
        store.create_topic("a")
        fill(store, 0, 3)
        store.snapshot(copy)
        fill(store, 0, 4)
        stream = open_stream(path, clock)
        first = stream.latest(stream.initial(), is_limited=False)
        stream.close()
    shutil.rmtree(path)
    copy.rename(path)
    with cordwood.open(path) as store:
        store.topic("a").append_many([(None, b"other")] * 20, partition=0)

        checkpoint = StreamOffset.from_json(json.loads(json.dumps(first.to_json())))
        stream = open_stream(path, clock)
        with pytest.raises(DataLossError, match="replaced by an older copy"):
            stream.latest(checkpoint, is_limited=False)
        with pytest.raises(DataLossError, match="replaced by an older copy"):
            stream.tasks(checkpoint, replace(checkpoint, positions={("a", 0): 20}))
        stream.close()
        lenient = open_stream(path, clock, failOnDataLoss="false")
        assert lenient.latest(checkpoint, is_limited=False).positions["a", 0] == 23
        lenient.close()


def test_a_position_keeps_its_mark_through_rolls_retention_and_restarts(
    tmp_path: Path, clock: ManualClock
) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("a", config={"segment.records": "3"})
        fill(store, 0, 8)
        stream = open_stream(tmp_path, clock)
        first = stream.latest(stream.initial(), is_limited=False)
        assert list(first.marks) == [("a", 0)]
        fill(store, 0, 8)
        second = stream.latest(first, is_limited=False)
        store.topic("a").partition(0).delete_before(16)
        stream.close()
    with cordwood.open(tmp_path) as store:
        stream = open_stream(tmp_path, clock)

        assert stream.latest(second, is_limited=False) is second
        stream.close()


def open_stream(path: Path, clock: ManualClock, **given: str) -> StreamDriver:
    choice = {"path": str(path), "subscribe": "a", "startingOffsets": "earliest"}
    options = SourceOptions.for_stream({**choice, **given})
    return StreamDriver(options, open_source(options.paths, options.topics.wants), clock, None)
