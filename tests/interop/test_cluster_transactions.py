"""Transactions over brokers of a cluster: coordinators and leaders die, move, and are Kafka's."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

import cordwood
from cordwood.format.groups.group_offsets import group_partition
from cordwood.log.transactions.transaction_topic import read_transactions
from interop.cluster_members import CordwoodMember
from interop.cluster_records import (
    await_in_sync,
    bootstrap,
    create,
    lead_as_preferred,
    leader_of,
    produce,
)
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.transactional_records import (
    STATE_TOPIC,
    committed_offset,
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
    """All three run, and lead what they should, also after a test that killed one."""
    for member in cluster:
        if member.process is None:
            member.launch()
            member.wait_until("is running")
    lead_as_preferred(bootstrap(*cluster))
    return cluster


def by_id(members: list[CordwoodMember], node_id: int) -> CordwoodMember:
    return next(member for member in members if member.node_id == node_id)


def make(address: str, name: str, partitions: int = 1) -> None:
    create(address, name, partitions=partitions, replicas=3, min_insync_replicas="2")
    for number in range(partitions):
        await_in_sync(address, name, 3, number)


def coordinator_of_group(address: str, group: str) -> int:
    return leader_of(address, "__consumer_offsets", group_partition(group, 5))


def await_records(address: str, topic: str, count: int) -> None:
    """Wait until so many offsets of a topic with three partitions are used."""
    deadline = time.monotonic() + 60
    places = [TopicPartition(topic, number) for number in range(3)]
    found = 0
    while found < count:
        assert time.monotonic() < deadline
        # A new one each time: it goes on asking a leader that is dead.
        consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody"})
        with contextlib.suppress(KafkaException):  # a leader is being elected
            found = sum(consumer.get_watermark_offsets(place, 2)[1] for place in places)
        consumer.close()


def run_cordwood(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


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


def test_a_transaction_survives_the_death_of_its_coordinator(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "coordinated", 3)
    producer = producer_of(address, "mortal")
    transact(producer, "coordinated", [b"before"] * 3, partitions=3)
    coordinator = by_id(members, coordinator_of(address, "mortal"))
    producer.begin_transaction()
    send(producer, "coordinated", [b"during"] * 3, partitions=3)

    coordinator.kill()
    retried(lambda: producer.commit_transaction(20))

    others = bootstrap(*(member for member in members if member is not coordinator))
    assert coordinator_of(others, "mortal") != coordinator.node_id
    transact(producer, "coordinated", [b"after"] * 3, partitions=3)
    expected = sorted([b"before"] * 3 + [b"during"] * 3 + [b"after"] * 3)
    assert read_committed(others, "coordinated", 9, partitions=3, quiet_s=1) == expected


def test_a_transaction_survives_the_death_of_a_leader_of_its_records(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "led", 3)
    leader = by_id(members, leader_of(address, "led", 0))
    other = next(m.node_id for m in members if m is not leader)
    producer = producer_of(address, id_coordinated_by(address, other, "led"))
    producer.begin_transaction()
    send(producer, "led", [b"a", b"b", b"c"], partitions=3)

    leader.kill()
    retried(lambda: producer.commit_transaction(20))
    transact(producer, "led", [b"x", b"y", b"z"], partitions=3, is_commit=False)

    others = bootstrap(*(member for member in members if member is not leader))
    assert read_committed(others, "led", 3, partitions=3, quiet_s=1) == [b"a", b"b", b"c"]
    leader.launch()
    leader.wait_until("is running")
    await_in_sync(address, "led", 3, 0)
    # The replica that was away has the aborted records too, and knows that they are.
    lead_as_preferred(address)
    while leader_of(address, "led", 0) != leader.node_id:
        time.sleep(0.05)
    assert read_committed(address, "led", 3, partitions=3, quiet_s=1) == [b"a", b"b", b"c"]


def test_a_coordinator_that_stops_hands_its_transactions_over_and_gets_them_back(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "moved", 3)
    coordinator = members[0]
    name = id_coordinated_by(address, coordinator.node_id, "moved")
    producer = producer_of(address, name)
    producer.begin_transaction()
    send(producer, "moved", [b"a", b"b", b"c"], partitions=3)

    coordinator.stop()
    send(producer, "moved", [b"d", b"e", b"f"], partitions=3)
    retried(lambda: producer.commit_transaction(20))

    assert coordinator_of(bootstrap(*members[1:]), name) != coordinator.node_id
    coordinator.launch()
    coordinator.wait_until("is running")
    producer.begin_transaction()
    send(producer, "moved", [b"g"])
    lead_as_preferred(address)
    retried(lambda: producer.commit_transaction(20))
    values = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert read_committed(address, "moved", 7, partitions=3, quiet_s=1) == values
    assert coordinator_of(address, name) == coordinator.node_id


def test_offsets_of_a_group_count_with_the_transaction_also_if_their_coordinator_dies(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "source")
    make(address, "sink", 3)
    produce(address, "source", [b"1", b"2", b"3"])
    group = next(
        f"copiers-{number}"
        for number in range(100)
        if coordinator_of_group(address, f"copiers-{number}") == members[2].node_id
    )
    producer = producer_of(address, id_coordinated_by(address, members[0].node_id, "copy"))

    def copy(offset: int, *, is_commit: bool, dies: bool = False) -> None:
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        producer.begin_transaction()
        send(producer, "sink", [b"%d" % offset], partitions=3)
        place = TopicPartition("source", 0, offset)
        metadata = consumer.consumer_group_metadata()
        retried(lambda: producer.send_offsets_to_transaction([place], metadata, 20))
        if dies:
            members[2].kill()
        if is_commit:
            retried(lambda: producer.commit_transaction(20))
        else:
            retried(lambda: producer.abort_transaction(20))
        consumer.close()

    copy(1, is_commit=True)
    assert committed_offset(address, group, "source") == 1
    copy(2, is_commit=False)
    assert committed_offset(address, group, "source") == 1
    copy(3, is_commit=True, dies=True)

    others = bootstrap(*members[:2])
    assert committed_offset(others, group, "source") == 3
    assert read_committed(others, "sink", 2, partitions=3, quiet_s=1) == [b"1", b"3"]


def test_a_second_producer_of_an_id_aborts_the_first_one_on_all_brokers(
    members: list[CordwoodMember],
) -> None:
    address = bootstrap(*members)
    make(address, "fenced", 3)
    first = producer_of(address, "twice")
    first.begin_transaction()
    send(first, "fenced", [b"old"] * 3, partitions=3)

    second = producer_of(address, "twice")
    transact(second, "fenced", [b"new"] * 3, partitions=3)

    assert read_committed(address, "fenced", 3, partitions=3, quiet_s=1) == [b"new"] * 3
    with pytest.raises(KafkaException):
        first.commit_transaction(20)


def test_kafkas_producer_loses_and_repeats_nothing_while_brokers_are_killed(
    kafka: KafkaTools, members: list[CordwoodMember]
) -> None:
    """Transactions version 2: each has an epoch of its own."""
    address = bootstrap(*members)
    make(address, "perf", 3)
    count = 30_000
    command = kafka.command(
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", address, "--topic", "perf", "--num-records", str(count),
        "--record-size", "20", "--throughput", "2000", "--transactional-id", "perf-id",
        "--transaction-duration-ms", "50",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        try:
            await_records(address, "perf", 2_000)
            coordinator = by_id(members, coordinator_of(address, "perf-id"))
            coordinator.kill()
            await_records(address, "perf", 10_000)
            coordinator.launch()
            coordinator.wait_until("is running")
            printed = running.communicate(timeout=120)[0].decode()
        finally:
            running.kill()

    assert f"{count} records sent" in printed, printed
    read = read_committed(address, "perf", count, partitions=3, quiet_s=1)
    assert len(read) == count
    with cordwood.open(members[0].data, read_only=True) as store:
        [state] = [
            each
            for each in read_transactions(store.topic(STATE_TOPIC).opened_partitions)
            if each.transactional_id == "perf-id"
        ]
    assert state.client_version == 2
    assert state.epoch > 10


def test_kafkas_tools_and_ours_see_the_transactions_of_all_brokers(
    kafka: KafkaTools, members: list[CordwoodMember]
) -> None:
    address = bootstrap(*members)
    make(address, "seen", 3)
    names = [id_coordinated_by(address, member.node_id, "seen") for member in members]
    producers = [producer_of(address, name) for name in names]
    for producer in producers:
        producer.begin_transaction()
        send(producer, "seen", [b"x"] * 3, partitions=3)

    tool = "org.apache.kafka.tools.TransactionsCommand"
    listed = kafka.run(tool, "--bootstrap-server", address, "list")
    described = kafka.run(
        tool, "--bootstrap-server", address, "describe", "--transactional-id", names[0]
    )
    hanging = kafka.run(
        tool, "--bootstrap-server", address, "find-hanging", "--topic", "seen",
        "--max-transaction-timeout", "0",
    )  # fmt: skip
    ours = run_cordwood("transactions", "list", "--at", members[0].address, "--json")
    states = {row["transactional_id"]: row["state"] for row in map(json.loads, ours.splitlines())}
    of_one = json.loads(
        run_cordwood("transactions", "describe", names[1], "--at", members[0].address, "--json")
    )

    for name in names:
        assert re.search(rf"^{name}\s.*Ongoing", listed, re.MULTILINE), listed
        assert states[name] == "Ongoing"
    assert "seen-0,seen-1,seen-2" in described
    assert "seen" not in hanging
    assert of_one["partitions"] == ["seen:0", "seen:1", "seen:2"]
    for producer in producers:
        retried(functools.partial(producer.abort_transaction, 20))
