"""Where consumers stand: seeking, times, ends, pausing, offsets that are gone."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

import cordwood
from wire.judges import run_async

S = 60.0
START_MS = 1_700_000_000_000
T = TypeVar("T")


@pytest.fixture
def filled(broker: cordwood.Broker, topic: str) -> str:
    """Ten records, a second apart: the value of each is its offset."""
    for number in range(10):
        broker.store.topic(topic).append(b"%d" % number, timestamp_ms=START_MS + number * 1000)
    return topic


# --- confluent-kafka ----------------------------------------------------------------------------


@pytest.fixture
def confluent(broker: cordwood.Broker) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "positions",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    yield consumer
    consumer.close()


def next_message(consumer: Consumer) -> Message:
    """The next record, past any news of an end."""
    while True:
        message = consumer.poll(S)
        assert message is not None
        if message.error() is None:
            return message


def next_offset(consumer: Consumer) -> int:
    offset = next_message(consumer).offset()
    assert offset is not None
    return offset


def await_end(consumer: Consumer) -> None:
    """Until the consumer stands at the end and knows it."""
    while True:
        message = consumer.poll(S)
        assert message is not None
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return


def test_confluent_kafka_finds_ends_and_times(confluent: Consumer, filled: str) -> None:
    def at(timestamp_ms: int) -> int:
        place = TopicPartition(filled, 0, timestamp_ms)
        (found,) = confluent.offsets_for_times([place], timeout=S)
        return found.offset

    assert confluent.get_watermark_offsets(TopicPartition(filled, 0), timeout=S) == (0, 10)
    assert at(0) == 0
    assert at(START_MS + 2_500) == 3
    assert at(START_MS + 9_000) == 9
    assert at(START_MS + 9_001) == OFFSET_END


def test_confluent_kafka_seeks(broker: cordwood.Broker, confluent: Consumer, filled: str) -> None:
    confluent.assign([TopicPartition(filled, 0, 5)])
    first = next_offset(confluent)
    confluent.seek(TopicPartition(filled, 0, 2))
    second = next_offset(confluent)
    confluent.seek(TopicPartition(filled, 0, OFFSET_BEGINNING))
    third = next_offset(confluent)
    confluent.seek(TopicPartition(filled, 0, OFFSET_END))
    await_end(confluent)
    broker.store.topic(filled).append(b"10")

    assert (first, second, third) == (5, 2, 0)
    assert next_offset(confluent) == 10


def test_confluent_kafka_pauses_and_resumes(
    broker: cordwood.Broker, confluent: Consumer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    places = [TopicPartition(topic, number, 0) for number in range(2)]
    confluent.assign(places)
    confluent.pause(places[:1])
    for log in broker.store.topic(topic).partitions:
        log.append(b"x")

    running = next_message(confluent)
    confluent.resume(places[:1])
    resumed = next_message(confluent)

    assert (running.partition(), resumed.partition()) == (1, 0)


def test_confluent_kafka_starts_over_where_its_offset_is_gone(
    broker: cordwood.Broker, confluent: Consumer, filled: str
) -> None:
    broker.store.topic(filled).partition(0).delete_before(4)

    confluent.assign([TopicPartition(filled, 0, 1)])

    assert next_offset(confluent) == 4


# --- kafka-python -------------------------------------------------------------------------------


@pytest.fixture
def python(broker: cordwood.Broker) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=S * 1000,
    )
    yield consumer
    consumer.close()


def test_kafka_python_finds_ends_and_times(python: KafkaConsumer, filled: str) -> None:
    place = PythonPartition(filled, 0)

    def at(timestamp_ms: int) -> tuple[int, int] | None:
        found = python.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else (found.offset, found.timestamp)

    assert python.beginning_offsets([place]) == {place: 0}
    assert python.end_offsets([place]) == {place: 10}
    assert at(0) == (0, START_MS)
    assert at(START_MS + 2_500) == (3, START_MS + 3_000)
    assert at(START_MS + 9_001) is None


def test_kafka_python_seeks_pauses_and_resumes(
    broker: cordwood.Broker, python: KafkaConsumer, filled: str
) -> None:
    place = PythonPartition(filled, 0)
    python.assign([place])

    python.seek(place, 5)
    first = next(python).offset
    python.seek_to_beginning(place)
    second = next(python).offset
    python.seek_to_end(place)
    assert python.position(place) == 10
    python.pause(place)
    broker.store.topic(filled).append(b"10")
    while_paused = python.poll(timeout_ms=200)
    python.resume(place)

    assert (first, second) == (5, 0)
    assert while_paused == {}
    assert next(python).offset == 10


def test_kafka_python_starts_over_where_its_offset_is_gone(
    broker: cordwood.Broker, python: KafkaConsumer, filled: str
) -> None:
    broker.store.topic(filled).partition(0).delete_before(4)
    place = PythonPartition(filled, 0)
    python.assign([place])

    python.seek(place, 1)

    assert next(python).offset == 4


# --- aiokafka -----------------------------------------------------------------------------------


def with_aiokafka(
    broker: cordwood.Broker, topic: str, work: Callable[[Any, AioPartition], Awaitable[T]]
) -> T:
    async def run() -> T:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        place = AioPartition(topic, 0)
        consumer.assign([place])
        await consumer.start()
        try:
            return await work(consumer, place)
        finally:
            await consumer.stop()

    return run_async(run)


def test_aiokafka_finds_ends_and_times(broker: cordwood.Broker, filled: str) -> None:
    async def work(consumer: Any, place: AioPartition) -> list[Any]:
        return [
            (await consumer.beginning_offsets([place]))[place],
            (await consumer.end_offsets([place]))[place],
            (await consumer.offsets_for_times({place: START_MS + 2_500}))[place].offset,
            (await consumer.offsets_for_times({place: START_MS + 9_001}))[place],
        ]

    assert with_aiokafka(broker, filled, work) == [0, 10, 3, None]


def test_aiokafka_seeks_pauses_and_resumes(broker: cordwood.Broker, filled: str) -> None:
    async def work(consumer: Any, place: AioPartition) -> list[Any]:
        consumer.seek(place, 5)
        seen = [(await consumer.getone()).offset]
        await consumer.seek_to_beginning(place)
        seen.append((await consumer.getone()).offset)
        await consumer.seek_to_end(place)
        seen.append(await consumer.position(place))
        consumer.pause(place)
        broker.store.topic(filled).append(b"10")
        seen.append(await consumer.getmany(timeout_ms=200))
        consumer.resume(place)
        seen.append((await consumer.getone()).offset)
        return seen

    assert with_aiokafka(broker, filled, work) == [5, 0, 10, {}, 10]


def test_aiokafka_starts_over_where_its_offset_is_gone(
    broker: cordwood.Broker, filled: str
) -> None:
    broker.store.topic(filled).partition(0).delete_before(4)

    async def work(consumer: Any, place: AioPartition) -> int:
        consumer.seek(place, 1)
        offset: int = (await consumer.getone()).offset
        return offset

    assert with_aiokafka(broker, filled, work) == 4
