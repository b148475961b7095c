"""Transactions as confluent-kafka, aiokafka and kafka-python make them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

import cordwood
from cordwood.format.transaction_records import TransactionState
from wire.served_process import ServedProcess
from wire.waiting import await_completion, await_true

TIMEOUT_S = 60


def producer(broker: cordwood.Broker | ServedProcess, id_: str, **config: Any) -> Producer:
    address = broker.address if isinstance(broker, ServedProcess) else broker.bootstrap_servers
    made = Producer(
        {"bootstrap.servers": address, "transactional.id": id_, "log_level": 0, **config}
    )
    made.init_transactions(TIMEOUT_S)
    return made


def committed(broker: cordwood.Broker, topic: str) -> list[bytes | None]:
    await_completion(broker)
    return [
        record.value
        for log in broker.store.topic(topic).partitions
        for record in log.read(isolation="read_committed")
    ]


def consumed(address: str, topic: str, partitions: int, isolation: str) -> list[bytes]:
    """All records of a topic, as a consumer reads them up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[bytes] = []
    ends: set[int | None] = set()
    while len(ends) < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            ends.add(message.partition())
        else:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(partitions=3)


# --- confluent-kafka -------------------------------------------------------------------------


def test_a_consumer_reads_what_was_committed_and_nothing_else(
    broker: cordwood.Broker, topic: str, names: Iterator[str]
) -> None:
    writer = producer(broker, next(names))
    for number in range(6):
        writer.begin_transaction()
        for partition in range(3):
            writer.produce(topic, b"%d" % number, partition=partition)
        writer.flush()
        if number % 2:
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)

    await_completion(broker)
    address = broker.bootstrap_servers
    assert sorted(consumed(address, topic, 3, "read_committed")) == sorted([b"0", b"2", b"4"] * 3)
    assert sorted(consumed(address, topic, 3, "read_uncommitted")) == sorted(
        [b"%d" % number for number in range(6)] * 3
    )


def test_an_open_transaction_holds_committed_readers_back(
    broker: cordwood.Broker, topic: str, names: Iterator[str]
) -> None:
    one, two = producer(broker, next(names)), producer(broker, next(names))
    for writer, value in ((one, b"one"), (two, b"two")):
        writer.begin_transaction()
        writer.produce(topic, value, partition=0)
        writer.flush()

    two.commit_transaction(TIMEOUT_S)
    await_completion(broker)
    assert consumed(broker.bootstrap_servers, topic, 1, "read_committed") == []
    one.commit_transaction(TIMEOUT_S)
    await_completion(broker)

    assert consumed(broker.bootstrap_servers, topic, 1, "read_committed") == [b"one", b"two"]


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    broker: cordwood.Broker, topic: str, names: Iterator[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="cordwood.log.transactions")
    id_ = next(names)
    first = producer(broker, id_)
    first.begin_transaction()
    first.produce(topic, b"zombie")
    first.flush()

    second = producer(broker, id_)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    second.begin_transaction()
    second.produce(topic, b"alive")
    second.commit_transaction(TIMEOUT_S)

    assert fenced.value.args[0].fatal()
    assert committed(broker, topic) == [b"alive"]
    assert "another producer has its id" in caplog.text
    assert f"transactional id {id_}: refused a producer" in caplog.text


def test_offsets_are_committed_with_the_records_that_came_of_them(
    broker: cordwood.Broker, topic: str, make_topic: Callable[..., str], names: Iterator[str]
) -> None:
    results, group = make_topic(), next(names)
    for number in range(10):
        broker.store.topic(topic).partition(0).append(b"%d" % number)
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    writer = producer(broker, next(names))

    for is_commit in (True, False, True):
        messages = reader.consume(3, TIMEOUT_S)
        writer.begin_transaction()
        for message in messages:
            writer.produce(results, message.value())
        writer.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), TIMEOUT_S
        )
        if is_commit:
            writer.commit_transaction(TIMEOUT_S)
        else:
            writer.flush()
            writer.abort_transaction(TIMEOUT_S)
            await_completion(broker)
            for place in reader.committed(reader.assignment()):
                reader.seek(place)

    await_completion(broker)
    places = {(p.topic, p.partition): p.offset for p in reader.committed(reader.assignment())}
    reader.close()
    assert places[topic, 0] == len(committed(broker, results)) == 6
    assert committed(broker, results) == [b"%d" % number for number in range(6)]


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with cordwood.Broker(config=config, topics=["t"]) as broker:
        writer = producer(broker, "slow", **{"transaction.timeout.ms": 1000})
        writer.begin_transaction()
        writer.produce("t", b"late")
        writer.flush()
        log = broker.store.topic("t").partition(0)

        await_true(lambda: log.last_stable_offset == log.high_watermark == 2)

        with pytest.raises(KafkaException):
            writer.commit_transaction(TIMEOUT_S)
        assert committed(broker, "t") == []


