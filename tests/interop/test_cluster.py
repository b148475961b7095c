"""Our brokers in a cluster with Kafka's controllers, judged by Kafka's clients and tools."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import cordwood
from interop.cluster_members import CordwoodMember
from interop.cluster_records import (
    await_in_sync,
    await_same_batches,
    bootstrap,
    consume,
    create,
    leader_of,
    produce,
)
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers


@pytest.fixture
def controllers(kafka: KafkaTools, tmp_path: Path) -> Iterator[KraftControllers]:
    with KraftControllers(kafka, tmp_path / "controllers") as running:
        yield running


@pytest.fixture
def members(controllers: KraftControllers, tmp_path: Path) -> Iterator[list[CordwoodMember]]:
    with ExitStack() as running:
        yield [
            running.enter_context(
                CordwoodMember(controllers, tmp_path / f"broker-{node_id}", node_id=node_id)
            )
            for node_id in (1, 2, 3)
        ]


def test_one_broker_serves_clients_with_topics_of_the_controllers(
    controllers: KraftControllers, tmp_path: Path
) -> None:
    member = CordwoodMember(
        controllers,
        tmp_path / "broker-1",
        node_id=1,
        properties={"offsets.topic.replication.factor": "1"},
    )
    values = [b"%d" % number for number in range(500)]
    with member:
        create(member.address, "orders", partitions=1)

        acknowledged = produce(member.address, "orders", values)
        read = consume(member.address, "orders", len(values))

        assert sorted(acknowledged) == sorted(values)
        assert read == values


def test_a_member_answers_clients_once_it_knows_the_cluster(
    controllers: KraftControllers, tmp_path: Path
) -> None:
    member = CordwoodMember(controllers, tmp_path / "broker-1", node_id=1)
    with member:
        create(member.address, "orders", partitions=1)
        member.kill()
        [controller] = controllers.members
        assert controller.process is not None

        controller.process.send_signal(signal.SIGSTOP)
        try:
            member.launch()
            member.wait_until("listens on")
            with pytest.raises(KafkaException):
                AdminClient({"bootstrap.servers": member.address}).list_topics(timeout=1)
        finally:
            controller.process.send_signal(signal.SIGCONT)

        found = AdminClient({"bootstrap.servers": member.address}).list_topics(timeout=60)
        assert found.topics["orders"].error is None


def test_three_brokers_have_the_same_batches(members: list[CordwoodMember]) -> None:
    address = bootstrap(*members)
    values = [b"%d" % number for number in range(2_000)]
    create(address, "orders", replicas=3, min_insync_replicas="2")

    acknowledged = produce(address, "orders", values)

    assert sorted(acknowledged) == sorted(values)
    await_in_sync(address, "orders", 3)
    assert len(await_same_batches(members, "orders")) > 2_000
    assert consume(address, "orders", len(values)) == values


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    create(address, "orders", replicas=3, min_insync_replicas="2")
    await_in_sync(address, "orders", 3)
    leader = next(m for m in members if m.node_id == leader_of(address, "orders"))
    acknowledged: list[bytes] = []
    failed: list[KafkaError] = []

    def done(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value() or b"")
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 60_000,
        }
    )
    for number in range(6_000):
        producer.produce("orders", b"%d" % number, on_delivery=done)
        producer.poll(0)
        if number == 3_000:
            while len(acknowledged) < 1_000:
                producer.poll(0.01)
            leader.kill()
    producer.flush(90)

    assert not failed
    assert acknowledged == [b"%d" % number for number in range(6_000)]
    others = [member for member in members if member is not leader]
    read = consume(bootstrap(*others), "orders", len(acknowledged))
    assert read == acknowledged
    assert leader_of(bootstrap(*others), "orders") != leader.node_id

    leader.launch()
    await_in_sync(address, "orders", 3)
    await_same_batches(members, "orders")


def test_committed_offsets_survive_the_death_of_their_coordinator(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    create(address, "orders", replicas=3, min_insync_replicas="2")
    values = [b"%d" % number for number in range(100)]
    produce(address, "orders", values)
    assert consume(address, "orders", 100) == values  # and commits
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_consumer_groups(["readers"])["readers"].result(30)
    coordinator = next(m for m in members if m.node_id == described.coordinator.id)

    coordinator.kill()
    others = bootstrap(*(member for member in members if member is not coordinator))
    produce(others, "orders", [b"new"])

    assert consume(others, "orders", 1) == [b"new"]


def test_a_broker_that_stops_gives_its_leadership_away_first(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    create(address, "orders", replicas=3, min_insync_replicas="2")
    await_in_sync(address, "orders", 3)
    leader = next(m for m in members if m.node_id == leader_of(address, "orders"))
    produce(address, "orders", [b"before"])

    leader.stop()

    others = bootstrap(*(member for member in members if member is not leader))
    assert leader_of(others, "orders") not in (leader.node_id, -1)
    assert produce(others, "orders", [b"meanwhile"]) == [b"meanwhile"]
    leader.launch()
    await_in_sync(address, "orders", 3)
    assert consume(address, "orders", 2) == [b"before", b"meanwhile"]
    await_same_batches(members, "orders")


def test_too_few_replicas_in_sync_refuse_acks_all_and_lose_nothing(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    create(address, "orders", replicas=3, min_insync_replicas="2")
    await_in_sync(address, "orders", 3)
    leader = next(m for m in members if m.node_id == leader_of(address, "orders"))
    for member in members:
        if member is not leader:
            member.kill()
    await_in_sync(leader.address, "orders", 1)

    refused = produce(leader.address, "orders", [b"lonely"], **{"message.timeout.ms": 3000})
    for member in members:
        if member is not leader:
            member.launch()
    await_in_sync(address, "orders", 3)
    accepted = produce(address, "orders", [b"together"])

    assert refused == []
    assert accepted == [b"together"]
    assert consume(address, "orders", 1) == [b"together"]


def test_a_minimum_that_is_set_for_all_brokers_counts_for_topics_without_their_own(
    kafka: KafkaTools, quick_jvm: tuple[str, ...], members: list[CordwoodMember]
) -> None:
    address = bootstrap(*members)
    tools = JavaTools(kafka, members[0].address, jvm_options=quick_jvm)
    of_all = ("configs", "--entity-type", "brokers", "--entity-default")
    tools.run(*of_all, "--alter", "--add-config", "min.insync.replicas=2")
    create(address, "orders", replicas=3)
    await_in_sync(address, "orders", 3)
    described = tools.run(*of_all, "--describe")
    leader = next(m for m in members if m.node_id == leader_of(address, "orders"))
    for member in members:
        if member is not leader:
            member.kill()
    await_in_sync(leader.address, "orders", 1)

    refused = produce(leader.address, "orders", [b"lonely"], **{"message.timeout.ms": 3000})

    assert "min.insync.replicas=2" in described.output
    assert refused == []


def test_deleted_records_are_gone_on_all_brokers_when_the_client_is_told(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    create(address, "orders", replicas=3)
    await_in_sync(address, "orders", 3)
    produce(address, "orders", [b"%d" % number for number in range(10)])
    admin = AdminClient({"bootstrap.servers": address})

    [deleted] = admin.delete_records([TopicPartition("orders", 0, 7)]).values()

    assert deleted.result(30).low_watermark == 7
    for member in members:
        with cordwood.open(member.data, read_only=True) as store:
            assert store.topic("orders").partition(0).start_offset == 7
