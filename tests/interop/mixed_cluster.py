"""A cluster of one broker of ours and one of Kafka's, and partitions that move between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_in_sync
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers

OURS: Final = 1
THEIRS: Final = 101
ALONE: Final = {"offsets.topic.replication.factor": "1"}
MixedCluster = tuple[CordwoodMember, KafkaMember]


@contextmanager
def mixed_cluster(
    kafka: KafkaTools, place: Path, properties: Mapping[str, str] = ALONE
) -> Iterator[MixedCluster]:
    """Both brokers, which run while the block does."""
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        ours = CordwoodMember(controllers, place / "ours", node_id=OURS, properties=properties)
        theirs = KafkaMember(
            kafka, controllers, place / "theirs", node_id=THEIRS, properties=properties
        )
        yield running.enter_context(ours), running.enter_context(theirs)


def create_on(address: str, name: str, *replicas: int, **config: str) -> None:
    """A topic with one partition; the first replica leads."""
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, num_partitions=1, replica_assignment=[list(replicas)], config=dotted)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[name].result(30)
    await_in_sync(address, name, len(replicas))


def run_tool(tools: KafkaTools, name: str, *arguments: str) -> str:
    return tools.run(f"org.apache.kafka.tools.{name}", *arguments)


def configure(tools: KafkaTools, address: str, kind: str, name: str, *change: str) -> str:
    """``kafka-configs.sh`` for one entity."""
    return tools.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", address, "--entity-type", kind,
        "--entity-name", name, *(change or ("--describe",)),
    )  # fmt: skip


def reassign(tools: KafkaTools, address: str, plan: Path, *arguments: str) -> str:
    return run_tool(
        tools, "reassign.ReassignPartitionsCommand", "--bootstrap-server", address,
        "--reassignment-json-file", str(plan), *arguments,
    )  # fmt: skip


def plan_of(directory: Path, topic: str, *replicas: int) -> Path:
    """The file that moves partition 0 of a topic."""
    plan = directory / "plan.json"
    moved = {"topic": topic, "partition": 0, "replicas": list(replicas)}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    return plan
