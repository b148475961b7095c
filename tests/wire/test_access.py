"""Access rules at a running broker: what counts, when it counts, and who is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import (
    AclOperation as ConfluentOperation,
)

import cordwood
from cordwood.broker.security.access_table import ACCESS_TABLE
from cordwood.broker.security.broker_security import BrokerSecurity
from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import encode_request
from cordwood.security.access.access_event import AccessEvent, AccessRequest
from cordwood.security.principal import Principal
from cordwood.security.security_state import AclRule, SecurityState
from fakes.client_batches import client_batch
from interop.access_cases import CASES, Case
from wire.raw_client import RawClient
from wire.record_requests import (
    Wanted,
    fetch,
    fetch_body,
    only_part,
    produce,
    produce_body,
    receive_fetched,
    receive_produced,
)

BATCH: Final = bytes(client_batch(b"one", b"two"))
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def rule(
    operation: AclOperation,
    resource: AclResource,
    name: str = "*",
    *,
    permission: AclPermission = AclPermission.ALLOW,
    pattern: AclPattern = AclPattern.LITERAL,
) -> AclRule:
    return AclRule(
        resource=resource,
        pattern=pattern,
        name=CLUSTER_NAME if resource is CLUSTER else name,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission=permission,
    )


class Guarded:
    """A broker with an authorizer."""

    def __init__(self, broker: cordwood.Broker) -> None:
        assert broker._server is not None
        self.server = broker._server
        self.servers = broker.bootstrap_servers
        self.store = self.server.store
        for topic in ("orders", "other"):
            broker.create_topic(topic, config={"retention.ms": -1})

    def use(self, *rules: AclRule) -> None:
        self.server.security_file.change(lambda state: SecurityState(rules=frozenset(rules)))


@contextmanager
def guarded(**config: object) -> Iterator[Guarded]:
    keys = {key.replace("_", "."): value for key, value in config.items()}
    with cordwood.Broker(config={"authorizer.class.name": "standard", **keys}) as broker:
        yield Guarded(broker)


@pytest.fixture
def broker() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def client(broker: Guarded) -> Iterator[RawClient]:
    with RawClient(broker.servers) as connected:
        yield connected


# --- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 13])
def test_a_withdrawn_right_to_write_counts_for_the_next_produce_of_a_connection(
    broker: Guarded, client: RawClient, version: int
) -> None:
    topic = "orders" if version < 13 else broker.store.topic("orders").topic_id
    broker.use(rule(WRITE, TOPIC, "orders"))
    assert produce(client, topic, BATCH, version=version).error_code == 0

    broker.use()

    answer = produce(client, topic, BATCH, version=version)
    assert answer.error_code == ErrorCode.topic_authorization_failed
    assert broker.store.topic("orders").partition(0).end_offset == 2


def test_a_produce_without_acks_that_is_refused_ends_its_connection(
    broker: Guarded, client: RawClient
) -> None:
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [("orders", 0, BATCH)], acks=0))

    assert client.is_closed_by_broker()
    assert broker.store.topic("orders").partition(0).end_offset == 0


def test_a_fetch_that_waits_gets_no_records_after_its_right_was_withdrawn(
    broker: Guarded, client: RawClient
) -> None:
    broker.use(rule(READ, TOPIC, "orders"))
    wait = fetch_body(12, [Wanted(topic="orders")], max_wait_ms=60_000)
    client.send(ApiKey.FETCH, 12, wait)
    while broker.server.fetches.waiting_count == 0:
        pass

    broker.use()
    broker.store.topic("orders").append(b"secret")

    part = only_part(receive_fetched(client))
    assert part.error_code == ErrorCode.topic_authorization_failed
    assert not part.records


def test_an_incremental_fetch_session_asks_again_each_time(
    broker: Guarded, client: RawClient
) -> None:
    broker.store.topic("orders").append(b"one")
    broker.use(rule(READ, TOPIC, "orders"))
    first = fetch(client, [Wanted(topic="orders")], session_epoch=0)
    assert only_part(first).records

    broker.use()
    refused = fetch(client, [], session_id=first.session_id, session_epoch=1)
    broker.use(rule(READ, TOPIC, "orders"))
    again = fetch(client, [], session_id=first.session_id, session_epoch=2)

    assert only_part(refused).error_code == ErrorCode.topic_authorization_failed
    assert only_part(again).records


def test_a_session_of_another_client_shows_nothing_that_a_client_may_not_read(
    broker: Guarded, client: RawClient
) -> None:
    broker.store.topic("orders").append(b"one")
    broker.use(rule(READ, TOPIC, "orders")._replace(host="127.0.0.1"))
    first = fetch(client, [Wanted(topic="orders")], session_epoch=0)

    broker.use(rule(READ, TOPIC, "orders")._replace(principal="User:alice"))
    with RawClient(broker.servers) as other:
        stolen = fetch(other, [], session_id=first.session_id, session_epoch=1)

    assert only_part(stolen).error_code == ErrorCode.topic_authorization_failed


def test_only_who_may_act_for_the_cluster_writes_to_internal_topics(
    broker: Guarded, client: RawClient
) -> None:
    broker.use(rule(WRITE, TOPIC, "*"), rule(READ, GROUP, "*"), rule(READ, TOPIC, "*"))
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
    client.call(ApiKey.OFFSET_COMMIT, 9, commit)

    refused = produce(client, "__consumer_offsets", BATCH)
    read = only_part(fetch(client, [Wanted(topic="__consumer_offsets")]))

    assert refused.error_code == ErrorCode.invalid_topic_exception
    assert read.error_code == 0


# --- groups --------------------------------------------------------------------------------------


def test_a_pattern_matches_only_topics_that_the_member_may_describe(
    broker: Guarded, client: RawClient
) -> None:
    broker.use(rule(READ, GROUP), rule(READ, TOPIC, "orders"))
    join = {
        "group_id": "billing",
        "member_id": "one",
        "rebalance_timeout": 10_000,
        "subscribed_topic_regex": "o.*",
        "topic_partitions": [],
    }

    joined = client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)
    broker.use(rule(READ, GROUP), rule(READ, TOPIC, "*"))
    for _ in range(1000):  # a group looks for topics now and then
        beat = {"group_id": "billing", "member_id": "one", "member_epoch": joined.member_epoch}
        later = client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        if later.assignment is not None:
            break
        threading.Event().wait(0.01)

    names = {broker.store.topic(name).topic_id: name for name in ("orders", "other")}
    assert _assigned(joined, names) == {"orders"}
    assert _assigned(later, names) == {"orders", "other"}


def _assigned(answer: Any, names: dict[Any, str]) -> set[str]:
    assert answer.error_code == 0, answer
    return {names[topic.topic_id] for topic in answer.assignment.topic_partitions}


def test_a_member_whose_right_is_withdrawn_is_refused_at_its_next_heartbeat(
    broker: Guarded, client: RawClient
) -> None:
    broker.use(rule(READ, GROUP))
    beat = {"group_id": "billing", "generation_id": 1, "member_id": "one"}
    assert client.call(ApiKey.HEARTBEAT, 4, beat).error_code == ErrorCode.unknown_member_id

    broker.use()

    refused = client.call(ApiKey.HEARTBEAT, 4, beat)
    assert refused.error_code == ErrorCode.group_authorization_failed


# --- clients -------------------------------------------------------------------------------------


def test_confluents_admin_creates_lists_and_deletes_rules() -> None:
    with guarded(super_users="User:ANONYMOUS") as broker:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        binding = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.PREFIXED,
            "User:alice",
            "10.0.0.1",
            ConfluentOperation.READ,
            AclPermissionType.ALLOW,
        )
        anybody: Any = None  # which the stubs do not know
        anything = AclBindingFilter(
            ResourceType.ANY,
            anybody,
            ResourcePatternType.ANY,
            anybody,
            anybody,
            ConfluentOperation.ANY,
            AclPermissionType.ANY,
        )

        admin.create_acls([binding])[binding].result(30)
        listed = admin.describe_acls(anything).result(30)
        deleted = admin.delete_acls([anything])[anything].result(30)
        left = admin.describe_acls(anything).result(30)

    assert listed == [binding]
    assert deleted == [binding]
    assert left == []


def test_without_an_authorizer_confluents_admin_is_told_so() -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        ConfluentOperation.READ,
        AclPermissionType.ALLOW,
    )
    with cordwood.Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        with pytest.raises(KafkaException) as caught:
            admin.create_acls([binding])[binding].result(30)

    assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_producer_and_a_consumer_work_with_the_rights_of_the_recipes(
    broker: Guarded, protocol: str
) -> None:
    broker.use(
        rule(WRITE, TOPIC, "orders"), rule(READ, TOPIC, "orders"), rule(READ, GROUP, "billing")
    )
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True})
    producer.produce("orders", b"value")
    assert producer.flush(30) == 0
    options = {
        "bootstrap.servers": broker.servers,
        "group.id": "billing",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    consumer.subscribe(["orders"])

    message = consumer.poll(30)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()

    assert message.value() == b"value"


def test_a_producer_without_rights_is_told_so(broker: Guarded) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "message.timeout.ms": 20_000})
    failures: list[KafkaError | None] = []

    producer.produce("orders", b"value", on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)

    [error] = failures
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


# --- every handler asks --------------------------------------------------------------------------


class RecordingAccess:
    """Allows everything about some resources, and remembers what it was asked about."""

    is_unlimited = False

    def __init__(self, allowed: frozenset[AclResource]) -> None:
        self._allowed = allowed
        self.is_recording = False  # else it allows everything, and remembers nothing
        self.asked: set[tuple[AclOperation, AclResource]] = set()

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        if self.is_recording:
            self.asked.add((operation, resource))
        return not self.is_recording or resource in self._allowed

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return self.allows(operation, resource, "*")

    def operations(self, resource: AclResource, name: str) -> int:
        return 0

    def report(self, *_: object, is_allowed: bool) -> None:
        pass


def ask(broker: Guarded, client: RawClient, case: Case) -> bytes:
    """The answer to the request of a case, as bytes."""
    if "doomed" not in broker.store.topics():
        broker.store.create_topic("doomed")
    ids = {name: broker.store.topic(name).topic_id for name in broker.store.topics()}
    body = encode_request(case.api, case.version, case.request(ids))
    client.send(case.api, case.version, body)
    return client.receive(case.api, case.version)[1]


def prepare(broker: Guarded, client: RawClient) -> None:
    """A group of each kind, and an internal topic."""
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    commit = {"group_id": "billing", "generation_id_or_member_epoch": -1, "topics": topics}
    client.call(ApiKey.OFFSET_COMMIT, 9, commit)
    join = {
        "group_id": "members",
        "member_id": "one",
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)
    init = {"transactional_id": "billing", "transaction_timeout": 60_000}
    client.call(ApiKey.INIT_PRODUCER_ID, 4, init)
    client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, TRANSACTIONS[ApiKey.ADD_PARTITIONS_TO_TXN][0][1])


_PARTITIONS = [{"name": "orders", "partition_indexes": [0]}]
_PRODUCER = {"transactional_id": "billing", "producer_id": 0, "producer_epoch": 0}
# Not in the cases: an answer of Kafka depends on the producers that there were before.
TRANSACTIONS: dict[ApiKey, list[tuple[int, dict[str, Any]]]] = {
    ApiKey.FIND_COORDINATOR: [(4, {"key_type": 1, "coordinator_keys": ["billing"]})],
    ApiKey.INIT_PRODUCER_ID: [(4, {"transactional_id": "other", "transaction_timeout": 1000})],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        (
            3,
            {
                "v3_and_below_transactional_id": "billing",
                "v3_and_below_producer_id": 0,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
            },
        ),
        (5, {"transactions": []}),
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [(4, {**_PRODUCER, "group_id": "billing"})],
    ApiKey.END_TXN: [(4, {**_PRODUCER, "committed": False})],
    ApiKey.TXN_OFFSET_COMMIT: [
        (
            5,
            {
                **_PRODUCER,
                "group_id": "billing",
                "topics": [
                    {
                        "name": "orders",
                        "partitions": [{"partition_index": 0, "committed_offset": 1}],
                    }
                ],
            },
        )
    ],
    ApiKey.WRITE_TXN_MARKERS: [
        (1, {"markers": [{"producer_id": 99, "producer_epoch": 0, "topics": _PARTITIONS}]})
    ],
    ApiKey.DESCRIBE_PRODUCERS: [(0, {"topics": _PARTITIONS})],
    ApiKey.DESCRIBE_TRANSACTIONS: [(0, {"transactional_ids": ["billing"]})],
    ApiKey.LIST_TRANSACTIONS: [(2, {})],
}


def ask_more(client: RawClient, api: ApiKey) -> None:
    """Requests that are not in the cases, because they are compared with Kafka in another way."""
    if api is ApiKey.PRODUCE:
        for topic in ("orders", "__consumer_offsets"):
            produce(client, topic, BATCH)
        batch = bytes(client_batch(b"x", producer_id=0, sequence=0, transactional=True))
        body = produce_body(9, [("orders", 0, batch)], transactional_id="billing")
        client.send(api, 9, body)
        receive_produced(client, 9)
    elif api is ApiKey.FETCH:
        fetch(client, [Wanted(topic="orders")])
    elif api is ApiKey.ALTER_CONFIGS:
        resources: list[dict[str, Any]] = [
            {"resource_type": kind, "resource_name": "1", "configs": []} for kind in (4, 32)
        ]
        client.call(api, 2, {"resources": resources, "validate_only": True})
    elif api is ApiKey.DESCRIBE_CLIENT_QUOTAS:
        client.call(api, 1, {"components": []})
    elif api is ApiKey.ALTER_CLIENT_QUOTAS:
        client.call(api, 1, {"entries": [], "validate_only": True})
    for version, request in TRANSACTIONS.get(api, ()):
        client.call(api, version, request)


@pytest.mark.parametrize("api", sorted(ApiKey), ids=lambda api: api.name.lower())
def test_a_handler_asks_about_what_the_table_says_and_about_nothing_else(
    monkeypatch: pytest.MonkeyPatch, api: ApiKey
) -> None:
    name = API_CATALOG[api].name
    asked = set()
    everything = frozenset(AclResource)
    for allowed in (frozenset[AclResource](), everything, everything - {CLUSTER}):
        access = RecordingAccess(allowed)
        monkeypatch.setattr(
            BrokerSecurity, "access_of", lambda self, principal, host, access=access: access
        )
        with guarded(node_id=1) as broker, RawClient(broker.servers) as client:
            prepare(broker, client)
            access.is_recording = True
            for case in CASES:
                if case.api is api:
                    ask(broker, client, case)
            ask_more(client, api)
        asked |= access.asked

    assert asked == {(need.operation, need.resource) for need in ACCESS_TABLE.get(name, ())}


def state_of(broker: Guarded) -> object:
    """Everything that a request could change."""
    store = broker.store
    return (
        {name: store.registry.overrides(name) for name in store.topics(include_internal=True)},
        {name: store.topic(name).partition_count for name in store.topics()},
        {
            name: (log.start_offset, log.end_offset)
            for name in store.topics()
            for log in [store.topic(name).partition(0)]
        },
        store.groups(),
        broker.server.security_file.state,
    )


def test_a_client_without_rights_changes_nothing_and_learns_no_name(
    broker: Guarded, client: RawClient
) -> None:
    broker.store.create_topic("doomed")
    broker.store.topic("orders").append(b"value")
    before = state_of(broker)

    answers = {case.name: ask(broker, client, case) for case in CASES}
    produce(client, "orders", BATCH)

    assert state_of(broker) == before
    for name in ("metadata-12-all", "metadata-1-all", "describe_topic_partitions-0-all"):
        assert not any(topic in answers[name] for topic in (b"orders", b"other", b"doomed")), name
    assert b"orders" not in answers["metadata-12-by-id"]
    assert b"doomed" not in answers["delete_topics-6-by-id"]


# --- events --------------------------------------------------------------------------------------


def test_refusals_and_allowed_changes_are_reported_and_filters_are_not(
    broker: Guarded, client: RawClient
) -> None:
    events: list[AccessEvent] = []
    broker.server.access_events.listener = events.append
    create = rule(AclOperation.CREATE, CLUSTER)
    broker.use(create)

    produce(client, "orders", BATCH)
    client.call(ApiKey.METADATA, 12, {"topics": None})
    topics = [{"name": "new", "num_partitions": 1, "replication_factor": 1}]
    client.call(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000})

    who = (Principal("User", "ANONYMOUS"), "127.0.0.1")
    assert events == [
        AccessEvent(
            *who,
            AccessRequest("Produce", WRITE, TOPIC, "orders", "PLAINTEXT", "raw"),
            False,
            "DefaultDeny",
        ),
        AccessEvent(
            *who,
            AccessRequest(
                "CreateTopics", AclOperation.CREATE, CLUSTER, CLUSTER_NAME, "PLAINTEXT", "raw"
            ),
            True,
            create,
        ),
    ]


def test_the_id_of_a_hidden_topic_does_not_tell_its_name(
    broker: Guarded, client: RawClient
) -> None:
    broker.use(rule(DESCRIBE, TOPIC, "other"))
    topic_id = broker.store.topic("orders").topic_id

    def codes(guess: str) -> list[int]:
        wanted = [{"name": guess}, {"name": None, "topic_id": topic_id}]
        answer = client.call(ApiKey.DELETE_TOPICS, 6, {"topics": wanted, "timeout": 10_000})
        return [response.error_code for response in answer.responses]

    assert codes("orders") == codes("wrong") == [ErrorCode.topic_authorization_failed] * 2
