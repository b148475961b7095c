"""DeleteTopics and DeleteRecords: what goes, what stays, and what is said about it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.topic_deletion import TopicDeletionHandler
from cordwood.broker.net.requests.request import Deferred, RequestContext, RunsOn
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields, decode_request, encode_request
from cordwood.protocol.request_header import RequestHeader
from fakes.bench_cluster import BenchCluster
from fakes.handler_calls import CONFIG, HandlerCalls, versions
from fakes.replication_bench import ReplicationBench
from fakes.sessions import LOCAL_SESSION
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

DELETE = ApiKey.DELETE_TOPICS
RECORDS = ApiKey.DELETE_RECORDS


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("events")
        yield store


def client(store: Store, config: BrokerConfig = CONFIG) -> HandlerCalls:
    handler = TopicDeletionHandler(store=store, table=PartitionTable(store), config=config)
    return HandlerCalls([handler])


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return client(store)


# --- DeleteTopics -------------------------------------------------------------------------------


def delete(call: HandlerCalls, *topics: dict[str, Any]) -> list[tuple[Any, int]]:
    answer = call(DELETE, {"topics": list(topics)})
    return [(response.name, response.error_code) for response in answer.responses]


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_is_deleted_by_name_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    request = {"topics": [{"name": "orders"}]} if version >= 6 else {"topic_names": ["orders"]}

    answer = call(DELETE, request, version=version)

    [response] = answer.responses
    assert (response.name, response.error_code) == ("orders", ErrorCode.none)
    assert store.topics() == ["events"]


def test_a_topic_is_deleted_by_its_id(call: HandlerCalls, store: Store) -> None:
    topic_id = store.topic("orders").topic_id

    answer = call(DELETE, {"topics": [{"name": None, "topic_id": topic_id}]})

    [response] = answer.responses
    assert (response.name, response.topic_id, response.error_code) == (
        "orders",
        topic_id,
        ErrorCode.none,
    )
    assert store.topics() == ["events"]


def test_what_is_not_there_is_told_by_the_way_it_was_named(call: HandlerCalls) -> None:
    unknown = uuid.uuid4()

    answer = call(DELETE, {"topics": [{"name": "nope"}, {"name": None, "topic_id": unknown}]})

    assert [(r.name, r.topic_id, r.error_code) for r in answer.responses] == [
        ("nope", uuid.UUID(int=0), ErrorCode.unknown_topic_or_partition),
        (None, unknown, ErrorCode.unknown_topic_id),
    ]
    assert all(r.error_message for r in answer.responses)


def test_each_topic_is_answered_for_itself(call: HandlerCalls, store: Store) -> None:
    found = delete(call, {"name": "nope"}, {"name": "events"}, {"name": "orders"})

    assert found == [
        ("nope", ErrorCode.unknown_topic_or_partition),
        ("events", ErrorCode.none),
        ("orders", ErrorCode.none),
    ]
    assert store.topics() == []


def test_a_topic_named_twice_stays(call: HandlerCalls, store: Store) -> None:
    topic_id = store.topic("events").topic_id

    found = delete(
        call,
        {"name": "orders"},
        {"name": "orders"},
        {"name": "events"},
        {"name": None, "topic_id": topic_id},
    )

    assert found == [
        ("orders", ErrorCode.invalid_request),
        ("events", ErrorCode.invalid_request),  # once, with its name and its id, as in Kafka
    ]
    assert store.topics() == ["events", "orders"]


def test_a_topic_is_named_in_one_way(call: HandlerCalls, store: Store) -> None:
    topic_id = store.topic("orders").topic_id

    found = delete(call, {"name": "orders", "topic_id": topic_id}, {"name": None})

    assert [code for _, code in found] == [ErrorCode.invalid_request] * 2
    assert "orders" in store.topics()


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.invalid_request),
        (3, ErrorCode.topic_deletion_disabled),
        (5, ErrorCode.topic_deletion_disabled),
    ],
)
def test_a_broker_may_be_told_not_to_delete(store: Store, version: int, code: int) -> None:
    call = client(store, BrokerConfig(delete_topic_enable=False))

    answer = call(DELETE, {"topic_names": ["orders"]}, version=version)

    assert [r.error_code for r in answer.responses] == [code]
    assert "orders" in store.topics()


def test_internal_topics_stay(call: HandlerCalls, store: Store) -> None:
    store.group("g").commit({("orders", 0): 0})

    found = delete(call, {"name": "__consumer_offsets"})

    assert found == [("__consumer_offsets", ErrorCode.policy_violation)]
    assert "__consumer_offsets" in store.topics(include_internal=True)


# --- DeleteRecords ------------------------------------------------------------------------------


def fill(store: Store, topic: str = "orders", partition: int = 0, count: int = 10) -> None:
    log = store.topic(topic).partition(partition)
    log.append_many([(b"k", b"v%d" % number) for number in range(count)])


def records(call: HandlerCalls, topic: str, **offsets: int) -> list[Fields]:
    partitions = [{"partition_index": int(n[1:]), "offset": o} for n, o in offsets.items()]
    answer = call(RECORDS, {"topics": [{"name": topic, "partitions": partitions}]})
    return list(answer.topics[0].partitions)


@pytest.mark.parametrize("version", versions(RECORDS))
def test_records_before_an_offset_go_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    fill(store)
    topic = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 4}]}

    answer = call(RECORDS, {"topics": [topic]}, version=version)

    [partition] = answer.topics[0].partitions
    assert (partition.error_code, partition.low_watermark) == (ErrorCode.none, 4)
    assert store.topic("orders").partition(0).start_offset == 4


def test_minus_one_is_everything(call: HandlerCalls, store: Store) -> None:
    fill(store)

    [partition] = records(call, "orders", p0=-1)

    assert (partition.error_code, partition.low_watermark) == (ErrorCode.none, 10)
    assert store.topic("orders").partition(0).start_offset == 10


def test_what_is_gone_already_is_no_error(call: HandlerCalls, store: Store) -> None:
    fill(store)
    records(call, "orders", p0=6)

    [partition] = records(call, "orders", p0=3)

    assert (partition.error_code, partition.low_watermark) == (ErrorCode.none, 6)


@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_out_of_range_deletes_nothing(
    call: HandlerCalls, store: Store, offset: int
) -> None:
    fill(store)

    [partition] = records(call, "orders", p0=offset)

    assert (partition.error_code, partition.low_watermark) == (ErrorCode.offset_out_of_range, -1)
    assert store.topic("orders").partition(0).start_offset == 0


def test_each_partition_is_answered_for_itself(call: HandlerCalls, store: Store) -> None:
    fill(store)
    fill(store, partition=1)

    found = records(call, "orders", p0=2, p9=0, p1=99)

    assert [(p.partition_index, p.error_code) for p in found] == [
        (0, ErrorCode.none),
        (9, ErrorCode.unknown_topic_or_partition),
        (1, ErrorCode.offset_out_of_range),
    ]


def test_a_topic_that_is_not_there(call: HandlerCalls) -> None:
    [partition] = records(call, "nope", p0=0)

    assert partition.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.policy_violation),
        ("compact,delete", ErrorCode.none),
        ("", ErrorCode.none),
    ],
)
def test_compacted_topics_keep_their_records(
    call: HandlerCalls, store: Store, policy: str, code: int
) -> None:
    store.create_topic("table", config={"cleanup.policy": policy})
    fill(store, "table")

    [partition] = records(call, "table", p0=5)

    assert partition.error_code == code


def test_internal_topics_keep_their_records(call: HandlerCalls, store: Store) -> None:
    store.group("g").commit({("orders", 0): 0})

    [partition] = records(call, "__consumer_offsets", p0=-1)

    assert partition.error_code == ErrorCode.invalid_topic_exception


def test_a_partition_named_twice_is_left_alone(call: HandlerCalls, store: Store) -> None:
    fill(store)
    twice = [{"partition_index": 0, "offset": offset} for offset in (3, 5)]

    answer = call(RECORDS, {"topics": [{"name": "orders", "partitions": twice}]})

    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [ErrorCode.invalid_request] * 2
    assert store.topic("orders").partition(0).start_offset == 0


def test_all_of_it_is_work_for_the_workers(call: HandlerCalls) -> None:
    assert {route.runs_on for route in call.routes.values()} == {RunsOn.WORKER}


@pytest.mark.parametrize("is_led_on", [True, False])
def test_in_a_cluster_the_answer_waits_until_the_other_replicas_have_deleted_too(
    is_led_on: bool,
) -> None:
    bench = ReplicationBench()
    bench.lead()
    end = bench.append(b"a", b"b", b"c")
    for node in (2, 3):
        bench.fetch_from(node, end)
    table = PartitionTable(bench.store, BenchCluster(bench))
    handler = TopicDeletionHandler(store=bench.store, table=table, config=CONFIG)
    version = versions(RECORDS)[-1]
    partition = {"partition_index": 0, "offset": 2}
    request = {"topics": [{"name": "events", "partitions": [partition]}], "timeout": 1000}
    fields: Any = decode_request(RECORDS, version, encode_request(RECORDS, version, request))
    header = RequestHeader(RECORDS, version, 5, "test")

    later = handler.delete_records(RequestContext(header=header, session=LOCAL_SESSION), fields)

    assert isinstance(later, Deferred)
    bench.fetch_from(2, 3, log_start=2)
    assert not later.is_done
    if is_led_on:
        bench.fetch_from(3, 3, log_start=2)
    else:
        bench.follow(2)
    answer: Any = later.response
    [found] = answer["topics"][0]["partitions"]
    expected = (2, 0) if is_led_on else (-1, ErrorCode.not_leader_or_follower)
    assert (found["low_watermark"], found["error_code"]) == expected
    bench.store.close()
