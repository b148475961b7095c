"""Records through a cluster with librdkafka, and what the cluster says of its partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, ElectionType, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop.cluster_members import CordwoodMember, KafkaMember, batches


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
        deadline = time.monotonic() + 60
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        if values:
            consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


def leader_of(address: str, topic: str, partition: int = 0) -> int:
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
    return metadata.topics[topic].partitions[partition].leader


def await_in_sync(address: str, topic: str, count: int, partition: int = 0) -> None:
    """Wait until so many replicas of a partition are in sync."""
    admin = AdminClient({"bootstrap.servers": address})
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
        if found is not None and len(found.isrs) == count and found.leader >= 0:
            return
        assert time.monotonic() < deadline, found and (found.leader, found.isrs)
        time.sleep(0.05)


def lead_as_preferred(address: str) -> None:
    """Wait until all replicas are in sync, and have the preferred ones lead."""
    admin = AdminClient({"bootstrap.servers": address})
    deadline = time.monotonic() + 60
    while True:
        partitions = [
            partition
            for topic in admin.list_topics(timeout=20).topics.values()
            for partition in topic.partitions.values()
        ]
        if all(len(partition.isrs) == len(partition.replicas) for partition in partitions):
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if any(partition.leader != partition.replicas[0] for partition in partitions):
        admin.elect_leaders(ElectionType.PREFERRED, None).result(30)


def await_same_batches(members: Sequence[CordwoodMember | KafkaMember], topic: str) -> bytes:
    """Wait until all replicas have the same bytes; return them."""
    deadline = time.monotonic() + 60
    while True:
        found = [batches(member.data, topic) for member in members]
        if len(set(found)) == 1:
            return found[0]
        assert time.monotonic() < deadline, [len(each) for each in found]
        time.sleep(0.05)
