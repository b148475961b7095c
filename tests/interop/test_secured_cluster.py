"""A cluster of our broker and Kafka's in which everybody uses TLS, passwords and access rules."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.replica_fetch import (
    ReplicaFetchPart,
    decode_replica_fetch,
    encode_replica_fetch,
)
from interop.cluster_records import await_same_batches, produce
from interop.kafka_peer import KafkaTools
from interop.mixed_cluster import OURS, THEIRS
from interop.secured_cluster import RACKS, SecuredCluster, secured_cluster
from wire.waiting import await_true

VALUES = [b"value %d" % number for number in range(2_000)]


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredCluster]:
    users = ("alice", "eve")
    with secured_cluster(kafka, tmp_path_factory.mktemp("secured"), users) as running:
        yield running


def rule(
    topic: str,
    principal: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        permission,
    )


def rules_of(topic: str) -> AclBindingFilter:
    anything: Any = None  # the stubs of the library do not know it
    return AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def may_write(cluster: SecuredCluster, user: str, topic: str, at: int) -> bool:
    sent = produce(
        str(cluster.client(user, at=at)["bootstrap.servers"]),
        topic,
        [b"x"],
        **{**cluster.client(user, at=at), "message.timeout.ms": 3_000},
    )
    return sent == [b"x"]


@pytest.mark.parametrize(("leader", "follower"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_replicas_follow_over_tls_and_scram(
    cluster: SecuredCluster, leader: int, follower: int
) -> None:
    name = f"led-by-{leader}"
    cluster.create(name, leader, follower)

    client = cluster.client("admin", at=leader)
    acknowledged = produce(str(client["bootstrap.servers"]), name, VALUES, **client)

    assert sorted(acknowledged) == sorted(VALUES)
    assert len(await_same_batches(list(cluster.members.values()), name)) > 10_000


@pytest.mark.parametrize("leader", [OURS, THEIRS])
def test_a_user_is_allowed_and_denied_within_a_second_wherever_the_rule_was_made(
    cluster: SecuredCluster, leader: int
) -> None:
    name = f"guarded-{leader}"
    cluster.create(name, leader)
    assert not may_write(cluster, "alice", name, at=leader)
    for at in (OURS, THEIRS):
        admin = cluster.admin(at=at)
        allow = [
            rule(name, "User:alice", operation)
            for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
        ]

        for created in admin.create_acls(allow).values():
            created.result(10)
        await_visible(cluster, name, count=2)
        assert may_write(cluster, "alice", name, at=leader)
        assert not may_write(cluster, "eve", name, at=leader)

        deny = rule(name, "User:alice", AclOperation.WRITE, AclPermissionType.DENY)
        admin.create_acls([deny])[deny].result(10)
        await_visible(cluster, name, count=3)
        assert not may_write(cluster, "alice", name, at=leader)

        removed = rules_of(name)
        assert len(admin.delete_acls([removed])[removed].result(10)) == 3
        await_visible(cluster, name, count=0)
        assert not may_write(cluster, "alice", name, at=leader)


def await_visible(cluster: SecuredCluster, topic: str, count: int) -> None:
    """Every broker lists so many rules of the topic within a second."""
    for at in (OURS, THEIRS):
        admin = cluster.admin(at=at)
        admin.list_topics(timeout=10)  # signed in

        def are_visible(admin: AdminClient = admin) -> bool:
            return len(admin.describe_acls(rules_of(topic)).result(10)) == count

        await_true(are_visible, 1.0)


def test_kafka_acls_and_kafka_configs_change_the_cluster_through_our_broker(
    cluster: SecuredCluster, tmp_path: Path
) -> None:
    config = cluster.command_config(tmp_path)
    at = ("--bootstrap-server", cluster.ours.address, "--command-config", str(config))

    cluster.tools.run(
        "org.apache.kafka.tools.AclCommand",
        *at, "--add", "--allow-principal", "User:bob", "--producer", "--topic", "tools",
    )  # fmt: skip
    cluster.tools.run(
        "kafka.admin.ConfigCommand",
        *at, "--alter", "--add-config", "SCRAM-SHA-512=[password=pencil]",
        "--entity-type", "users", "--entity-name", "bob",
    )  # fmt: skip
    cluster.tools.run(
        "kafka.admin.ConfigCommand",
        *at, "--alter", "--add-config", "producer_byte_rate=1000000",
        "--entity-type", "users", "--entity-name", "bob",
    )  # fmt: skip

    for node_id in (OURS, THEIRS):
        cluster.create(f"of-{node_id}", node_id)
    cluster.create("tools", OURS, THEIRS)
    assert may_write(cluster, "bob", "tools", at=OURS)
    assert not may_write(cluster, "bob", f"of-{OURS}", at=OURS)
    described = cluster.tools.run(
        "kafka.admin.ConfigCommand",
        *at, "--describe", "--entity-type", "users", "--entity-name", "bob",
    )  # fmt: skip
    assert "producer_byte_rate=1000000" in described
    assert "SCRAM-SHA-512=iterations=4096" in described


def test_what_a_broker_relays_is_in_its_audit_log(cluster: SecuredCluster) -> None:
    entity = [{"entity_type": "user", "entity_name": "carol"}]
    limit = {"key": "producer_byte_rate", "value": 5000.0, "remove": False}
    credential = {
        "name": "carol",
        "mechanism": 2,
        "iterations": 4096,
        "salt": b"grain",
        "salted_password": b"well salted" * 6,
    }
    requests: dict[ApiKey, dict[str, Any]] = {
        ApiKey.ALTER_CLIENT_QUOTAS: {"entries": [{"entity": entity, "ops": [limit]}]},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [], "upsertions": [credential]},
        ApiKey.CREATE_TOPICS: {
            "topics": [{"name": "audited", "num_partitions": 1, "replication_factor": 1}]
        },
    }
    audit = cluster.ca.parent / "audit.jsonl"

    with cluster.connection("admin") as connection:
        for api, request in requests.items():
            version = KNOWN_APIS[api].max_version
            connection.exchange(api, version, encode_request(api, version, request))

    def changes() -> set[tuple[str, ...]]:
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        keys = ("principal", "api", "operation", "resource", "name")
        return {tuple(line[key] for key in keys) for line in lines if line["event"] == "change"}

    wanted = {
        ("User:admin", "AlterClientQuotas", "ALTER_CONFIGS", "QUOTA", "user carol"),
        ("User:admin", "AlterUserScramCredentials", "CREATE", "USER", "carol"),
        ("User:admin", "CreateTopics", "CREATE", "TOPIC", "audited"),
    }
    await_true(lambda: wanted <= changes(), 10)
    assert "salted" not in audit.read_text()
    assert "pencil" not in audit.read_text()


def test_a_wrong_password_is_refused_by_our_broker(cluster: SecuredCluster) -> None:
    admin = AdminClient(cluster.client("alice", password="wrong"))

    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def replica_fetch(topic_id: UUID) -> bytes:
    part = ReplicaFetchPart(
        topic_id=topic_id,
        partition=0,
        offset=0,
        max_bytes=1 << 20,
        leader_epoch=0,
        last_fetched_epoch=-1,
        log_start_offset=0,
    )
    return encode_replica_fetch(
        17,
        [part],
        replica_id=THEIRS,
        replica_epoch=1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
    )


def test_a_client_that_is_not_a_broker_cannot_act_as_one(cluster: SecuredCluster) -> None:
    cluster.create("wanted", OURS)
    allow = [rule("wanted", "User:alice", operation) for operation in (AclOperation.ALL,)]
    admin = cluster.admin()
    admin.create_acls(allow)[allow[0]].result(10)
    await_visible(cluster, "wanted", count=1)
    markers = {
        "markers": [
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": [{"name": "wanted", "partition_indexes": [0]}],
                "coordinator_epoch": 0,
            }
        ]
    }

    found = admin.describe_topics(TopicCollection(["wanted"]))["wanted"].result(10)
    topic_id = UUID(int=found.topic_id.get_most_significant_bits() % 2**64 << 64
                    | found.topic_id.get_least_significant_bits() % 2**64)  # fmt: skip
    with cluster.connection("alice") as connection:
        fetched = connection.exchange(ApiKey.FETCH, 17, replica_fetch(topic_id))
        sent = encode_request(ApiKey.WRITE_TXN_MARKERS, 1, markers)
        marked = connection.exchange(ApiKey.WRITE_TXN_MARKERS, 1, sent)
    with cluster.connection("broker") as connection:
        allowed = connection.exchange(ApiKey.FETCH, 17, replica_fetch(topic_id))

    denied = ErrorCode.cluster_authorization_failed
    assert [part.error_code for part in decode_replica_fetch(17, fetched).parts] == [denied]
    answer: Any = decode_response(ApiKey.WRITE_TXN_MARKERS, 1, marked)
    assert answer.markers[0].topics[0].partitions[0].error_code == denied
    # The broker itself may fetch, and is told that this is not its epoch or its replica.
    assert [part.error_code for part in decode_replica_fetch(17, allowed).parts] != [denied]


def test_our_broker_takes_no_envelopes_from_anybody(cluster: SecuredCluster) -> None:
    api = KNOWN_APIS[ApiKey.ENVELOPE]
    body = b"\0" + encode_request(
        api.key, 0, {"request_data": b"", "request_principal": b"", "client_host_address": b""}
    )
    frame = struct.pack(">hhih", api.key, 0, 1, -1) + body
    for user in ("alice", "broker"):
        with cluster.connection(user) as connection:
            assert not connection.speaks(api.key)
            connection._socket.sendall(struct.pack(">i", len(frame)) + frame)

            assert connection._socket.recv(1) == b""  # it disconnects, as Kafka's brokers do


@pytest.mark.parametrize("at", [OURS, THEIRS])
def test_authorized_operations_are_those_of_the_rules(cluster: SecuredCluster, at: int) -> None:
    name = f"operations-{at}"
    cluster.create(name, OURS, THEIRS)
    wanted = rule(name, "User:alice", AclOperation.READ)
    admin = cluster.admin()
    admin.create_acls([wanted])[wanted].result(10)
    await_visible(cluster, name, count=1)

    alice = cluster.admin("alice", at=at)
    topic = alice.describe_topics(
        TopicCollection([name]), include_authorized_operations=True
    )[name].result(10)  # fmt: skip
    whole = cluster.admin("admin", at=at)
    described = whole.describe_cluster(include_authorized_operations=True).result(10)

    assert {each.name for each in topic.authorized_operations} == {"READ", "DESCRIBE"}
    assert {each.name for each in described.authorized_operations} >= {"CLUSTER_ACTION", "ALTER"}


def consume_with_rack(
    cluster: SecuredCluster, topic: str, count: int, rack: str, at: int
) -> tuple[list[bytes], set[int]]:
    """The values, and the brokers that the client fetched from at the end."""
    brokers: list[int] = []

    def note(text: str) -> None:
        found: dict[str, Any] = json.loads(text)
        parts = found["topics"].get(topic, {}).get("partitions", {})
        if "0" in parts:
            brokers.append(parts["0"]["broker"])

    consumer = Consumer(
        {
            **cluster.client("admin", at=at),
            "group.id": "racks",
            "auto.offset.reset": "earliest",
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        deadline_s = time.monotonic() + 60
        while len(values) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        seen = len(brokers)
        while len(brokers) < seen + 2:
            consumer.poll(0.1)
        return values, set(brokers[seen:])
    finally:
        consumer.close()


@pytest.mark.parametrize(("leader", "follower"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_a_client_reads_from_the_replica_in_its_rack(
    cluster: SecuredCluster, leader: int, follower: int
) -> None:
    name = f"racks-{leader}"
    cluster.create(name, leader, follower)
    client = cluster.client("admin", at=leader)
    produce(str(client["bootstrap.servers"]), name, VALUES, **client)

    near, brokers = consume_with_rack(cluster, name, len(VALUES), RACKS[follower], leader)
    far, leaders = consume_with_rack(cluster, name, len(VALUES), RACKS[leader], leader)

    assert near == far == VALUES
    assert brokers == {follower}
    assert leaders == {leader}
