"""A store written by Cordwood that has something of everything, and what ought to be in it.

Keys, values and header names are plain ASCII, because Kafka's dump tool prints them as text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import cordwood
from cordwood import PartitionLog, Record, Store
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import client_batch, marker_batch

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
SMALL = {"internal.segment.bytes": "3000", "index.interval.bytes": "300"}
COORDINATOR_EPOCH = 4


@dataclass(slots=True)
class SampleStore:
    """Where the store lies and the records each partition must show, offsets and times included."""

    path: Path
    started_ms: int
    records: dict[tuple[str, int], list[Record]] = field(default_factory=dict)

    def directory(self, topic: str, partition: int = 0) -> Path:
        return self.path / f"{topic}-{partition}"

    def directories(self) -> list[Path]:
        """Of all partitions but those of internal topics, whose records are not text."""
        return [self.directory(*place) for place in sorted(self.records)]

    def segment_files(self) -> list[Path]:
        kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
        return sorted(p for d in self.directories() for p in d.iterdir() if p.suffix in kinds)

    def expect(self, topic: str, partition: int, offset: int, record: Record) -> None:
        records = self.records.setdefault((topic, partition), [])
        records.append(record._replace(offset=offset, headers=tuple(record.headers)))


def write_sample_store(path: Path) -> SampleStore:
    """Write the store, close it in order, and say what is in it."""
    sample = SampleStore(path, int(time.time() * 1000) - 600_000)
    with cordwood.open(path) as store:
        for codec in CODECS:
            _write_with_codec(store, sample, codec)
        _write_singly(store, sample)
        _write_log_append_time(store, sample)
        _write_idempotent(store, sample)
        _write_transactions(store, sample)
        _write_compacted(store, sample)
        store.group("billing").commit({("singly", 0): (17, "note"), ("codec-gzip", 1): 5})
    return sample


def writable(store: Store, topic: str, partition: int = 0) -> PartitionLog:
    log = store.topic(topic).partition(partition)
    assert isinstance(log, PartitionLog)
    return log


def varied_records(count: int, first_ms: int) -> list[Record]:
    """Null and empty keys and values, headers of every kind, timestamps that jump back."""
    return [
        Record(
            value=None if n % 11 == 0 else b"" if n % 13 == 0 else b"value-%04d " % n * (n % 5 + 1),
            key=None if n % 7 == 0 else b"" if n % 17 == 0 else b"key-%d" % (n % 10),
            headers=(("source", b"web"), ("empty", b""), ("none", None))[: n % 4],
            timestamp_ms=first_ms + (n * 7919) % 1000,
        )
        for n in range(count)
    ]


def _write_with_codec(store: Store, sample: SampleStore, codec: str) -> None:
    name = f"codec-{codec}"
    topic = store.create_topic(name, partitions=2, config={**SMALL, "compression.type": codec})
    for partition in range(2):
        records = varied_records(400, sample.started_ms + partition)
        for start in range(0, len(records), 25):
            many = topic.append_many(records[start : start + 25], partition=partition)
            for offset, record in zip(range(start, start + 25), records[start:], strict=False):
                sample.expect(name, partition, offset, record)
            assert many[-1].offset == start + 24


def _write_singly(store: Store, sample: SampleStore) -> None:
    topic = store.create_topic("singly", config=SMALL)
    for record in varied_records(200, sample.started_ms):
        value, key, headers, timestamp_ms, _ = record
        where = topic.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        sample.expect("singly", 0, where.offset, record)


def _write_log_append_time(store: Store, sample: SampleStore) -> None:
    config = {**SMALL, "message.timestamp.type": "LogAppendTime"}
    topic = store.create_topic("append-time", config=config)
    for n in range(60):
        where = topic.append(b"value %d" % n, timestamp_ms=1)
        record = Record(b"value %d" % n, timestamp_ms=where.timestamp_ms)
        sample.expect("append-time", 0, where.offset, record)


def _write_idempotent(store: Store, sample: SampleStore) -> None:
    """Two producers in turn, each batch sent twice, the leader changing on the way."""
    store.create_topic("idempotent", config={**SMALL, "durability": "os"})
    log = writable(store, "idempotent")
    for n in range(60):
        values = [b"batch %d record %d" % (n, i) for i in range(n % 4 + 1)]
        times = [sample.started_ms + n * 10 - i for i in range(len(values))]
        producer_id, epoch = 1000 + n % 2, n // 40
        sequence = _sequence_before(n)
        for is_again in (False, True):
            data = client_batch(
                *values,
                timestamps=times,
                producer_id=producer_id,
                producer_epoch=epoch,
                sequence=sequence,
            )
            placed = log.batches.append_batch(data, leader_epoch=n // 20)
            assert placed.is_duplicate == is_again
        for i, (value, at) in enumerate(zip(values, times, strict=True)):
            record = Record(value, timestamp_ms=at)
            sample.expect("idempotent", 0, placed.base_offset + i, record)


def _sequence_before(n: int) -> int:
    """How many records the producer of batch `n` sent before it in its epoch."""
    return sum(i % 4 + 1 for i in range(n) if i % 2 == n % 2 and i // 40 == n // 40)


def _write_transactions(store: Store, sample: SampleStore) -> None:
    """Aborted, committed and aborted again, interleaved; one is left open."""
    store.create_topic("transactions", config=SMALL)
    log = writable(store, "transactions")
    sequences = {1: 0, 2: 0, 3: 0}

    def send(producer_id: int, value: bytes) -> None:
        at = sample.started_ms + len(sample.records.get(("transactions", 0), ()))
        data = client_batch(
            value,
            timestamps=[at],
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequences[producer_id],
            transactional=True,
        )
        placed = log.batches.append_batch(data)
        sequences[producer_id] += 1
        record = Record(value, timestamp_ms=at)
        sample.expect("transactions", 0, placed.base_offset, record)

    for turn in range(20):
        send(1, b"turn %d of producer 1" % turn)
        send(2, b"turn %d of producer 2" % turn)
        end_transaction(log, 1, is_abort=turn % 3 == 0, at_ms=sample.started_ms + turn)
        end_transaction(log, 2, is_abort=turn % 2 == 0, at_ms=sample.started_ms + turn)
    send(3, b"neither committed nor aborted")


def end_transaction(log: PartitionLog, producer_id: int, *, is_abort: bool, at_ms: int) -> Offset:
    data = marker_batch(
        producer_id, coordinator_epoch=COORDINATOR_EPOCH, is_abort=is_abort, timestamp=at_ms
    )
    marker = MarkerFacts(
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=COORDINATOR_EPOCH,
        offset=Offset(0),
        timestamp=TimestampMs(at_ms),
        is_abort=is_abort,
    )
    return log.batches.append_marker(data, marker)


def _write_compacted(store: Store, sample: SampleStore) -> None:
    topic = store.create_topic("compacted", config={**SMALL, "cleanup.policy": "compact"})
    for n in range(50):
        value = None if n % 5 == 4 else b"state %d" % n
        where = topic.append(value, key=b"key-%d" % (n % 8), timestamp_ms=sample.started_ms + n)
        record = Record(value, b"key-%d" % (n % 8), timestamp_ms=sample.started_ms + n)
        sample.expect("compacted", 0, where.offset, record)
