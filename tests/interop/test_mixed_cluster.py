"""Our brokers and Kafka's in one cluster: each follows the other, and partitions move between."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import cordwood
from interop.cluster_members import CordwoodMember, KafkaMember, batches
from interop.cluster_records import (
    await_in_sync,
    await_same_batches,
    consume,
    leader_of,
    produce,
)
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers

OURS, THEIRS = 1, 101
VALUES = [b"value %d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CordwoodMember, KafkaMember]]:
    """A broker of ours and one of Kafka's."""
    place = tmp_path_factory.mktemp("mixed")
    alone = {"offsets.topic.replication.factor": "1"}
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        ours = running.enter_context(
            CordwoodMember(controllers, place / "ours", node_id=OURS, properties=alone)
        )
        theirs = running.enter_context(
            KafkaMember(kafka, controllers, place / "theirs", node_id=THEIRS, properties=alone)
        )
        yield ours, theirs


def create_on(address: str, name: str, *replicas: int) -> None:
    """A topic with one partition; the first replica leads."""
    topic = NewTopic(name, num_partitions=1, replica_assignment=[list(replicas)])
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[name].result(30)
    await_in_sync(address, name, len(replicas))


def run_tool(tools: KafkaTools, name: str, *arguments: str) -> str:
    return tools.run(f"org.apache.kafka.tools.{name}", *arguments)


def test_a_kafka_broker_follows_ours_batch_for_batch(
    cluster: tuple[CordwoodMember, KafkaMember],
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "ours-leads", OURS, THEIRS)

    acknowledged = produce(ours.address, "ours-leads", VALUES)

    assert sorted(acknowledged) == sorted(VALUES)
    await_in_sync(ours.address, "ours-leads", 2)
    assert len(await_same_batches([ours, theirs], "ours-leads")) > 10_000


def test_our_broker_follows_kafka_batch_for_batch_and_its_directory_can_be_read(
    cluster: tuple[CordwoodMember, KafkaMember],
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "kafka-leads", THEIRS, OURS)

    acknowledged = produce(theirs.address, "kafka-leads", VALUES, **{"compression.type": "lz4"})

    assert sorted(acknowledged) == sorted(VALUES)
    await_in_sync(theirs.address, "kafka-leads", 2)
    await_same_batches([ours, theirs], "kafka-leads")
    deadline = time.monotonic() + 10
    with cordwood.open(ours.data, read_only=True) as store:
        log = store.topic("kafka-leads").partition(0)
        while log.high_watermark < len(VALUES):
            assert time.monotonic() < deadline, log.high_watermark
            time.sleep(0.05)
        assert [record.value for record in log.read()] == VALUES
    with pytest.raises(cordwood.errors.StorageError, match="belongs to a broker of a cluster"):
        cordwood.open(ours.data)


def test_a_partition_moves_from_kafka_to_us_and_back(
    kafka: KafkaTools, cluster: tuple[CordwoodMember, KafkaMember], tmp_path: Path
) -> None:
    ours, theirs = cluster
    address = f"{ours.address},{theirs.address}"
    create_on(address, "moving", THEIRS)
    first = produce(address, "moving", VALUES)

    def move(node_id: int) -> None:
        plan = tmp_path / f"to-{node_id}.json"
        plan.write_text(
            json.dumps(
                {
                    "version": 1,
                    "partitions": [{"topic": "moving", "partition": 0, "replicas": [node_id]}],
                }
            )
        )
        arguments = ("--bootstrap-server", address, "--reassignment-json-file", str(plan))
        run_tool(kafka, "reassign.ReassignPartitionsCommand", *arguments, "--execute")
        deadline = time.monotonic() + 60
        while leader_of(address, "moving") != node_id:
            assert time.monotonic() < deadline, run_tool(
                kafka, "reassign.ReassignPartitionsCommand", *arguments, "--verify"
            )
            time.sleep(0.1)

    move(OURS)
    before = batches(ours.data, "moving")
    second = produce(address, "moving", [b"more"])
    move(THEIRS)

    assert len(first) == len(VALUES)
    assert second == [b"more"]
    assert batches(theirs.data, "moving").startswith(before)
    assert consume(address, "moving", len(VALUES) + 1, group="movers") == [*VALUES, b"more"]
    deadline = time.monotonic() + 30
    while (ours.data / "moving-0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_kafka_topics_describes_what_is_where(
    kafka: KafkaTools, cluster: tuple[CordwoodMember, KafkaMember]
) -> None:
    ours, _ = cluster
    create_on(ours.address, "described", OURS, THEIRS)

    printed = run_tool(
        kafka, "TopicCommand", "--bootstrap-server", ours.address, "--describe", "--topic",
        "described",
    )  # fmt: skip

    assert f"Leader: {OURS}" in printed
    assert f"Replicas: {OURS},{THEIRS}" in printed
    assert "ReplicationFactor: 2" in printed
