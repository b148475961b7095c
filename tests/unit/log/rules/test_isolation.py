"""Readers of committed records see what was committed, no more and no less."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cordwood
from cordwood.errors import ConfigError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch

# The batches bear old timestamps; what survives a power cut is not the question here.
KEPT = {"retention.ms": "-1", "durability": "os"}


@dataclass
class Writer:
    """Interleaved transactions of several producers, and what a reader may see of them."""

    log: PartitionLog
    open: dict[int, list[bytes]] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)
    fates: dict[bytes, str] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    count: int = 0

    def write(self, producer: int | None) -> None:
        self.count += 1
        value = b"value %d" % self.count
        self.offsets[value] = self.log.end_offset
        if producer is None:
            self.log.append(value)
            self.fates[value] = "committed"
            return
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        self.began.setdefault(producer, self.log.end_offset)
        self.log.batches.append_batch(
            client_batch(
                value,
                producer_id=producer,
                producer_epoch=0,
                sequence=sequence,
                transactional=True,
            )
        )
        self.open.setdefault(producer, []).append(value)

    def end(self, producer: int, *, is_abort: bool) -> None:
        marker = MarkerFacts(
            producer_id=ProducerId(producer),
            producer_epoch=0,
            coordinator_epoch=0,
            offset=Offset(0),
            timestamp=TimestampMs(NOW),
            is_abort=is_abort,
        )
        self.log.batches.append_marker(marker_batch(producer, is_abort=is_abort), marker)
        for value in self.open.pop(producer, []):
            self.fates[value] = "aborted" if is_abort else "committed"
        self.began.pop(producer, None)

    def step(self, random: Random) -> None:
        producer = random.choice([None, 1, 2, 3])
        if producer is not None and producer in self.open and random.random() < 0.4:
            self.end(producer, is_abort=random.random() < 0.5)
        else:
            self.write(producer)

    def committed(self) -> list[bytes]:
        """In the order of the log, up to the first transaction that is not decided."""
        stable = min(self.began.values(), default=self.log.end_offset)
        return [
            value
            for value, offset in self.offsets.items()
            if offset < stable and self.fates.get(value) == "committed"
        ]


def seen(log: LogReader, **how: Any) -> list[bytes | None]:
    return [record.value for record in log.read(isolation="read_committed", **how)]


def scanned(log: LogReader, threads: int) -> list[bytes | None]:
    batches = log.scan(isolation="read_committed", columns=["value"], threads=threads)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("segment_bytes", ["700", "1000000"])
def test_committed_records_are_those_of_committed_transactions(
    tmp_path: Path, segment_bytes: str, seed: int
) -> None:
    random = Random(seed)
    config = {**KEPT, "internal.segment.bytes": segment_bytes}
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t", config=config).partition(0)
        assert isinstance(log, PartitionLog)
        writer = Writer(log)
        with cordwood.open(tmp_path / "data", read_only=True) as other:
            beside = other.topic("t").partition(0)
            for _ in range(8):
                for _ in range(random.randrange(1, 15)):
                    writer.step(random)

                assert seen(log) == writer.committed()
                assert seen(beside) == writer.committed()
        expected = writer.committed()
        assert scanned(log, 1) == scanned(log, 3) == expected

    with cordwood.open(tmp_path / "data", read_only=True) as alone:
        closed = alone.topic("t").partition(0)
        assert seen(closed) == scanned(closed, 2) == expected
    with cordwood.open(tmp_path / "data") as store:
        writer.began.clear()  # no coordinator knows the open ones, so they are aborted
        assert seen(store.topic("t").partition(0)) == writer.committed()


def test_every_start_and_stop_gives_a_part_of_the_same(tmp_path: Path) -> None:
    random = Random(99)
    with cordwood.open(tmp_path / "data") as store:
        config = {**KEPT, "internal.segment.bytes": "700"}
        log = store.create_topic("t", config=config).partition(0)
        assert isinstance(log, PartitionLog)
        writer = Writer(log)
        for _ in range(60):
            writer.step(random)
        whole = [(r.offset, r.value) for r in log.read(isolation="read_committed")]

        for start in range(0, log.end_offset, 3):
            for stop in range(start, log.end_offset, 7):
                expected = [value for offset, value in whole if start <= offset < stop]
                assert seen(log, start=start, stop=stop) == expected


def test_following_waits_for_the_decision_and_skips_what_was_aborted(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t", config=KEPT).partition(0)
        assert isinstance(log, PartitionLog)
        writer = Writer(log)
        writer.write(1)
        writer.write(None)

        early = list(log.follow(0, idle_timeout_ms=20, isolation="read_committed"))
        writer.end(1, is_abort=True)
        late = list(log.follow(0, idle_timeout_ms=20, isolation="read_committed"))

        assert early == []
        assert [record.value for record in late] == [b"value 2"]


def test_a_reader_that_asks_for_nothing_special_sees_everything(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t", config=KEPT).partition(0)
        assert isinstance(log, PartitionLog)
        writer = Writer(log)
        writer.write(1)
        writer.end(1, is_abort=True)
        writer.write(2)

        assert [record.value for record in log.read()] == [b"value 1", b"value 2"]
        assert seen(log) == []


@pytest.mark.parametrize("method", ["read", "scan", "follow"])
def test_an_unknown_level_is_refused_at_once(tmp_path: Path, method: str) -> None:
    with cordwood.open(tmp_path / "data") as store:
        log = store.create_topic("t").partition(0)

        with pytest.raises(ConfigError, match="read_committed"):
            getattr(log, method)(isolation="committed")