def test_a_deleted_topic_does_not_hold_its_transaction_up(
    broker: cordwood.Broker, topic: str, make_topic: Callable[..., str], names: Iterator[str]
) -> None:
    other = make_topic()
    writer = producer(broker, next(names))
    writer.begin_transaction()
    writer.produce(topic, b"a", partition=0)
    writer.produce(other, b"b")
    writer.flush()

    broker.store.delete_topic(other)
    writer.commit_transaction(TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(topic, b"c", partition=0)
    writer.commit_transaction(TIMEOUT_S)

    assert committed(broker, topic) == [b"a", b"c"]


@pytest.mark.parametrize("step", ["begun", "sent", "committed"])
def test_a_broker_that_is_killed_loses_no_transaction(tmp_path: Path, step: str) -> None:
    """It is killed with SIGKILL, comes back at the same address, and the producer goes on."""
    with ServedProcess(tmp_path / "data") as broker:
        writer = producer(broker, "billing")
        for number in range(6):
            writer.begin_transaction()
            if step == "begun" and number % 2:
                broker.kill()
                broker.start()
            writer.produce("orders", b"%d" % number)
            writer.flush()
            if step == "sent" and number % 2:
                broker.kill()
                broker.start()
            writer.commit_transaction(TIMEOUT_S)
            if step == "committed" and number % 2:
                broker.kill()
                broker.start()

        producer(broker, "billing")  # it waits until the last transaction is complete
        values = consumed(broker.address, "orders", 1, "read_committed")
        assert values == [b"%d" % number for number in range(6)]


# --- aiokafka and kafka-python ---------------------------------------------------------------


def test_aiokafka_commits_and_aborts(
    broker: cordwood.Broker, topic: str, names: Iterator[str]
) -> None:
    id_, group = next(names), next(names)

    async def run() -> None:
        writer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=id_)
        await writer.start()
        try:
            async with writer.transaction():
                await writer.send_and_wait(topic, b"a", partition=1)
                await writer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 5}, group)
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"b", partition=1)
            await writer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 9}, group)
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send_and_wait(topic, b"c", partition=2)
        finally:
            await writer.stop()

    asyncio.run(run())

    assert committed(broker, topic) == [b"a", b"c"]
    assert broker.store.group(group).committed() == {(topic, 0): 5}


def test_kafka_python_commits_and_aborts(
    broker: cordwood.Broker, topic: str, names: Iterator[str]
) -> None:
    id_ = next(names)
    writer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=id_)
    writer.init_transactions()

    writer.begin_transaction()
    writer.send(topic, b"a", partition=0).get(TIMEOUT_S)
    writer.commit_transaction()
    writer.begin_transaction()
    writer.send(topic, b"b", partition=0).get(TIMEOUT_S)
    writer.abort_transaction()
    writer.begin_transaction()
    writer.send(topic, b"c", partition=0).get(TIMEOUT_S)
    writer.commit_transaction()
    writer.close()

    assert committed(broker, topic) == [b"a", b"c"]
    metadata = broker.store.transactions.find(id_)
    assert metadata is not None
    assert metadata.state is TransactionState.COMPLETE_COMMIT


def test_the_library_and_clients_share_one_coordinator(
    broker: cordwood.Broker, topic: str, names: Iterator[str]
) -> None:
    id_ = next(names)
    with broker.store.transaction(id_) as transaction:
        transaction.append(topic, b"library", partition=0)

    writer = producer(broker, id_)
    writer.begin_transaction()
    writer.produce(topic, b"client", partition=0)
    writer.commit_transaction(TIMEOUT_S)
    with (
        pytest.raises(cordwood.errors.ProducerFencedError),
        broker.store.transaction(id_) as transaction,
    ):
        transaction.append(topic, b"fenced", partition=0)

    assert committed(broker, topic) == [b"library", b"client"]
