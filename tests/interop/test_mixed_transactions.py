"""Transactions in a cluster of our brokers and Kafka's: each coordinates for the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.groups.group_offsets import group_partition
from interop.cluster_records import await_in_sync, lead_as_preferred, leader_of
from interop.kafka_peer import KafkaTools
from interop.mixed_cluster import OURS, THEIRS, MixedCluster, mixed_cluster
from interop.transactional_records import (
    committed_offset,
    coordinator_of,
    create_internal_topics,
    id_coordinated_by,
    producer_of,
    read_committed,
    retried,
    send,
    transact,
)

BOTH = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def members(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """A broker of ours and one of Kafka's, which both coordinate transactions and groups."""
    place = tmp_path_factory.mktemp("mixed-transactions")
    with mixed_cluster(kafka, place, BOTH) as (ours, theirs):
        address = f"{ours.address},{theirs.address}"
        create_internal_topics(address)
        lead_as_preferred(address)
        yield ours, theirs


@pytest.fixture
def address(members: MixedCluster) -> str:
    ours, theirs = members
    return f"{ours.address},{theirs.address}"


def create(address: str, name: str) -> None:
    """Partition 0 is led by ours, 1 by Kafka's; each follows the other."""
    topic = NewTopic(name, num_partitions=2, replica_assignment=[[OURS, THEIRS], [THEIRS, OURS]])
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[name].result(30)
    for number in range(2):
        await_in_sync(address, name, 2, number)


@pytest.mark.parametrize("coordinator", [OURS, THEIRS])
def test_a_transaction_over_both_kinds_of_leaders_is_whole(address: str, coordinator: int) -> None:
    topic = f"version-1-by-{coordinator}"
    create(address, topic)
    producer = producer_of(address, id_coordinated_by(address, coordinator, "both"))

    transact(producer, topic, [b"a", b"b"], partitions=2)
    transact(producer, topic, [b"x", b"y"], partitions=2, is_commit=False)
    transact(producer, topic, [b"c", b"d"], partitions=2)

    assert read_committed(address, topic, 4, partitions=2, quiet_s=1) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("coordinator", [OURS, THEIRS])
def test_kafkas_producer_gets_an_epoch_for_each_transaction_of_both_kinds(
    kafka: KafkaTools, address: str, coordinator: int
) -> None:
    topic = f"version-2-by-{coordinator}"
    create(address, topic)
    name = id_coordinated_by(address, coordinator, "perf")

    kafka.run(
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", address, "--topic", topic, "--num-records", "3000",
        "--record-size", "20", "--throughput", "2000", "--transactional-id", name,
        "--transaction-duration-ms", "20",
    )  # fmt: skip
    described = kafka.run(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address,
        "describe", "--transactional-id", name,
    )  # fmt: skip

    assert len(read_committed(address, topic, 3000, partitions=2, quiet_s=1)) == 3000
    [found] = re.findall(rf"^{coordinator}\s+{name}\s+\d+\s+(\d+)\s", described, re.MULTILINE)
    assert int(found) > 5


@pytest.mark.parametrize("coordinator", [OURS, THEIRS])
@pytest.mark.parametrize("group_coordinator", [OURS, THEIRS])
def test_offsets_of_groups_of_both_kinds_count_with_the_transaction(
    address: str, coordinator: int, group_coordinator: int
) -> None:
    topic = f"offsets-{coordinator}-{group_coordinator}"
    create(address, topic)
    group = next(
        f"group-{coordinator}-{number}"
        for number in range(100)
        if group_leader(address, f"group-{coordinator}-{number}") == group_coordinator
    )
    producer = producer_of(address, id_coordinated_by(address, coordinator, "offsets"))
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})

    for offset, is_commit in ((5, True), (6, False), (7, True)):
        producer.begin_transaction()
        send(producer, topic, [b"%d" % offset] * 2, partitions=2)
        places = [TopicPartition(topic, 0, offset)]
        metadata = consumer.consumer_group_metadata()
        retried(partial(producer.send_offsets_to_transaction, places, metadata, 20))
        if is_commit:
            retried(lambda: producer.commit_transaction(20))
        else:
            retried(lambda: producer.abort_transaction(20))
        assert committed_offset(address, group, topic) == (offset if is_commit else 5)
    consumer.close()

    expected = [b"5", b"5", b"7", b"7"]
    assert read_committed(address, topic, 4, partitions=2, quiet_s=1) == expected


def test_a_transaction_moves_between_coordinators_of_both_kinds(
    members: MixedCluster, address: str
) -> None:
    ours, _ = members
    create(address, "moved")
    name = id_coordinated_by(address, OURS, "moved")
    producer = producer_of(address, name)
    producer.begin_transaction()
    send(producer, "moved", [b"a", b"b"], partitions=2)

    ours.stop()  # Kafka's broker takes over what we began
    retried(lambda: producer.commit_transaction(20))
    during = coordinator_of(address, name)
    producer.begin_transaction()
    send(producer, "moved", [b"c", b"d"], partitions=2)
    ours.launch()
    ours.wait_until("is running")
    lead_as_preferred(address)  # and gives it back, while another one is open
    retried(lambda: producer.commit_transaction(20))
    transact(producer, "moved", [b"x", b"y"], partitions=2, is_commit=False)

    assert during == THEIRS
    assert coordinator_of(address, name) == OURS
    values = [b"a", b"b", b"c", b"d"]
    assert read_committed(address, "moved", 4, partitions=2, quiet_s=1) == values


def group_leader(address: str, group: str) -> int:
    return leader_of(address, "__consumer_offsets", group_partition(group, 5))
