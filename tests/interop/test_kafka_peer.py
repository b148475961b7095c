"""The judge itself: Kafka starts here, takes records, and its tools read its files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from interop.kafka_peer import KafkaFailedError, KafkaTools, StartBroker

VALUES = [b"one", b"two", b"three"]


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    try:
        for value in values:
            producer.send(topic, value, partition=0).get(timeout=30)
    finally:
        producer.close()


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=30_000,
    )
    try:
        return [record.value for record in islice(consumer, count)]
    finally:
        consumer.close()


def test_the_dump_tool_reads_what_a_client_sent_to_the_broker(
    kafka: KafkaTools, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "logs")
    kafka.topics(broker.bootstrap_servers, "--create", "--topic", "t", "--partitions", "1")
    produce(broker.bootstrap_servers, "t", VALUES)
    broker.stop()

    dump = kafka.dump_segments(
        tmp_path / "logs" / "t-0" / "00000000000000000000.log",
        options=("--deep-iteration", "--print-data-log"),
    )

    assert [line.rpartition("payload: ")[2] for line in dump.splitlines() if "payload" in line] == [
        "one",
        "two",
        "three",
    ]
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_a_killed_broker_comes_back_with_what_it_acknowledged(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    first = start_broker(tmp_path / "logs")
    produce(first.bootstrap_servers, "t", VALUES)

    first.kill()
    second = start_broker(tmp_path / "logs")

    assert consume(second.bootstrap_servers, "t", len(VALUES)) == VALUES


def test_a_tool_that_fails_shows_what_it_printed(kafka: KafkaTools, tmp_path: Path) -> None:
    with pytest.raises(KafkaFailedError, match=r"DumpLogSegments ended with"):
        kafka.dump_segments(tmp_path / "missing.log")
