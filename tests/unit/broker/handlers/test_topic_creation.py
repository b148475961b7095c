"""CreateTopics and CreatePartitions: what is made, what is refused, and with which code."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.topic_creation import TopicCreationHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from fakes.handler_calls import CONFIG, IDENTITY, HandlerCalls, dynamic, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

CREATE = ApiKey.CREATE_TOPICS
GROW = ApiKey.CREATE_PARTITIONS


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic("orders", partitions=2)
        yield store


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return HandlerCalls(
        [TopicCreationHandler(store=store, identity=IDENTITY, dynamic=dynamic(store))]
    )


def wanted(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}


def configs(**texts: str | None) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "."), "value": text} for name, text in texts.items()]


def create(call: HandlerCalls, *topics: dict[str, Any], **fields: Any) -> dict[str, Fields]:
    answer = call(CREATE, {"topics": list(topics), **fields})
    return {topic.name: topic for topic in answer.topics}


def codes(found: dict[str, Fields]) -> dict[str, int]:
    return {name: topic.error_code for name, topic in found.items()}


# --- CreateTopics -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(CREATE))
def test_a_topic_is_created_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    topic = wanted("new", num_partitions=3, configs=configs(retention_ms="1000"))

    answer = call(CREATE, {"topics": [topic]}, version=version)

    [result] = answer.topics
    assert (result.name, result.error_code, result.error_message) == ("new", ErrorCode.none, None)
    made = store.topic("new")
    assert (made.partition_count, made.config.retention_ms) == (3, 1000)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        sources = {c.name: (c.value, c.config_source) for c in result.configs}
        assert sources["retention.ms"] == ("1000", 1)
        assert sources["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert result.topic_id == made.topic_id


def test_minus_one_is_the_brokers_choice(call: HandlerCalls, store: Store) -> None:
    create(call, wanted("new", num_partitions=-1, replication_factor=-1))

    assert store.topic("new").partition_count == CONFIG.num_partitions


def test_only_checking_creates_nothing(call: HandlerCalls, store: Store) -> None:
    found = create(
        call,
        wanted("new", num_partitions=4, configs=configs(cleanup_policy="compact")),
        wanted("orders"),
        wanted("bad", configs=configs(retention_ms="soon")),
        validate_only=True,
    )

    assert codes(found) == {
        "new": ErrorCode.none,
        "orders": ErrorCode.topic_already_exists,
        "bad": ErrorCode.invalid_config,
    }
    assert found["new"].num_partitions == 4
    assert {c.name: c.value for c in found["new"].configs}["cleanup.policy"] == "compact"
    assert store.topics() == ["orders"]


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"num_partitions": 0}, ErrorCode.invalid_partitions, "at least 1"),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions, "at least 1"),
        ({"num_partitions": 10_001}, ErrorCode.invalid_partitions, "10000"),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor, "one broker"),
        ({"replication_factor": 3}, ErrorCode.invalid_replication_factor, "one broker"),
        ({"configs": configs(no_such_key="1")}, ErrorCode.invalid_config, "no.such.key"),
        ({"configs": configs(segment_bytes="1")}, ErrorCode.invalid_config, "segment.bytes = 1"),
        ({"configs": configs(retention_ms=None)}, ErrorCode.invalid_config, "no value"),
        (
            {"configs": [*configs(flush_ms="1"), *configs(flush_ms="2")]},
            ErrorCode.invalid_config,
            "twice",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    call: HandlerCalls, store: Store, fields: dict[str, Any], code: int, says: str
) -> None:
    found = create(call, wanted("new", **fields))

    assert found["new"].error_code == code
    assert says in found["new"].error_message
    assert store.topics() == ["orders"]


@pytest.mark.parametrize("name", ["", ".", "a/b", "x" * 250, "__consumer_offsets"])
def test_a_name_that_cannot_be_is_refused(call: HandlerCalls, name: str) -> None:
    assert codes(create(call, wanted(name))) == {name: ErrorCode.invalid_topic_exception}


def test_a_name_that_collides_is_refused(call: HandlerCalls) -> None:
    create(call, wanted("a.b"))

    assert codes(create(call, wanted("a_b"))) == {"a_b": ErrorCode.invalid_topic_exception}


def test_each_topic_is_answered_for_itself(call: HandlerCalls, store: Store) -> None:
    found = create(call, wanted("one"), wanted("orders"), wanted("two"))

    assert codes(found) == {
        "one": ErrorCode.none,
        "orders": ErrorCode.topic_already_exists,
        "two": ErrorCode.none,
    }
    assert store.topics() == ["one", "orders", "two"]


def test_a_topic_named_twice_is_refused_once(call: HandlerCalls, store: Store) -> None:
    answer = call(CREATE, {"topics": [wanted("new"), wanted("new", num_partitions=2), wanted("b")]})

    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("new", ErrorCode.invalid_request),
        ("b", ErrorCode.none),
    ]
    assert store.topics() == ["b", "orders"]


def assigned(*brokers: list[int], **fields: Any) -> dict[str, Any]:
    assignments = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(brokers)]
    return {
        "name": "new",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        **fields,
    }


def test_partitions_may_be_assigned_to_the_one_broker(call: HandlerCalls, store: Store) -> None:
    found = create(call, assigned([7], [7], [7]))

    assert codes(found) == {"new": ErrorCode.none}
    assert store.topic("new").partition_count == 3


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned([8]), ErrorCode.invalid_replica_assignment),
        (assigned([7, 7]), ErrorCode.invalid_replica_assignment),
        (assigned([]), ErrorCode.invalid_replica_assignment),
        (assigned([7], num_partitions=1), ErrorCode.invalid_request),
        (assigned([7], replication_factor=1), ErrorCode.invalid_request),
        (
            assigned(assignments=[{"partition_index": 1, "broker_ids": [7]}]),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            assigned(assignments=[{"partition_index": 0, "broker_ids": [7]}] * 2),
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
def test_no_other_assignment_is_possible(
    call: HandlerCalls, topic: dict[str, Any], code: int
) -> None:
    assert codes(create(call, topic)) == {"new": code}


def test_a_disk_that_fails_is_told_and_leaves_nothing() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs) as store:
        call = HandlerCalls(
            [TopicCreationHandler(store=store, identity=IDENTITY, dynamic=dynamic(store))]
        )
        fs.fail_next("make_directory", OSError(errno.EIO, "broken"))

        found = create(call, wanted("new"))

        assert codes(found) == {"new": ErrorCode.kafka_storage_error}
        assert store.topics() == []


# --- CreatePartitions ---------------------------------------------------------------------------


def grow(call: HandlerCalls, *topics: dict[str, Any], **fields: Any) -> dict[str, Fields]:
    answer = call(GROW, {"topics": [{"assignments": None, **t} for t in topics], **fields})
    return {result.name: result for result in answer.results}


@pytest.mark.parametrize("version", versions(GROW))
def test_a_topic_grows_in_every_version(call: HandlerCalls, store: Store, version: int) -> None:
    topic = {"name": "orders", "count": 5, "assignments": None}

    answer = call(GROW, {"topics": [topic]}, version=version)

    [result] = answer.results
    assert (result.name, result.error_code, result.error_message) == (
        "orders",
        ErrorCode.none,
        None,
    )
    assert store.topic("orders").partition_count == 5


@pytest.mark.parametrize("count", [2, 1, 0, -1, 10_001])
def test_it_must_grow_and_not_without_end(call: HandlerCalls, store: Store, count: int) -> None:
    found = grow(call, {"name": "orders", "count": count})

    assert found["orders"].error_code == ErrorCode.invalid_partitions
    assert found["orders"].error_message
    assert store.topic("orders").partition_count == 2


@pytest.mark.parametrize("count", [3, 10_001])
def test_only_checking_adds_nothing(call: HandlerCalls, store: Store, count: int) -> None:
    found = grow(call, {"name": "orders", "count": count}, validate_only=True)

    expected = ErrorCode.none if count == 3 else ErrorCode.invalid_partitions
    assert codes(found) == {"orders": expected}
    assert store.topic("orders").partition_count == 2


def test_topics_that_cannot_grow_are_told_one_by_one(call: HandlerCalls, store: Store) -> None:
    store.group("g").commit({("orders", 0): 0})

    found = grow(
        call,
        {"name": "missing", "count": 3},
        {"name": "__consumer_offsets", "count": 3},
        {"name": "orders", "count": 3},
    )

    assert codes(found) == {
        "missing": ErrorCode.unknown_topic_or_partition,
        "__consumer_offsets": ErrorCode.invalid_partitions,
        "orders": ErrorCode.none,
    }


def test_a_topic_that_is_to_grow_twice_does_not(call: HandlerCalls, store: Store) -> None:
    topics = [{"name": "orders", "count": n, "assignments": None} for n in (3, 4)]

    answer = call(GROW, {"topics": topics})

    assert [(r.name, r.error_code) for r in answer.results] == [
        ("orders", ErrorCode.invalid_request)
    ]
    assert store.topic("orders").partition_count == 2


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ([[7], [7]], ErrorCode.none),
        ([[7]], ErrorCode.invalid_replica_assignment),
        ([[7], [8]], ErrorCode.invalid_replica_assignment),
    ],
)
def test_new_partitions_may_be_assigned_to_the_one_broker(
    call: HandlerCalls, assignments: list[list[int]], code: int
) -> None:
    topic = {
        "name": "orders",
        "count": 4,
        "assignments": [{"broker_ids": ids} for ids in assignments],
    }

    assert codes(grow(call, topic)) == {"orders": code}


def test_all_of_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert {route.runs_on for route in call.routes.values()} == {RunsOn.WORKER}
