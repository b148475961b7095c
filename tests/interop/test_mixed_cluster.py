"""Our brokers and Kafka's in one cluster: each follows the other, and partitions move between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from interop.cluster_members import batches
from interop.cluster_records import (
    await_in_sync,
    await_same_batches,
    consume,
    leader_of,
    produce,
)
from interop.kafka_peer import KafkaTools
from interop.mixed_cluster import (
    OURS,
    THEIRS,
    MixedCluster,
    create_on,
    mixed_cluster,
    plan_of,
    reassign,
    run_tool,
)

VALUES = [b"value %d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def cluster(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with mixed_cluster(kafka, tmp_path_factory.mktemp("mixed")) as running:
        yield running


def test_a_kafka_broker_follows_ours_batch_for_batch(
    cluster: MixedCluster,
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "ours-leads", OURS, THEIRS)

    acknowledged = produce(ours.address, "ours-leads", VALUES)

    assert sorted(acknowledged) == sorted(VALUES)
    await_in_sync(ours.address, "ours-leads", 2)
    assert len(await_same_batches([ours, theirs], "ours-leads")) > 10_000


def test_our_broker_follows_kafka_batch_for_batch_and_its_directory_can_be_read(
    cluster: MixedCluster,
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "kafka-leads", THEIRS, OURS)

    acknowledged = produce(theirs.address, "kafka-leads", VALUES, **{"compression.type": "lz4"})

    assert sorted(acknowledged) == sorted(VALUES)
    await_in_sync(theirs.address, "kafka-leads", 2)
    await_same_batches([ours, theirs], "kafka-leads")
    deadline = time.monotonic() + 60
    with cordwood.open(ours.data, read_only=True) as store:
        log = store.topic("kafka-leads").partition(0)
        while log.high_watermark < len(VALUES):
            assert time.monotonic() < deadline, log.high_watermark
            time.sleep(0.05)
        assert [record.value for record in log.read()] == VALUES
    with pytest.raises(cordwood.errors.StorageError, match="belongs to a broker of a cluster"):
        cordwood.open(ours.data)


def test_a_partition_moves_from_kafka_to_us_and_back(
    kafka: KafkaTools, cluster: MixedCluster, tmp_path: Path
) -> None:
    ours, theirs = cluster
    address = f"{ours.address},{theirs.address}"
    create_on(address, "moving", THEIRS)
    first = produce(address, "moving", VALUES)

    def move(node_id: int) -> None:
        plan = plan_of(tmp_path, "moving", node_id)
        reassign(kafka, address, plan, "--execute")
        deadline = time.monotonic() + 60
        while leader_of(address, "moving") != node_id:
            assert time.monotonic() < deadline, reassign(kafka, address, plan, "--verify")
            time.sleep(0.1)

    move(OURS)
    before = batches(ours.data, "moving")
    second = produce(address, "moving", [b"more"])
    move(THEIRS)

    assert len(first) == len(VALUES)
    assert second == [b"more"]
    assert batches(theirs.data, "moving").startswith(before)
    assert consume(address, "moving", len(VALUES) + 1, group="movers") == [*VALUES, b"more"]
    deadline = time.monotonic() + 60
    while (ours.data / "moving-0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_kafka_topics_describes_what_is_where(kafka: KafkaTools, cluster: MixedCluster) -> None:
    ours, _ = cluster
    create_on(ours.address, "described", OURS, THEIRS)

    printed = run_tool(
        kafka, "TopicCommand", "--bootstrap-server", ours.address, "--describe", "--topic",
        "described",
    )  # fmt: skip

    assert f"Leader: {OURS}" in printed
    assert f"Replicas: {OURS},{THEIRS}" in printed
    assert "ReplicationFactor: 2" in printed
