"""From boundaries to offsets and tasks, on a store that lies there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError, DataLossError
from cordwood.quantities import TimestampMs
from cordwood.spark.source.opened_source import OpenedSource, open_source
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import (
    OffsetResolver,
    check_named,
    plan_ranges,
    survey,
)

NOW_MS = TimestampMs(100_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Topic a: partition 0 with offsets 0 to 9 at 1 s to 10 s, partition 1 with 3 to 5."""
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a", partitions=2)
        records = [cordwood.Record(value=b"v", timestamp_ms=(n + 1) * 1000) for n in range(10)]
        topic.append_many(records, partition=0)
        topic.append_many(records[:5], partition=1)
        topic.partition(1).delete_before(3)
        store.create_topic("b").append(b"v")
    return tmp_path


@pytest.fixture
def source(path: Path) -> Iterator[OpenedSource]:
    with open_source([str(path)], lambda topic, partition: topic == "a") as opened:
        yield opened


def resolve(source: OpenedSource, **options: str) -> tuple[list[int], list[int]]:
    given = {"path": "d", "subscribe": "a", **options}
    resolver = OffsetResolver(SourceOptions.for_batch(given), survey(source), NOW_MS)
    return list(resolver.starts().values()), list(resolver.stops().values())


@pytest.mark.parametrize(
    ("options", "starts", "stops"),
    [
        ({}, [0, 3], [10, 5]),
        ({"startingOffsets": '{"a": {"0": 4, "1": -2}}'}, [4, 3], [10, 5]),
        ({"endingOffsets": '{"a": {"0": 4, "1": -1}}'}, [0, 3], [4, 5]),
        ({"startingTimestamp": "4500"}, [4, 4], [10, 5]),
        ({"startingTimestamp": "5000", "endingTimestamp": "7000"}, [4, 4], [6, 5]),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 9000, "1": 0}}'}, [8, 3], [10, 5]),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 2000, "1": 99000}}'}, [0, 3], [1, 5]),
        ({"startingTimestamp": "-96s"}, [3, 3], [10, 5]),
        (
            {"startingTimestamp": "8000", "startingOffsetsByTimestampStrategy": "latest"},
            [7, 5],
            [10, 5],
        ),
    ],
)
def test_boundaries_become_offsets(
    source: OpenedSource, options: dict[str, str], starts: list[int], stops: list[int]
) -> None:
    assert resolve(source, **options) == (starts, stops)


def test_no_record_at_or_after_the_starting_time_is_an_error_that_names_the_way_out(
    source: OpenedSource,
) -> None:
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy=latest") as refused:
        resolve(source, startingTimestamp="8000")

    assert refused.value.key == "startingTimestamp"
    assert "a-1" in refused.value.reason


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"startingOffsets": '{"a": {"0": 1}}'}, "every partition to read; missing a-1"),
        (
            {"startingOffsets": '{"a": {"0": 1, "1": 4, "7": 0}}'},
            "a partition that the query does not read: a-7",
        ),
        ({"startingOffsets": '{"a": {"0": 11, "1": 4}}'}, "a-0 ends at offset 10"),
    ],
)
def test_offsets_must_fit_what_is_read(
    source: OpenedSource, options: dict[str, str], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        resolve(source, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"a": {"0": 0, "1": 1}}'},
        {"endingOffsets": '{"a": {"0": 11, "1": 5}}'},
        {"startingOffsets": '{"a": {"0": 0, "1": 3}, "@ids": {"a": "another"}}'},
    ],
)
def test_offsets_that_are_gone_are_data_loss(source: OpenedSource, options: dict[str, str]) -> None:
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        resolve(source, **options)

    assert resolve(source, failOnDataLoss="false", **options) == ([0, 3], [10, 5])


def test_a_topic_that_is_not_there_is_named_with_those_that_are(path: Path) -> None:
    options = SourceOptions.for_batch({"path": str(path), "subscribe": "c"})
    with open_source([str(path)], options.topics.wants) as source:
        found = survey(source)

        with pytest.raises(ConfigError, match=r"subscribe = c: .* known are: a, b"):
            check_named(source, options.topics, found)


def test_a_partition_that_is_not_there_is_named(path: Path) -> None:
    options = SourceOptions.for_batch({"path": str(path), "assign": '{"a": [0, 2]}'})
    with open_source([str(path)], options.topics.wants) as source:
        found = survey(source)

        with pytest.raises(ConfigError, match="no partition 2"):
            check_named(source, options.topics, found)


def test_a_pattern_that_finds_nothing_is_an_error(path: Path) -> None:
    options = SourceOptions.for_batch({"path": str(path), "subscribePattern": "^x"})
    with open_source([str(path)], options.topics.wants) as source:
        found = survey(source)

        with pytest.raises(ConfigError, match="known are: a, b"):
            check_named(source, options.topics, found)


def test_tasks_say_where_the_log_lies(source: OpenedSource, path: Path) -> None:
    found = survey(source)
    options = SourceOptions.for_batch({"path": "d", "subscribe": "a", "minPartitions": "4"})

    tasks = plan_ranges(found, [(("a", 0), 0, 10), (("a", 1), 3, 5)], options)

    assert len(tasks) >= 4
    assert {task.place.directory for task in tasks} == {str(path / "a-0"), str(path / "a-1")}
    assert {task.place.topic_id for task in tasks} == {found.topic_ids["a"]}


def test_a_search_for_a_time_goes_on_when_segments_are_deleted_under_it(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a", config={"segment.records": "1", "retention.ms": "-1"})
        for n in range(6):
            topic.append(b"v", timestamp_ms=(n + 1) * 1000)
        with open_source([str(tmp_path)], lambda *_: True) as source:
            log = source.look()["a"].logs[0]
            log.view()
            topic.partition(0).delete_before(4)
            store.maintain()

            found = log.offset_for_time(1000)

    assert found == 4
