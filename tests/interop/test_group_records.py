"""Records of groups: Kafka's as we read them, ours as Kafka's tool prints them."""

from __future__ import annotations

import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

import cordwood
from cordwood.format.groups.group_metadata import decode_group_metadata, encode_group_metadata
from cordwood.format.groups.group_offsets import (
    GroupMetadataKey,
    OffsetKey,
    decode_group_key,
    decode_offset_value,
    encode_group_metadata_key,
    encode_offset_key,
    encode_offset_value,
)
from fakes.coordinator_bench import CoordinatorBench
from interop.kafka_peer import KafkaTools, StartBroker


def group_records(directory: Path) -> list[tuple[bytes, bytes | None]]:
    with cordwood.open(directory, read_only=True) as store:
        topic = store.topic("__consumer_offsets")
        return [
            (record.key, record.value)
            for log in topic.partitions
            for record in log.read()
            if record.key is not None
        ]


def read_one(consumer: KafkaConsumer) -> None:
    deadline_s = time.monotonic() + 60
    while not consumer.poll(timeout_ms=200):
        assert time.monotonic() < deadline_s, "nothing came"


def run_a_member(servers: str) -> None:
    """Join as an instance, read, commit, and leave."""
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send("orders", b"paid").get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    read_one(consumer)  # without a position there would be nothing to commit
    consumer.commit()
    consumer.close()


def test_what_kafka_writes_of_groups_is_what_we_would_write(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(auto_create_topics_enable="true")
    run_a_member(broker.bootstrap_servers)
    broker.stop()

    records = group_records(tmp_path / "kafka-logs")

    kinds = set()
    for key, value in records:
        decoded = decode_group_key(key)
        kinds.add(type(decoded))
        if isinstance(decoded, GroupMetadataKey):
            assert encode_group_metadata_key(decoded) == key
            if value is not None:
                assert encode_group_metadata(decode_group_metadata(value)) == value
        elif isinstance(decoded, OffsetKey):
            assert encode_offset_key(decoded) == key
            if value is not None:
                assert encode_offset_value(decode_offset_value(value)) == value
    assert kinds == {GroupMetadataKey, OffsetKey}
    saved = [
        decode_group_metadata(value)
        for key, value in records
        if value is not None and isinstance(decode_group_key(key), GroupMetadataKey)
    ]
    assert any(group.members and group.members[0].assignment for group in saved)
    assert saved[-1].members == ()


def test_kafka_s_tool_prints_the_groups_we_save(kafka: KafkaTools, tmp_path: Path) -> None:
    bench = CoordinatorBench()
    member = bench.stable()
    [record] = bench.store.topic("__consumer_offsets").partition(0).read()
    with cordwood.open(tmp_path / "ours") as store:
        store.offsets_topic.ensure().append(record.value, key=record.key, partition=0)
    log = next(iter((tmp_path / "ours").glob("__consumer_offsets-*/*.log")))

    printed = kafka.dump_segments(log, options=("--offsets-decoder",))

    [line] = [line for line in printed.splitlines() if "payload" in line]
    assert '"group":"billing"' in line
    assert f'"memberId":"{member}"' in line
    assert '"protocolType":"consumer"' in line
    assert '"sessionTimeout":10000' in line
