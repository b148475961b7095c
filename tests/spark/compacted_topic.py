"""A compacted topic with all that compaction has rules for, and judges of the result."""

from __future__ import annotations

import random
from pathlib import Path

import cordwood
from cordwood.format.compression import Codec
from cordwood.library import open_writer
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.compaction.compaction_run import CompactionRun
from cordwood.log.compaction.compaction_walk import RunSettings
from cordwood.log.inbox.change_inbox import inbox_directory
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store
from cordwood.quantities import MIB, Offset, ProducerId, TimestampMs
from fakes.client_batches import client_batch, marker_batch

TOPIC = "users"
NOW = 1_700_000_000_000
DAY_MS = 24 * 60 * 60 * 1000
CONFIG: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 40_000,
    "delete.retention.ms": DAY_MS,
    "min.cleanable.dirty.ratio": 0.99,
    "file.delete.delay.ms": 0,
    "durability": "os",
}


def open_quiet(path: Path) -> Store:
    """A store that does nothing by itself."""
    return open_writer(
        [str(path)],
        defaults=TopicConfig(),
        cleaner=CleanerConfig(enable=False),
        has_housekeeping=False,
    )


class Writer:
    """Writes what a compacted topic may hold: values, tombstones, codecs, transactions."""

    def __init__(self, log: PartitionLog, seed: int) -> None:
        self.log = log
        self.random = random.Random(seed)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def write(self, batches: int, *, now_ms: int) -> None:
        for _ in range(batches):
            producer_id = self.random.choice([-1, 1, 2, 3, 4])
            if producer_id in self.open and self.random.random() < 0.3:
                self.end(producer_id, now_ms)
            else:
                self.append(producer_id, now_ms)

    def append(self, producer_id: int, now_ms: int) -> None:
        count = self.random.randint(1, 12)
        is_transactional = producer_id >= 3
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = client_batch(
            *[self.value() for _ in range(count)],
            keys=[self.key() for _ in range(count)],
            timestamps=[now_ms + self.random.randint(-500, 500) for _ in range(count)],
            codec=self.random.choice([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.LZ4]),
            producer_id=producer_id,
            sequence=sequence,
            transactional=is_transactional,
        )
        self.log.batches.append_batch(batch)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + count
        if is_transactional:
            self.open.add(producer_id)

    def key(self) -> bytes:
        return b"key-%d" % min(int(self.random.expovariate(0.02)), 400)

    def value(self) -> bytes | None:
        if self.random.random() < 0.1:
            return None
        return self.random.randbytes(self.random.randint(5, 90))

    def end(self, producer_id: int, now_ms: int) -> None:
        is_abort = self.random.random() < 0.5
        marker = MarkerFacts(
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=0,
            offset=Offset(0),
            timestamp=TimestampMs(now_ms),
            is_abort=is_abort,
        )
        data = marker_batch(producer_id, is_abort=is_abort, timestamp=now_ms)
        self.log.batches.append_marker(data, marker)
        self.open.discard(producer_id)

    def end_all(self, now_ms: int) -> None:
        for producer_id in sorted(self.open):
            self.end(producer_id, now_ms)


def fill(
    path: Path,
    *,
    seed: int,
    partitions: int = 1,
    batches: int = 250,
    segment_bytes: int = 40_000,
) -> list[Writer]:
    config = {**CONFIG, "internal.segment.bytes": segment_bytes}
    with open_quiet(path) as store:
        topic = store.create_topic(TOPIC, partitions=partitions, config=config)
        writers = [Writer(log, seed + log.partition) for log in topic.partitions]
        for writer in writers:
            writer.write(batches, now_ms=NOW - 3 * DAY_MS)
            writer.end_all(NOW - 3 * DAY_MS)
            writer.log.roll()
        return writers


def more(path: Path, writers: list[Writer], *, batches: int, now_ms: int) -> None:
    with open_quiet(path) as store:
        for writer, log in zip(writers, store.topic(TOPIC).partitions, strict=True):
            writer.log = log
            writer.write(batches, now_ms=now_ms)
            writer.end_all(now_ms)
            log.roll()


def compact_locally(path: Path, *, now_ms: int) -> None:
    """What the store's cleaner does, at a time of our choosing."""
    settings = RunSettings(
        map_bytes=8 * MIB, load_factor=0.9, secret=bytes(16), pace=lambda _count: None
    )
    with open_quiet(path) as store:
        for log in store.topic(TOPIC).partitions:
            plan = log.compaction.plan(TimestampMs(now_ms), force=True)
            CompactionRun(log, plan, settings, now_ms=TimestampMs(now_ms)).run()


def segments_of(path: Path) -> dict[str, bytes]:
    """Every sealed segment, byte for byte."""
    logs = sorted(path.glob(f"{TOPIC}-*/*.log"))
    return {f"{log.parent.name}/{log.name}": log.read_bytes() for log in logs}


def indexes_of(path: Path) -> dict[str, bytes]:
    found = sorted(path.glob(f"{TOPIC}-*/*.txnindex"))
    return {f"{index.parent.name}/{index.name}": index.read_bytes() for index in found}


def cleaner_checkpoint(path: Path) -> str:
    return (path / "cleaner-offset-checkpoint").read_text()


def records_of(path: Path) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    with cordwood.open(path, read_only=True) as store:
        return [
            (log.partition, record.offset, record.key, record.value)
            for log in store.topic(TOPIC).partitions
            for record in log.read()
        ]


def staged(path: Path) -> list[Path]:
    """What jobs have put into the inbox, but for their signs of life."""
    found = Path(inbox_directory(str(path))).glob("*")
    return sorted(each for each in found if each.suffix != ".beat")
