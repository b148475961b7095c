"""Our brokers in a cluster with Kafka's controllers, judged by Kafka's clients and tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop.cluster_members import CordwoodMember
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


def bootstrap(*members: CordwoodMember) -> str:
    return ",".join(member.address for member in members)


def create(
    address: str, name: str, *, partitions: int = 1, replicas: int = 1, **config: str
) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replicas,
        config={key.replace("_", "."): value for key, value in config.items()},
    )
    admin.create_topics([topic])[name].result(30)


def produce(address: str, topic: str, values: list[bytes], **settings: object) -> list[bytes]:
    """Send values; return those that were acknowledged."""
    acknowledged: list[bytes] = []

    def done(error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            acknowledged.append(value)

    producer = Producer({"bootstrap.servers": address, "acks": "all", **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=done)
        producer.poll(0)
    producer.flush(60)
    return acknowledged


def consume(address: str, topic: str, count: int, *, group: str = "readers") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []
        for _ in range(600):
            if len(values) >= count:
                break
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        if values:
            consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


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
