"""Cordwood opens a directory that a real Kafka broker wrote and sees in it what Kafka sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

import cordwood
from cordwood import PartitionLog, ReadOnlyStore, Record
from cordwood.errors import DirectoryLockedError
from cordwood.format.batch_header import decode_batch_header, stamp
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.quantities import NO_LEADER_EPOCH, Offset
from interop.kafka_peer import KafkaFailedError, StartBroker
from interop.kafka_sample import CODECS, GROUPS, KafkaDirectories, KafkaTruth


@pytest.fixture(params=["live", "killed", "stopped"])
def store(
    request: pytest.FixtureRequest, kafka_directories: KafkaDirectories
) -> Iterator[ReadOnlyStore]:
    with cordwood.open(kafka_directories.in_state(request.param), read_only=True) as opened:
        yield opened


@pytest.fixture
def truth(kafka_directories: KafkaDirectories) -> KafkaTruth:
    return kafka_directories.truth


def plain(record: Record) -> Record:
    return record._replace(headers=tuple(record.headers))


def test_all_topics_are_found(store: ReadOnlyStore, truth: KafkaTruth) -> None:
    internal = ["__consumer_offsets", "__transaction_state"]

    assert store.topics() == truth.topics
    assert store.topics(include_internal=True) == sorted([*truth.topics, *internal])
    assert store.topic("__consumer_offsets").partition_count == 50


def test_topics_have_the_ids_that_the_broker_gave_them(
    store: ReadOnlyStore, kafka_directories: KafkaDirectories
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka_directories.servers)
    try:
        described = admin.describe_topics(kafka_directories.truth.topics)
    finally:
        admin.close()

    found = {name: str(store.topic(name).topic_id) for name in store.topics()}

    assert found == {topic["name"]: str(topic["topic_id"]) for topic in described}
    assert len(encode_topic_id(store.topic("plain").topic_id)) == 22


def test_records_are_those_a_consumer_reads(store: ReadOnlyStore, truth: KafkaTruth) -> None:
    for (topic, number), expected in truth.records.items():
        log = store.topic(topic).partition(number)

        assert [plain(record) for record in log.read()] == expected, topic


def test_a_scan_has_the_same_records(store: ReadOnlyStore, truth: KafkaTruth) -> None:
    for (topic, number), expected in truth.records.items():
        log = store.topic(topic).partition(number)

        rows = [row for batch in log.scan() for row in batch.to_pylist()]

        assert [(r["offset"], r["key"], r["value"]) for r in rows] == [
            (record.offset, record.key, record.value) for record in expected
        ], topic
        assert [
            tuple((header["key"], header["value"]) for header in row["headers"] or ())
            for row in rows
        ] == [record.headers for record in expected], topic


def test_reading_may_begin_at_every_offset(store: ReadOnlyStore, truth: KafkaTruth) -> None:
    for (topic, number), expected in truth.records.items():
        log = store.topic(topic).partition(number)
        start, end = truth.starts[topic, number], truth.ends[topic, number]
        for offset in range(start, end, max((end - start) // 50, 1)):
            first = next(log.read(offset, max_records=1), None)

            following = next((r for r in expected if r.offset >= offset), None)
            assert (plain(first) if first else None) == following, (topic, offset)


def test_logs_begin_and_end_where_the_broker_says(store: ReadOnlyStore, truth: KafkaTruth) -> None:
    bounds = {
        (log.topic, log.partition): (log.start_offset, log.high_watermark)
        for topic in store.topics()
        for log in store.topic(topic).partitions
    }

    assert bounds == {place: (truth.starts[place], truth.ends[place]) for place in truth.records}


def test_times_are_found_where_the_broker_finds_them(
    store: ReadOnlyStore, truth: KafkaTruth
) -> None:
    for (topic, number), times in truth.times.items():
        log = store.topic(topic).partition(number)

        assert [(ms, log.offset_for_time(ms)) for ms, _ in times] == times, topic


def test_groups_have_the_offsets_they_committed(store: ReadOnlyStore) -> None:
    committed = {
        group: {
            place: (found.offset, found.metadata)
            for place, found in store.group(group).details().items()
        }
        for group in store.groups()
    }

    assert committed == GROUPS


def test_a_reader_follows_what_clients_send_to_the_broker(
    kafka_directories: KafkaDirectories,
) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_directories.servers)
    with cordwood.open(kafka_directories.live, read_only=True) as store:
        log = store.topic("plain").partition(2)
        following = log.follow(log.end_offset, idle_timeout_ms=20_000)
        try:
            for value in (b"first", b"second", b"third"):
                producer.send("plain", value, partition=2).get(timeout=30)

                assert next(following).value == value
        finally:
            producer.close()


def test_a_directory_that_a_broker_holds_cannot_be_opened_for_writing(
    kafka_directories: KafkaDirectories,
) -> None:
    with pytest.raises(DirectoryLockedError):
        cordwood.open(kafka_directories.live)


def test_a_broker_does_not_start_on_a_directory_that_cordwood_holds(
    kafka_directories: KafkaDirectories, start_broker: StartBroker, tmp_path: Path
) -> None:
    shutil.copytree(kafka_directories.stopped, tmp_path / "held")

    with (
        cordwood.open(tmp_path / "held"),
        pytest.raises(KafkaFailedError, match="ended while starting"),
    ):
        start_broker(tmp_path / "held")

    log = (tmp_path / "broker" / "server.log").read_text()
    assert f"Failed to acquire lock on file .lock in {tmp_path / 'held'}" in log


def batches_of(directory: Path) -> Iterator[bytearray]:
    """The batches of a partition as their producers sent them: at offset 0, of no leader."""
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position < len(content):
            header = decode_batch_header(content, position)
            batch = bytearray(content[position : position + header.size])
            stamp(batch, 0, Offset(0), NO_LEADER_EPOCH)
            yield batch
            position += header.size


@pytest.mark.parametrize(
    "topic", ["rolled", "plain", "idempotent", *(f"client-{codec}" for codec in CODECS)]
)
def test_the_same_batches_make_the_same_files(
    kafka_directories: KafkaDirectories, tmp_path: Path, topic: str
) -> None:
    """Byte for byte: the log, both indexes, the producer snapshots."""
    theirs = kafka_directories.stopped / f"{topic}-0"
    config = {"segment.bytes": "1MiB", "index.interval.bytes": "300", "retention.ms": "-1"}

    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic(topic, config=config).partition(0)
        assert isinstance(log, PartitionLog)
        for batch in batches_of(theirs):
            log.batches.append_batch(batch)

    ours = tmp_path / "data" / f"{topic}-0"
    # Ours alone; an id; and a line for each time the broker was started.
    names = {"high-watermark", "partition.metadata", "leader-epoch-checkpoint"}
    assert {p.name for p in ours.iterdir()} - names == {p.name for p in theirs.iterdir()} - names
    for path in theirs.iterdir():
        if path.name not in names:
            assert (ours / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_a_directory_left_by_a_broker_can_be_written_on(
    kafka_directories: KafkaDirectories, tmp_path: Path, state: str
) -> None:
    truth = kafka_directories.truth
    shutil.copytree(kafka_directories.in_state(state), tmp_path / "adopted")

    with cordwood.open(tmp_path / "adopted") as store:
        assert store.damages() == []
        assert store.topics() == truth.topics
        for (topic, number), expected in truth.records.items():
            where = store.topic(topic).append(b"ours", key=b"key", partition=number)
            assert where.offset == truth.ends[topic, number], topic
            read = [plain(record) for record in store.topic(topic).partition(number).read()]
            assert read[:-1] == expected, topic
            assert read[-1].value == b"ours"
    with cordwood.open(tmp_path / "adopted", read_only=True) as again:
        for (topic, number), expected in truth.records.items():
            read = [plain(record) for record in again.topic(topic).partition(number).read()]
            assert read[:-1] == expected, topic
            assert read[-1].value == b"ours"
