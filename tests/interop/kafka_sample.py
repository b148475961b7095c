"""Topics that a real Kafka broker writes for its clients, and what Kafka says is in them.

The clients are kafka-python and aiokafka; what their consumers read back is the truth that
Cordwood's view of the same directory is held against.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from cordwood import Record

CODECS = ("gzip", "snappy", "lz4", "zstd")
HEADERS = [("source", b"web"), ("empty", b""), ("größe", b"\x00\xff")]
NULL_HEADER = ("none", None)  # aiokafka sends such, kafka-python refuses to
GROUPS: dict[str, dict[tuple[str, int], tuple[int, str]]] = {
    "billing": {("plain", 0): (17, "note"), ("plain", 1): (3, ""), ("codec-gzip", 0): (40, "")},
    "shipping": {("plain", 0): (29, "")},
    "versand-ü": {("transactions", 0): (5, "größe")},
}
BROKER: dict[str, str] = {
    "offsets.topic.num.partitions": "50",
    # Indexes are laid out at their full size at once: 64 KiB rather than 10 MiB for each of 120.
    "log.index.size.max.bytes": "65536",
    "log.index.interval.bytes": "300",  # so that short logs have entries too
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "auto.create.topics.enable": "false",
    # The timestamps below are old; nothing may be deleted for that.
    "log.retention.ms": "-1",
}
BASE_MS = 1_760_000_000_000

Place = tuple[str, int]


@dataclass(slots=True)
class KafkaTruth:
    """What Kafka's own consumers and tools say of the topics of `write_kafka_topics`."""

    records: dict[Place, list[Record]] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    times: dict[Place, list[tuple[int, int | None]]] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.records})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDirectories:
    """One directory that a broker wrote, in three states, all holding what `truth` says.

    live     a broker at `servers` has it open
    killed   as the end of a broker that was killed left it: no checkpoints, indexes too long
    stopped  as a broker left it that was stopped in order
    """

    live: Path
    killed: Path
    stopped: Path
    servers: str
    truth: KafkaTruth

    def in_state(self, state: str) -> Path:
        return {"live": self.live, "killed": self.killed, "stopped": self.stopped}[state]


def write_kafka_topics(
    servers: str, log_dir: Path, *, records: int = 60, has_rolled: bool = True
) -> list[Place]:
    """Write topics of every kind through clients; return all their partitions."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        made: list[Place] = []
        made += _make(admin, "plain", partitions=3)
        for codec in CODECS:
            made += _make(admin, f"codec-{codec}", {"compression.type": codec})
            made += _make(admin, f"client-{codec}")
        made += _make(admin, "idempotent")
        made += _make(admin, "transactions")
        made += _make(admin, "append-time", {"message.timestamp.type": "LogAppendTime"})
        made += _make(admin, "shortened")
        compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        made += _make(admin, "compacted", {**compaction, "segment.ms": "50"})
        if has_rolled:
            made += _make(admin, "rolled", {"segment.bytes": str(2**20)})
        _write_plain(servers, records)
        asyncio.run(_write_with_aiokafka(servers, records))
        _write_transactions(servers)
        _write_compacted(servers, log_dir)
        if has_rolled:
            _write_rolled(servers)
        admin.delete_records({KafkaTopicPartition("shortened", 0): 12})
        _commit_offsets(servers)
        starts = log_dir / "log-start-offset-checkpoint"
        _await(lambda: "shortened 0 12" in starts.read_text(), "the new start to be written down")
        return made
    finally:
        admin.close()


def ask_kafka(
    servers: str,
    places: Iterable[Place],
    *,
    extra_times: Mapping[Place, Iterable[int]] | None = None,
) -> KafkaTruth:
    """Read everything back with a consumer, and have the broker look times up."""
    truth = asyncio.run(_ask(servers, [TopicPartition(*place) for place in places]))
    _look_times_up(servers, truth, extra_times or {})
    return truth


async def _ask(servers: str, partitions: list[TopicPartition]) -> KafkaTruth:
    truth = KafkaTruth()
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(partitions)
        starts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        for at in partitions:
            truth.starts[at], truth.ends[at] = starts[at], ends[at]
            truth.records[at] = []
            consumer.seek(at, starts[at])
        deadline = time.monotonic() + 30
        while not await _has_read_all(consumer, truth, partitions):
            assert time.monotonic() < deadline, "the consumer does not reach the end"
    finally:
        await consumer.stop()
    return truth


async def _has_read_all(consumer: Any, truth: KafkaTruth, partitions: list[TopicPartition]) -> bool:
    for at, found in (await consumer.getmany(timeout_ms=500)).items():
        truth.records[at] += [
            Record(r.value, r.key, tuple(r.headers), r.timestamp, r.offset) for r in found
        ]
    return all([await consumer.position(at) >= truth.ends[at] for at in partitions])


def _look_times_up(
    servers: str, truth: KafkaTruth, extra_times: Mapping[Place, Iterable[int]]
) -> None:
    asked = {
        place: sorted({*_interesting(truth, place), *extra_times.get(place, ())})
        for place in truth.records
    }
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        for turn in range(max(len(times) for times in asked.values())):  # all partitions at once
            times = {
                KafkaTopicPartition(*place): times[turn]
                for place, times in asked.items()
                if turn < len(times)
            }
            for at, found in admin.list_partition_offsets(times).items():
                answer = None if found.offset < 0 else found.offset
                truth.times.setdefault((at.topic, at.partition), []).append((times[at], answer))
    finally:
        admin.close()


def _interesting(truth: KafkaTruth, place: Place) -> list[int]:
    """Times at, just before and behind those of some records, far off, and the special ones."""
    stamps = sorted({r.timestamp_ms for r in truth.records[place] if r.timestamp_ms is not None})
    some = stamps[:: max(len(stamps) // 6, 1)] + stamps[-1:]
    return sorted({-3, -2, -1, 0, 2**50, *some, *(s - 1 for s in some), *(s + 1 for s in some)})


def _make(
    admin: Any, name: str, config: Mapping[str, str] | None = None, *, partitions: int = 1
) -> list[Place]:
    topic = NewTopic(
        name, num_partitions=partitions, replication_factor=1, topic_configs=dict(config or {})
    )
    admin.create_topics([topic])
    return [(name, number) for number in range(partitions)]


def _send(producer: Any, topic: str, n: int, *, partition: int = 0) -> None:
    producer.send(
        topic,
        value=None if n % 9 == 8 else b"" if n % 11 == 10 else b"value %d of %s" % (n, b"x" * n),
        key=None if n % 9 == 4 else b"" if n % 13 == 12 else b"key-%d" % (n % 6),
        headers=HEADERS[: n % 4],
        partition=partition,
        timestamp_ms=BASE_MS + (n * 7919) % 1000,
    )


def _write_plain(servers: str, count: int) -> None:
    """Kafka's own codecs write the `codec` topics: the broker recompresses what comes plain."""
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    try:
        for n in range(count):
            _send(producer, "plain", n, partition=n % 2)  # partition 2 stays empty
            for topic in (*(f"codec-{codec}" for codec in CODECS), "append-time", "shortened"):
                _send(producer, topic, n)
            if n % 10 == 9:
                producer.flush()  # so that there are several batches
    finally:
        producer.close()
    idempotent = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    try:
        for n in range(count):
            _send(idempotent, "idempotent", n)
            if n % 5 == 4:
                idempotent.flush()
    finally:
        idempotent.close()


