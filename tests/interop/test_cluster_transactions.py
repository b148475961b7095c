"""Transactions over brokers of a cluster: coordinators and leaders die, move, and are Kafka's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from interop.cluster_members import CordwoodMember
from interop.cluster_records import await_in_sync, bootstrap, create, leader_of, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.transactional_records import (
    coordinator_of,
    id_coordinated_by,
    producer_of,
    read_committed,
    retried,
    send,
    transact,
)

IDS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[CordwoodMember]]:
    place = tmp_path_factory.mktemp("transactions")
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        yield [
            running.enter_context(
                CordwoodMember(controllers, place / f"broker-{node_id}", node_id=node_id)
            )
            for node_id in IDS
        ]


@pytest.fixture
def members(cluster: list[CordwoodMember]) -> list[CordwoodMember]:
    """All three run, also after a test that killed one."""
    for member in cluster:
        if member.process is None:
            member.launch()
            member.wait_until("is running")
    return cluster


def by_id(members: list[CordwoodMember], node_id: int) -> CordwoodMember:
    return next(member for member in members if member.node_id == node_id)


def make(address: str, name: str, partitions: int = 1) -> None:
    create(address, name, partitions=partitions, replicas=3, min_insync_replicas="2")
    for number in range(partitions):
        await_in_sync(address, name, 3, number)


def test_committed_readers_see_what_was_committed_over_several_leaders(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "orders", 3)
    producer = producer_of(address, "billing")

    transact(producer, "orders", [b"a", b"b", b"c"], partitions=3)
    transact(producer, "orders", [b"x", b"y", b"z"], partitions=3, is_commit=False)
    transact(producer, "orders", [b"d", b"e", b"f"], partitions=3)

    expected = [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert read_committed(address, "orders", 6, partitions=3, quiet_s=1) == expected
