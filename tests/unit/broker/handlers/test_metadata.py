"""Metadata and its kin: topics, leaders, the one broker; topics that come on being asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.handlers.metadata import MetadataHandler
from cordwood.broker.handlers.topic_partitions import TopicPartitionsHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import Fields
from fakes.handler_calls import CONFIG, IDENTITY, HandlerCalls, InlineExecutor, versions
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

METADATA = ApiKey.METADATA
PARTITIONS = ApiKey.DESCRIBE_TOPIC_PARTITIONS
NO_OPERATIONS = -2147483648
TOPIC_OPERATIONS = 0b110111111000  # Kafka's, without an authorizer
CLUSTER_OPERATIONS = 0b1111110100000


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(SimulatedFileSystem()) as store:
        store.create_topic("orders", partitions=3)
        store.create_topic("events")
        store.group("g").commit({("events", 0): 0})
        yield store


def client(store: Store, config: BrokerConfig = CONFIG) -> HandlerCalls:
    handler = MetadataHandler(
        store=store,
        view=SoleBroker(IDENTITY, store),
        config=config,
        workers=InlineExecutor(),
    )
    pages = TopicPartitionsHandler(SoleBroker(IDENTITY, store), config)
    return HandlerCalls([handler, pages])


@pytest.fixture
def call(store: Store) -> HandlerCalls:
    return client(store)


def named(*names: str) -> dict[str, object]:
    return {"topics": [{"name": name} for name in names]}


def names_of(answer: Fields) -> list[str]:
    return [topic.name for topic in answer.topics]


def without_creation(*names: str) -> dict[str, object]:
    return {**named(*names), "allow_auto_topic_creation": False}


# --- Metadata -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(METADATA))
def test_a_topic_is_described_in_every_version(
    call: HandlerCalls, store: Store, version: int
) -> None:
    answer = call(METADATA, named("orders"), version=version)

    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (7, "broker.example", 9092)
    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.none, "orders", False)
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert partition.error_code == ErrorCode.none
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
            7,
            (7,),
            (7,),
        )
        assert partition.offline_replicas == ()
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert answer.controller_id == 7
    if version >= 2:
        assert answer.cluster_id == "cluster"
    if version >= 10:
        assert topic.topic_id == store.topic("orders").topic_id
    assert topic.topic_authorized_operations == NO_OPERATIONS
    assert answer.cluster_authorized_operations == NO_OPERATIONS


def test_no_topics_meant_all_of_them_once(call: HandlerCalls) -> None:
    answer = call(METADATA, {"topics": []}, version=0)

    assert names_of(answer) == ["__consumer_offsets", "events", "orders"]


@pytest.mark.parametrize("version", [1, 13])
def test_now_no_topics_means_none_and_null_means_all(call: HandlerCalls, version: int) -> None:
    nothing = call(METADATA, {"topics": []}, version=version)
    everything = call(METADATA, {"topics": None}, version=version)

    assert names_of(nothing) == []
    assert names_of(everything) == ["__consumer_offsets", "events", "orders"]
    assert [topic.is_internal for topic in everything.topics] == [True, False, False]


def test_topics_come_in_the_order_asked_for_and_once(call: HandlerCalls) -> None:
    answer = call(METADATA, named("orders", "events", "orders"))

    assert names_of(answer) == ["orders", "events"]


def test_a_topic_is_found_by_its_id(call: HandlerCalls, store: Store) -> None:
    topic_id = store.topic("orders").topic_id

    answer = call(METADATA, {"topics": [{"name": None, "topic_id": topic_id}]}, version=12)

    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.none, "orders", topic_id)


def test_an_unknown_id_is_told_as_such(call: HandlerCalls) -> None:
    unknown = uuid.uuid4()

    answer = call(METADATA, {"topics": [{"name": None, "topic_id": unknown}]}, version=13)

    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (
        ErrorCode.unknown_topic_id,
        None,
        unknown,
    )


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_they_were_meant_for_asking(
    call: HandlerCalls, store: Store, version: int
) -> None:
    wanted = {"name": None, "topic_id": store.topic("orders").topic_id}

    answer = call(METADATA, {"topics": [wanted]}, version=version)

    assert [topic.error_code for topic in answer.topics] == [ErrorCode.invalid_request]


def test_a_name_that_cannot_be_is_told_as_such(call: HandlerCalls) -> None:
    answer = call(METADATA, named("no/such", "", "orders"))

    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_topic_exception,
        ErrorCode.none,
    ]


# --- topics that come on being asked for --------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_that_is_asked_for_is_created_and_described(
    call: HandlerCalls, store: Store, version: int
) -> None:
    answer = call(METADATA, named("new", "orders"), version=version)

    new, orders = answer.topics
    assert (new.error_code, len(new.partitions)) == (ErrorCode.none, CONFIG.num_partitions)
    assert (orders.error_code, len(orders.partitions)) == (ErrorCode.none, 3)
    assert store.topic("new").partition_count == CONFIG.num_partitions


def test_a_client_may_ask_without_creating(call: HandlerCalls, store: Store) -> None:
    answer = call(METADATA, without_creation("new"))

    assert [t.error_code for t in answer.topics] == [ErrorCode.unknown_topic_or_partition]
    assert store.registry.find("new") is None


def test_a_broker_may_be_told_not_to_create(store: Store) -> None:
    call = client(store, BrokerConfig(auto_create_topics_enable=False))

    answer = call(METADATA, named("new"))

    assert [t.error_code for t in answer.topics] == [ErrorCode.unknown_topic_or_partition]


def test_internal_topics_are_not_created_by_asking(call: HandlerCalls, store: Store) -> None:
    answer = call(METADATA, named("__transaction_state"))

    [topic] = answer.topics
    assert topic.error_code == ErrorCode.unknown_topic_or_partition
    assert topic.is_internal
    assert store.registry.find("__transaction_state") is None


def test_a_topic_that_cannot_be_created_does_not_hide_the_others(
    call: HandlerCalls, store: Store
) -> None:
    store.create_topic("a.b")

    answer = call(METADATA, named("a_b", "fine"))

    assert [t.error_code for t in answer.topics] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.none,
    ]


def test_one_request_creates_no_more_than_so_many_topics(store: Store) -> None:
    call = client(store, BrokerConfig(num_partitions=1))
    names = [f"t{number}" for number in range(110)]

    first = call(METADATA, named(*names))
    second = call(METADATA, named(*names))

    assert {t.error_code for t in first.topics} == {ErrorCode.none, ErrorCode.leader_not_available}
    assert {t.error_code for t in second.topics} == {ErrorCode.none}


# --- DescribeCluster ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_cluster_is_one_broker(call: HandlerCalls, version: int) -> None:
    answer = call(ApiKey.DESCRIBE_CLUSTER, {}, version=version)

    assert answer.error_code == ErrorCode.none
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 7)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(7, "broker.example", 9092)]
    assert answer.cluster_authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)],
)
def test_other_endpoints_are_refused(call: HandlerCalls, endpoint_type: int, code: int) -> None:
    answer = call(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": endpoint_type})

    assert answer.error_code == code
    assert answer.brokers == ()


# --- DescribeTopicPartitions --------------------------------------------------------------------


def test_partitions_of_all_topics_come_in_the_order_of_names(
    call: HandlerCalls, store: Store
) -> None:
    answer = call(PARTITIONS, {})

    assert names_of(answer) == ["__consumer_offsets", "events", "orders"]
    assert [len(topic.partitions) for topic in answer.topics] == [1, 1, 3]
    assert answer.topics[2].topic_id == store.topic("orders").topic_id
    assert answer.topics[2].partitions[0].eligible_leader_replicas == ()
    assert answer.next_cursor is None


def test_what_does_not_fit_is_asked_for_by_a_cursor(call: HandlerCalls) -> None:
    request: dict[str, object] = {"response_partition_limit": 2}
    seen: list[tuple[str, int]] = []
    while True:
        answer = call(PARTITIONS, request)
        page = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        assert 1 <= len(page) <= 2
        seen += page
        cursor = answer.next_cursor
        if cursor is None:
            break
        request["cursor"] = {
            "topic_name": cursor.topic_name,
            "partition_index": cursor.partition_index,
        }

    assert seen == [("__consumer_offsets", 0), ("events", 0), *(("orders", n) for n in range(3))]


def test_a_limit_of_nothing_is_one(call: HandlerCalls) -> None:
    answer = call(PARTITIONS, {**named("orders"), "response_partition_limit": 0})

    assert len(answer.topics[0].partitions) == 1
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("orders", 1)


def test_the_brokers_own_limit_counts_too(store: Store) -> None:
    call = client(store, BrokerConfig(max_request_partition_size_limit=2))

    answer = call(PARTITIONS, named("orders"))

    assert len(answer.topics[0].partitions) == 2


def test_asked_for_by_name_topics_are_sorted_and_unknown_ones_told(call: HandlerCalls) -> None:
    answer = call(PARTITIONS, named("orders", "missing", "bad/name", "orders"))

    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("bad/name", ErrorCode.invalid_topic_exception),
        ("missing", ErrorCode.unknown_topic_or_partition),
        ("orders", ErrorCode.none),
    ]


def test_a_cursor_that_points_nowhere_is_refused(call: HandlerCalls) -> None:
    cursor = {"topic_name": "orders", "partition_index": -1}

    answer = call(PARTITIONS, {**named("orders"), "cursor": cursor})

    assert [t.error_code for t in answer.topics] == [ErrorCode.invalid_request]


def test_a_cursor_past_the_end_finds_nothing(call: HandlerCalls) -> None:
    answer = call(PARTITIONS, {"cursor": {"topic_name": "zzz", "partition_index": 0}})

    assert (answer.topics, answer.next_cursor) == ((), None)


# --- and the rest -------------------------------------------------------------------------------


def test_no_partition_is_ever_on_the_move(call: HandlerCalls) -> None:
    answer = call(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})

    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())


def test_none_of_it_waits_for_the_disk(call: HandlerCalls) -> None:
    assert {route.runs_on for route in call.routes.values()} == {RunsOn.ANYWHERE}


def test_a_partition_whose_files_are_gone_has_no_leader() -> None:
    fs = SimulatedFileSystem()
    with open_store(fs) as before:
        before.create_topic("orders", partitions=2).append(b"x", partition=1)
    fs.remove_tree(f"{DATA}/orders-1")

    with open_store(fs) as store:
        answer = client(store)(METADATA, named("orders"))

    here, gone = answer.topics[0].partitions
    assert (here.error_code, here.leader_id) == (ErrorCode.none, 7)
    assert (gone.error_code, gone.leader_id, gone.leader_epoch) == (
        ErrorCode.leader_not_available,
        -1,
        -1,
    )
    assert (gone.replica_nodes, gone.isr_nodes, gone.offline_replicas) == ((7,), (), (7,))


# --- authorized operations ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [version for version in versions(METADATA) if version >= 8])
def test_without_an_authorizer_everything_is_allowed(call: HandlerCalls, version: int) -> None:
    request = {
        **without_creation("orders", "missing"),
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": version <= 10,
    }

    answer = call(METADATA, request, version=version)

    assert [t.topic_authorized_operations for t in answer.topics] == [TOPIC_OPERATIONS] * 2
    assert answer.cluster_authorized_operations == (
        CLUSTER_OPERATIONS if version <= 10 else NO_OPERATIONS
    )


def test_the_cluster_says_what_is_allowed_when_it_is_asked(call: HandlerCalls) -> None:
    asked = call(ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True})
    [topic] = call(PARTITIONS, {"topics": [{"name": "orders"}]}).topics

    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS


# --- limits -------------------------------------------------------------------------------------


def test_clients_cannot_create_topics_without_end_by_asking_for_them(store: Store) -> None:
    call = client(store, replace(CONFIG, auto_create_topics_max=4))

    answer = call(METADATA, named("a", "b", "c"))

    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert store.topics() == ["a", "b", "events", "orders"]
    [known] = call(METADATA, named("orders")).topics
    assert known.error_code == ErrorCode.none
