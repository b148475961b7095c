"""A real Kafka broker opens a directory that Cordwood wrote to, and serves it to its clients."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

import cordwood
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools
from interop.kafka_sample import BROKER, KafkaDirectories, KafkaTruth, ask_kafka
from interop.our_appends import append_and_be_killed, append_plan, append_transactions, plan_appends


def broker_over(kafka: KafkaTools, directory: Path) -> KafkaBroker:
    work_dir = directory.with_name("broker")
    return KafkaBroker(
        kafka, log_dirs=[directory], work_dir=work_dir, properties=BROKER, jvm_options=QUICK_START
    )


def troubles(broker: KafkaBroker, topics: list[str]) -> list[str]:
    """What the broker logged above INFO of any of the topics."""
    lines = broker.server_log.read_text().splitlines()
    return [
        line
        for line in lines
        if (" WARN " in line or " ERROR " in line) and any(f"{topic}-" in line for topic in topics)
    ]


def committed_offset(servers: str, group: str, place: tuple[str, int]) -> tuple[int, str]:
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    try:
        found = consumer.committed(KafkaTopicPartition(*place), metadata=True)
        return found.offset, found.metadata
    finally:
        consumer.close()


async def read_committed(servers: str, place: TopicPartition, start: int, end: int) -> list[bytes]:
    """The values that are not of aborted transactions."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    values: list[bytes] = []
    try:
        consumer.assign([place])
        consumer.seek(place, start)
        while await consumer.position(place) < end:
            found = await consumer.getmany(timeout_ms=500)
            values += [record.value for records in found.values() for record in records]
    finally:
        await consumer.stop()
    return values


@pytest.fixture
def directory(kafka_directories: KafkaDirectories, tmp_path: Path) -> Path:
    shutil.copytree(kafka_directories.stopped, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def truth(kafka_directories: KafkaDirectories) -> KafkaTruth:
    return kafka_directories.truth


def test_a_broker_serves_what_cordwood_appended_and_closed(
    kafka: KafkaTools, directory: Path, truth: KafkaTruth
) -> None:
    plan = plan_appends(truth)
    times: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    with cordwood.open(directory) as store:
        append_plan(store, plan)
        committed = append_transactions(store)
        for topic, number in plan:
            log = store.topic(topic).partition(number)
            stamps = [r.timestamp_ms for r in plan[topic, number] if r.timestamp_ms is not None]
            some = {-3, max(stamps) + 1, max(stamps), min(stamps), *stamps[::10]}
            times[topic, number] = [(ms, log.offset_for_time(ms)) for ms in sorted(some)]
        end = store.topic("transactions").partition(0).end_offset

    with broker_over(kafka, directory) as broker:
        servers = broker.bootstrap_servers
        asked = {place: [ms for ms, _ in answers] for place, answers in times.items()}
        found = ask_kafka(servers, truth.records, extra_times=asked)
        assert committed_offset(servers, "billing", ("plain", 0)) == (41, "by cordwood")
        assert committed_offset(servers, "shipping", ("plain", 0)) == (29, "")
        place = TopicPartition("transactions", 0)
        values = asyncio.run(read_committed(servers, place, truth.ends[place], end))

    assert values == committed
    assert troubles(broker, truth.topics) == []
    for (topic, number), before in truth.records.items():
        if topic != "transactions":
            appended = plan.get((topic, number), [])
            assert found.records[topic, number] == before + appended, topic
    for at, answers in times.items():
        by_time = dict(found.times[at])
        assert [(ms, by_time[ms]) for ms, _ in answers] == answers, at


def test_a_broker_serves_what_cordwood_appended_before_it_was_killed(
    kafka: KafkaTools, directory: Path, truth: KafkaTruth
) -> None:
    plan = plan_appends(truth)

    append_and_be_killed(directory, plan)
    with broker_over(kafka, directory) as broker:
        found = ask_kafka(broker.bootstrap_servers, truth.records)
        committed = committed_offset(broker.bootstrap_servers, "billing", ("plain", 0))

    assert committed == (41, "by cordwood")
    for place, before in truth.records.items():
        assert found.records[place] == before + plan.get(place, []), place
