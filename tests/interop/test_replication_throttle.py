"""Throttled replicas: our leader and a Kafka follower, our follower and a Kafka leader."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.cluster_records import await_in_sync, await_same_batches, produce
from interop.kafka_peer import KafkaTools
from interop.mixed_cluster import (
    OURS,
    THEIRS,
    MixedCluster,
    configure,
    create_on,
    mixed_cluster,
    plan_of,
    reassign,
)

VALUES = [b"%07d" % number * 1_000 for number in range(400)]  # 2.8 MB
BATCHES = {"batch.size": "50000"}
RATE = 500_000


@pytest.fixture(scope="module")
def cluster(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with mixed_cluster(kafka, tmp_path_factory.mktemp("throttled")) as running:
        yield running


@pytest.mark.parametrize(
    ("leader", "side", "node"), [(OURS, "leader", OURS), (THEIRS, "follower", OURS)]
)
def test_a_new_replica_is_copied_no_faster_than_the_limit_of_our_side(
    kafka: KafkaTools, cluster: MixedCluster, tmp_path: Path, leader: int, side: str, node: int
) -> None:
    ours, theirs = cluster
    topic = f"limited-{side}"
    create_on(ours.address, topic, leader)
    assert len(produce(ours.address, topic, VALUES, **BATCHES)) == len(VALUES)
    size = sum(map(len, VALUES))
    rate, replicas = f"{side}.replication.throttled.rate", f"{side}.replication.throttled.replicas"
    configure(
        kafka, ours.address, "brokers", str(node), "--alter", "--add-config", f"{rate}={RATE}"
    )
    configure(
        kafka, theirs.address, "topics", topic, "--alter", "--add-config", f"{replicas}=0:{node}"
    )
    assert f"{rate}={RATE}" in configure(kafka, ours.address, "brokers", str(node))
    follower = THEIRS if leader == OURS else OURS

    began_s = time.monotonic()
    reassign(kafka, ours.address, plan_of(tmp_path, topic, leader, follower), "--execute")
    await_in_sync(ours.address, topic, 2)
    took_s = time.monotonic() - began_s

    await_same_batches([ours, theirs], topic)
    assert took_s > (size - 1.5 * RATE) / RATE  # the first second is free, and a batch is whole
    assert took_s < 4 * size / RATE + 10
    configure(kafka, ours.address, "brokers", str(node), "--alter", "--delete-config", rate)


def test_kafkas_tool_sets_a_limit_raises_it_and_takes_it_away(
    kafka: KafkaTools, cluster: MixedCluster, tmp_path: Path
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "tooled", OURS)
    produce(ours.address, "tooled", VALUES, **BATCHES)
    plan = plan_of(tmp_path, "tooled", THEIRS, OURS)

    reassign(kafka, ours.address, plan, "--execute", "--throttle", "10000")
    by_broker = configure(kafka, ours.address, "brokers", str(OURS))
    by_topic = configure(kafka, ours.address, "topics", "tooled")
    reassign(kafka, ours.address, plan, "--execute", "--additional", "--throttle", "50000000")
    await_in_sync(ours.address, "tooled", 2)
    verified = reassign(kafka, ours.address, plan, "--verify")

    assert "leader.replication.throttled.rate=10000" in by_broker
    assert "leader.replication.throttled.replicas=0:1" in by_topic
    assert "Clearing broker-level throttles" in verified
    assert "throttled" not in configure(kafka, ours.address, "topics", "tooled")
    for line in configure(kafka, ours.address, "brokers", str(OURS)).splitlines():
        assert not line.strip().startswith("leader.replication.throttled.rate=")
    await_same_batches([ours, theirs], "tooled")


def test_our_command_sets_a_limit_raises_it_and_takes_it_away(
    kafka: KafkaTools, cluster: MixedCluster, tmp_path: Path
) -> None:
    ours, theirs = cluster
    create_on(ours.address, "commanded", OURS)
    produce(ours.address, "commanded", VALUES, **BATCHES)
    plan = plan_of(tmp_path, "commanded", THEIRS, OURS)
    rates = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]

    def command(*arguments: str | Path) -> str:
        words = ["cluster", "reassign", *map(str, arguments), "--at", theirs.address]
        ended = subprocess.run(
            [sys.executable, "-m", "cordwood", *words], capture_output=True, text=True, check=False
        )
        return ended.stdout + ended.stderr

    said = command("--plan", plan, "--throttle", "10000")
    by_broker = [configure(kafka, ours.address, "brokers", str(at)) for at in (OURS, THEIRS)]
    by_topic = configure(kafka, ours.address, "topics", "commanded")
    early = command("--remove-throttle")
    raised = command("--throttle", "50MB")
    await_in_sync(ours.address, "commanded", 2)
    done = command("--remove-throttle")

    assert "reassign --remove-throttle" in said
    for text in by_broker:
        assert all(f"{rate}=10000" in text for rate in rates), text
    assert f"leader.replication.throttled.replicas=0:{OURS}" in by_topic
    assert f"follower.replication.throttled.replicas=0:{THEIRS}" in by_topic
    assert "still move" in early
    assert "limited copies to" in raised
    assert "removed the limits" in done
    assert "throttled" not in configure(kafka, ours.address, "topics", "commanded")
    for at in (OURS, THEIRS):
        for line in configure(kafka, ours.address, "brokers", str(at)).splitlines():
            assert not line.strip().startswith(tuple(f"{rate}=" for rate in rates)), line
    await_same_batches([ours, theirs], "commanded")


def test_replicas_in_sync_stay_in_sync_under_a_limit_of_nothing(
    kafka: KafkaTools, cluster: MixedCluster
) -> None:
    ours, theirs = cluster
    rates = "leader.replication.throttled.rate=1,follower.replication.throttled.rate=1"
    configure(kafka, ours.address, "brokers", str(OURS), "--alter", "--add-config", rates)
    admin = AdminClient({"bootstrap.servers": ours.address})
    for topic, replicas in (("calm-1", [OURS, THEIRS]), ("calm-2", [THEIRS, OURS])):
        config = {
            "min.insync.replicas": "2",
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "*",
        }
        new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=config)
        admin.create_topics([new])[topic].result(30)
        await_in_sync(ours.address, topic, 2)

        assert len(produce(ours.address, topic, VALUES, **BATCHES)) == len(VALUES)

        await_same_batches([ours, theirs], topic)
        await_in_sync(ours.address, topic, 2)
