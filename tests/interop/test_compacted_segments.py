"""Kafka reads what Cordwood compacted: its dump tool finds nothing wrong, its broker serves it."""

from __future__ import annotations

import shutil
import time
from itertools import pairwise
from pathlib import Path

import pytest

import cordwood
from cordwood import Record, Store
from fakes.client_batches import client_batch
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools
from interop.kafka_sample import BROKER, KafkaDirectories, ask_kafka
from interop.sample_store import CODECS, SMALL, end_transaction, writable
from interop.segment_dump import Dump, parse_dump

COMPACT = {**SMALL, "cleanup.policy": "compact", "file.delete.delay.ms": "0"}
DELETED = "compacted-deletes"


class CompactedStore:
    """Where it lies, and the records each topic must still show."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, list[Record]] = {}
        started_ms = int(time.time() * 1000) - 600_000
        with cordwood.open(path) as store:
            for codec in CODECS:
                self._write(store, f"compacted-{codec}", codec, started_ms)
            self._write_deletes(store, started_ms)
            self._write_producers(store, started_ms)
            self._write_transactions(store, started_ms)
            for name in store.topics():
                (result,) = store.compact(name, force=True)
                assert result.error is None, result
                assert result.records_kept < result.records_read, result
                (again,) = store.compact(name, force=True)
                assert again.error is None, again
                self.records[name] = list(writable(store, name).read())

    def _write(self, store: Store, name: str, codec: str, started_ms: int) -> None:
        topic = store.create_topic(name, config={**COMPACT, "compression.type": codec})
        for start in range(0, 400, 25):
            topic.append_many(
                [
                    Record(
                        b"value %d " % n * (n % 4 + 1),
                        b"key-%d" % (n * 7919 % 61),
                        (("source", b"web"),)[: n % 2],
                        started_ms + n,
                    )
                    for n in range(start, start + 25)
                ]
            )

    def _write_deletes(self, store: Store, started_ms: int) -> None:
        topic = store.create_topic(DELETED, config=COMPACT)
        for n in range(200):
            value = None if n % 3 == 0 else b"state %d" % n
            topic.append(value, key=b"key-%d" % (n % 40), timestamp_ms=started_ms + n)

    def _write_producers(self, store: Store, started_ms: int) -> None:
        store.create_topic("compacted-producers", config={**COMPACT, "durability": "os"})
        log = writable(store, "compacted-producers")
        for n in range(60):
            log.batches.append_batch(
                client_batch(
                    b"a %d" % n,
                    b"b %d" % n,
                    keys=[b"key-%d" % (n % 5), b"key-%d" % (n % 7)],
                    timestamps=[started_ms + n] * 2,
                    producer_id=1000 + n % 3,
                    producer_epoch=0,
                    sequence=n // 3 * 2,
                )
            )
        log.append_many([(b"key-%d" % n, b"last") for n in range(7)])

    def _write_transactions(self, store: Store, started_ms: int) -> None:
        store.create_topic("compacted-transactions", config=COMPACT)
        log = writable(store, "compacted-transactions")
        for turn in range(20):
            log.batches.append_batch(
                client_batch(
                    b"turn %d" % turn,
                    keys=[b"key-%d" % (turn % 6)],
                    timestamps=[started_ms + turn],
                    producer_id=1,
                    producer_epoch=0,
                    sequence=turn,
                    transactional=True,
                )
            )
            end_transaction(log, 1, is_abort=turn % 3 == 0, at_ms=started_ms + turn)

    def directory(self, topic: str) -> Path:
        return self.path / f"{topic}-0"

    def segment_files(self) -> list[Path]:
        kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
        files = (p for name in self.records for p in self.directory(name).iterdir())
        return sorted(p for p in files if p.suffix in kinds)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> CompactedStore:
    return CompactedStore(tmp_path_factory.mktemp("compacted") / "data")


@pytest.fixture(scope="module")
def dump(kafka: KafkaTools, compacted: CompactedStore) -> Dump:
    printed = kafka.dump_segments(
        *compacted.segment_files(), options=("--deep-iteration", "--print-data-log")
    )
    return parse_dump(printed)


def test_no_file_makes_the_tool_complain(compacted: CompactedStore, dump: Dump) -> None:
    assert dump.complaints == []
    assert sorted(dump.files) == compacted.segment_files()


def test_the_tool_shows_the_records_that_stay(compacted: CompactedStore, dump: Dump) -> None:
    for topic, expected in compacted.records.items():
        found = [r for r in dump.records(compacted.directory(topic)) if r.marker is None]

        assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in found] == [
            (r.offset, r.key, r.value, r.timestamp_ms) for r in expected
        ], topic


def test_batches_keep_their_order_and_their_codec(compacted: CompactedStore, dump: Dump) -> None:
    for codec in CODECS:
        batches = dump.batches(compacted.directory(f"compacted-{codec}"))

        assert all(a.last_offset < b.base_offset for a, b in pairwise(batches))
        codecs = {batch.codec for batch in batches if batch.count}
        assert codecs == {"none" if codec == "uncompressed" else codec}


def test_the_last_sequence_of_each_producer_is_there(compacted: CompactedStore, dump: Dump) -> None:
    batches = dump.batches(compacted.directory("compacted-producers"))

    last = {batch.producer_id: batch.last_sequence for batch in batches if batch.producer_id >= 0}

    assert last == {1000: 39, 1001: 39, 1002: 39}


def test_kafka_checks_the_indexes_and_finds_no_mismatch(
    kafka: KafkaTools, compacted: CompactedStore
) -> None:
    indexes = [p for p in compacted.segment_files() if p.suffix in (".index", ".timeindex")]

    printed = kafka.dump_segments(*indexes, options=("--index-sanity-check",)).splitlines()

    harmless = {f"{p} passed sanity check." for p in indexes} | {f"{p} is empty." for p in indexes}
    dumping = {f"Dumping {p}" for p in indexes}
    assert [line for line in printed if line and line not in harmless | dumping] == []


def test_a_broker_serves_what_cordwood_left_of_its_own_topics(
    kafka: KafkaTools, kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    shutil.copytree(kafka_directories.stopped, directory)
    truth = kafka_directories.truth
    left: dict[tuple[str, int], list[Record]] = {}
    with cordwood.open(directory) as store:
        for topic in truth.topics:
            store.alter_topic(topic, config={"cleanup.policy": "compact"})
            for result in store.compact(topic, force=True):
                assert result.error is None, result
        for topic, number in truth.records:
            left[topic, number] = list(store.topic(topic).partition(number).read())

    with KafkaBroker(
        kafka,
        log_dirs=[directory],
        work_dir=tmp_path / "broker",
        properties={**BROKER, "log.cleaner.backoff.ms": "3600000"},
        jvm_options=QUICK_START,
    ) as broker:
        found = ask_kafka(broker.bootstrap_servers, truth.records)

    assert sum(map(len, left.values())) < sum(map(len, truth.records.values()))
    for place, expected in left.items():
        assert [(r.offset, r.key, r.value) for r in found.records[place]] == [
            (r.offset, r.key, r.value) for r in expected
        ], place
