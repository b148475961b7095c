"""Transactions through a cluster with librdkafka, and where their coordinators are."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cordwood.format.transaction_records import transaction_partition
from interop.cluster_records import leader_of

STATE_TOPIC = "__transaction_state"
_PATIENCE_S = 60.0


def producer_of(address: str, transactional_id: str, **settings: object) -> Producer:
    """A transactional producer that has its id and epoch."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 1,
            **settings,
        }
    )
    retried(lambda: producer.init_transactions(20))
    return producer


def create_internal_topics(address: str) -> None:
    """Have the topics of both coordinators created, and wait until they coordinate."""
    producer_of(address, "warm-up")
    committed_offset(address, "warm-up", "nothing")


def committed_offset(address: str, group: str, topic: str) -> int:
    """The committed offset of partition 0, once no transaction may still change it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while True:
            try:
                return int(consumer.committed([TopicPartition(topic, 0)], 10)[0].offset)
            except KafkaException:  # librdkafka does not look for a coordinator again
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        consumer.close()


def retried(step: object) -> None:
    """Repeat a step of a transaction as long as librdkafka says that it can be."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            step()  # type: ignore[operator]
            return
        except KafkaException as error:
            assert error.args[0].retriable(), error
            assert time.monotonic() < deadline, error


def send(producer: Producer, topic: str, values: Iterable[bytes], partitions: int = 1) -> None:
    """Send values, one after the other, and wait until all are acknowledged."""
    failed: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
    assert producer.flush(_PATIENCE_S) == 0
    assert not failed, failed


def transact(
    producer: Producer,
    topic: str,
    values: Iterable[bytes],
    *,
    partitions: int = 1,
    is_commit: bool = True,
) -> None:
    """One transaction."""
    producer.begin_transaction()
    send(producer, topic, values, partitions)
    if is_commit:
        retried(lambda: producer.commit_transaction(20))
    else:
        retried(lambda: producer.abort_transaction(20))


def read_committed(
    address: str, topic: str, count: int, *, partitions: int = 1, quiet_s: float = 0.0
) -> list[bytes]:
    """What committed readers see, sorted; for `quiet_s` after the last one it must not be more."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        values: list[bytes] = []
        deadline = time.monotonic() + _PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        deadline = time.monotonic() + quiet_s
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        return sorted(values)
    finally:
        consumer.close()


def coordinator_of(address: str, transactional_id: str) -> int:
    """The broker that coordinates an id, by the metadata of the cluster."""
    admin = AdminClient({"bootstrap.servers": address})
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        count = len(admin.list_topics(STATE_TOPIC, timeout=10).topics[STATE_TOPIC].partitions)
        if count:
            number = transaction_partition(transactional_id, count)
            leader = leader_of(address, STATE_TOPIC, number)
            if leader >= 0:
                return leader
        assert time.monotonic() < deadline
        time.sleep(0.05)


def id_coordinated_by(address: str, node_id: int, prefix: str = "id") -> str:
    """A transactional id whose coordinator is a certain broker."""
    coordinator_of(address, prefix)  # the topic exists after it
    admin = AdminClient({"bootstrap.servers": address})
    partitions = admin.list_topics(STATE_TOPIC, timeout=10).topics[STATE_TOPIC].partitions
    for number in range(1000):
        name = f"{prefix}-{number}"
        if partitions[transaction_partition(name, len(partitions))].leader == node_id:
            return name
    raise AssertionError(f"broker {node_id} coordinates nothing")
