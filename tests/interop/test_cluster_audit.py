"""The audit lines of all brokers of a cluster, in one topic."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from interop.cluster_members import CordwoodMember
from interop.cluster_records import await_in_sync, leader_of
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.mixed_cluster import OURS, plan_of, run_tool
from interop.secured_cluster import secured_cluster
from wire.waiting import await_true

FIRST, SECOND = 1, 2
PATIENCE_S = 60


@pytest.fixture(scope="module")
def members(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[CordwoodMember]]:
    place = tmp_path_factory.mktemp("audited")
    properties = {
        "offsets.topic.replication.factor": "1",
        "default.replication.factor": "2",
        "audit.topic": "audit",
    }
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        yield [
            running.enter_context(
                CordwoodMember(controllers, place / str(node), node_id=node, properties=properties)
            )
            for node in (FIRST, SECOND)
        ]


def create(member: CordwoodMember, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": member.address})
    topic = NewTopic(name, num_partitions=1, replica_assignment=[[member.node_id]])
    admin.create_topics([topic])[name].result(30)


def audited(client: str | dict[str, Any], *names: str) -> list[str]:
    """The topics of these names whose creation the audit topic has."""
    given = {"bootstrap.servers": client} if isinstance(client, str) else client
    consumer = Consumer({**given, "group.id": "auditor"})
    found: list[str] = []
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([TopicPartition("audit", 0, 0)])
        while set(found) < set(names):
            assert time.monotonic() < deadline_s, found
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            event = json.loads(message.value() or b"{}")
            if event.get("operation") == "CREATE" and event.get("name") in names:
                found.append(event["name"])
    finally:
        consumer.close()
    return found


def test_lines_of_every_broker_are_in_one_topic_whoever_leads_it(
    members: list[CordwoodMember],
) -> None:
    for member in members:
        create(member, f"by-{member.node_id}")

    first = members[0].address
    assert sorted(audited(first, "by-1", "by-2")) == ["by-1", "by-2"]
    await_in_sync(first, "audit", 2)

    leader = leader_of(first, "audit")
    killed, other = sorted(members, key=lambda member: member.node_id != leader)
    killed.kill()
    create(other, "after")
    assert "after" in audited(other.address, "after")
    killed.launch()
    killed.wait_until("is running")
    await_in_sync(other.address, "audit", 2)


def test_with_access_rules_only_a_principal_of_brokers_writes_audit_lines(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    with secured_cluster(kafka, tmp_path, ["alice"], {"audit.topic": "audit"}) as cluster:
        admin = cluster.admin()
        rule = AclBinding(
            ResourceType.TOPIC, "audit", ResourcePatternType.LITERAL, "User:alice", "*",
            AclOperation.WRITE, AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([rule])[rule].result(30)
        cluster.create("shown", OURS)
        await_true(lambda: "audit" in admin.list_topics(timeout=10).topics)
        run_tool(
            kafka, "reassign.ReassignPartitionsCommand", "--execute",
            "--bootstrap-server", cluster.ours.address,
            "--command-config", str(cluster.command_config(tmp_path)),
            "--reassignment-json-file", str(plan_of(tmp_path, "audit", OURS)),
        )  # fmt: skip
        await_true(
            lambda: admin.list_topics(timeout=10).topics["audit"].partitions[0].leader == OURS
        )
        errors: list[KafkaError | None] = []
        client = {**cluster.client("alice"), "client.id": "broker-1-audit"}
        producer = Producer({**client, "message.timeout.ms": 10_000})
        producer.produce("audit", b"forged", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        found = audited(cluster.client("admin"), "shown")

    [error] = errors
    assert error is not None
    assert found == ["shown"]


def test_clients_cannot_write_audit_lines(members: list[CordwoodMember]) -> None:
    create(members[0], "there")
    audited(members[0].address, "there")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": members[0].address, "message.timeout.ms": 10_000})

    producer.produce("audit", b"forged", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(30)

    [error] = errors
    assert error is not None
    assert error.code() == KafkaError.TOPIC_EXCEPTION