async def _write_with_aiokafka(servers: str, count: int) -> None:
    """The `client` topics keep what their producer compressed."""
    for codec in CODECS:
        producer = AIOKafkaProducer(bootstrap_servers=servers, compression_type=codec)
        await producer.start()
        try:
            for n in range(count):
                await producer.send(
                    f"client-{codec}",
                    value=None if n % 9 == 8 else b"value %d " % n * 20,
                    key=b"key-%d" % (n % 6),
                    headers=[*HEADERS[: n % 4], NULL_HEADER],
                    timestamp_ms=BASE_MS + n,
                )
                if n % 10 == 9:
                    await producer.flush()
        finally:
            await producer.stop()


def _write_transactions(servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="interop")
    try:
        producer.init_transactions()
        for turn in range(6):
            producer.begin_transaction()
            for n in range(3):
                _send(producer, "transactions", turn * 3 + n)
            producer.flush()
            if turn % 3 == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()


def _write_compacted(servers: str, log_dir: Path) -> None:
    """Written until the cleaner went over it: gaps, and a tombstone that waits to be dropped."""
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    at_ms = int(time.time() * 1000) - 3_600_000
    try:
        for n in range(30):
            value = None if n % 7 == 6 else b"state %d" % n
            producer.send("compacted", value=value, key=b"key-%d" % (n % 8), timestamp_ms=at_ms + n)
            if n % 3 == 2:
                producer.flush()
        # A segment is closed by the first batch that comes after its time.
        producer.send("compacted", value=b"last", key=b"last", timestamp_ms=at_ms + 60_000)
        producer.flush()
    finally:
        producer.close()
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    _await(
        lambda: checkpoint.exists() and "compacted 0 30" in checkpoint.read_text(),
        "the cleaner to compact the topic",
    )


def _write_rolled(servers: str) -> None:
    """Some 2.5 MiB in segments of one, with times that mostly rise."""
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    try:
        for n in range(2500):
            value = b"%06d" % n + b"v" * 1000
            producer.send("rolled", value=value, timestamp_ms=BASE_MS + n * 10 - n % 7 * 25)
    finally:
        producer.close()


def _commit_offsets(servers: str) -> None:
    for group, offsets in GROUPS.items():
        consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        try:
            consumer.assign([KafkaTopicPartition(*place) for place in offsets])
            for back in (2, 1, 0):  # the last one counts
                consumer.commit(
                    {
                        KafkaTopicPartition(*place): OffsetAndMetadata(offset - back, metadata, -1)
                        for place, (offset, metadata) in offsets.items()
                    }
                )
        finally:
            consumer.close()


def _await(is_done: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)
