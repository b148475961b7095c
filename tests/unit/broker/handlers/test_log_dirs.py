"""DescribeLogDirs: the data directories and what lies in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.log_dirs import LogDirsHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from fakes.handler_calls import HandlerCalls, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

DIRS = ApiKey.DESCRIBE_LOG_DIRS
CAPACITY = 64 * 1024 * 1024


@pytest.fixture
def store() -> Iterator[Store]:
    fs = SimulatedFileSystem(capacity_bytes=CAPACITY)
    with open_store(fs, directories=("/one", "/two")) as store:
        store.create_topic("orders", partitions=3)
        store.create_topic("events")
        store.topic("orders").partition(1).append(b"x" * 500)
        yield store


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return HandlerCalls([LogDirsHandler(store)])


def found_in(answer: Fields) -> dict[tuple[str, int], tuple[str, int]]:
    """Where each partition lies and how large it is."""
    return {
        (topic.name, partition.partition_index): (result.log_dir, partition.partition_size)
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", versions(DIRS))
def test_every_partition_is_in_one_directory_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    answer = call(DIRS, {"topics": None}, version=version)

    assert answer.error_code == ErrorCode.none
    assert [result.log_dir for result in answer.results] == ["/one", "/two"]
    places = found_in(answer)
    assert set(places) == {("orders", 0), ("orders", 1), ("orders", 2), ("events", 0)}
    for topic, number in places:
        directory, size = places[topic, number]
        log = store.topic(topic).partition(number)
        assert log.directory == f"{directory}/{topic}-{number}"
        assert size == log.size_bytes
    for result in answer.results:
        for topic in result.topics:
            assert all((p.offset_lag, p.is_future_key) == (0, False) for p in topic.partitions)
    if version >= 4:
        assert all(result.total_bytes == CAPACITY for result in answer.results)
        assert all(0 < result.usable_bytes < CAPACITY for result in answer.results)
        assert not any(result.is_cordoned for result in answer.results)


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        ([{"topic": "orders", "partitions": [0, 2, 9]}], {("orders", 0), ("orders", 2)}),
        ([{"topic": "nope", "partitions": [0]}], set()),
        ([], set()),
    ],
)
def test_only_the_partitions_asked_for_are_described(
    call: HandlerCalls, topics: list[dict[str, Any]], found: set[tuple[str, int]]
) -> None:
    answer = call(DIRS, {"topics": topics})

    assert set(found_in(answer)) == found
    assert len(answer.results) == 2


def test_a_directory_that_cannot_be_used_is_told_and_hides_no_other() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs, directories=("/one", "/two")):
        pass
    fs.fail_next("lock", OSError(5, "broken"), path_ends="/two")

    with open_store(fs, directories=("/one", "/two")) as store:
        answer = HandlerCalls([LogDirsHandler(store)])(DIRS, {"topics": None})

    assert [(result.log_dir, result.error_code) for result in answer.results] == [
        ("/one", ErrorCode.none),
        ("/two", ErrorCode.kafka_storage_error),
    ]


def test_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert call.routes[DIRS].runs_on is RunsOn.WORKER
