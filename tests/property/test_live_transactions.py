"""Archive, compaction, retention, scans and copies agree with committed readers, while transactions
are under way.

A model knows of every record to which transaction it belongs, and of every transaction whether it
is open, committed or aborted. After each step, whoever reads committed records must see what the
model says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

import cordwood
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.store.store import Store
from cordwood.log.transactions.store_transaction import Transaction
from fakes.archived_store import ArchivedStore
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, open_store

IDS = ("one", "two", "three")
KEYS = (b"a", b"b", b"c", b"d")
Row = tuple[int, bytes | None, bytes | None]  # offset, key, value


@dataclass
class Written:
    """A record, and the transaction it belongs to; None: to none."""

    row: Row
    transaction: int | None


@dataclass
class Model:
    """What was written to one partition, and how its transactions ended."""

    written: list[Written] = field(default_factory=list)
    is_committed: dict[int, bool] = field(default_factory=dict)  # those that have ended

    @property
    def stable_end(self) -> int | None:
        """The first offset of an open transaction."""
        return next(
            (
                one.row[0]
                for one in self.written
                if one.transaction is not None and one.transaction not in self.is_committed
            ),
            None,
        )

    def visible(self, start: int = 0) -> list[Row]:
        end = self.stable_end
        return [
            one.row
            for one in self.written
            if start <= one.row[0] and (end is None or one.row[0] < end)
            if one.transaction is None or self.is_committed.get(one.transaction, False)
        ]


class Scribe:
    """Writes to one partition at random, and keeps the model of it."""

    def __init__(self, store: Store, log: Callable[[], PartitionLog], rng: Random) -> None:
        self.model = Model()
        self._store = store
        self._log = log
        self._rng = rng
        self._open: dict[str, tuple[int, Transaction]] = {}
        self._count = 0

    def step(self) -> None:
        name = self._rng.choice(IDS)
        chance = self._rng.random()
        if chance < 0.2:
            key, value = self._content()
            offset = self._log().append(value, key=key).offset
            self.model.written.append(Written((int(offset), key, value), None))
        elif name not in self._open:
            self._count += 1
            transaction = self._store.transaction(name)
            transaction.__enter__()
            self._open[name] = (self._count, transaction)
        elif chance < 0.75:
            number, transaction = self._open[name]
            key, value = self._content()
            placed = transaction.append(TOPIC, value, key=key, partition=0)
            self.model.written.append(Written((int(placed.offset), key, value), number))
        else:
            number, transaction = self._open.pop(name)
            is_commit = chance < 0.9
            (transaction.commit if is_commit else transaction.abort)()
            self.model.is_committed[number] = is_commit

    def _content(self) -> tuple[bytes, bytes]:
        self._count += 1
        return self._rng.choice(KEYS), b"v%d" % self._count


def read(log: LogReader) -> list[Row]:
    return [
        (int(record.offset), record.key, record.value)
        for record in log.read(isolation="read_committed")
    ]


def scanned(log: LogReader, threads: int = 1) -> list[Row]:
    """As Spark's tasks read it."""
    columns = ("offset", "key", "value")
    return [
        row
        for batch in log.scan(columns=columns, threads=threads, isolation="read_committed")
        for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_an_archive_and_its_log(seed: int) -> None:
    rng = Random(seed)
    bench = ArchivedStore(SimulatedFileSystem(clock=ManualClock()))
    bench.create()
    scribe = Scribe(bench.store, lambda: bench.log, rng)
    for number in range(80):
        scribe.step()
        if rng.random() < 0.2:
            bench.archive_and_drop()

        assert read(bench.log) == scribe.model.visible(), number
        if number % 8 == 0:
            assert scanned(bench.log) == scribe.model.visible(), number
    assert bench.log.archive.local_view.start > 0


@pytest.mark.parametrize("seed", range(6))
def test_retention(seed: int) -> None:
    clock = ManualClock()
    rng, store = Random(seed), open_store(SimulatedFileSystem(clock=clock), clock=clock)
    config = {"segment.records": 3, "retention.bytes": 800, "file.delete.delay.ms": 0}
    store.create_topic(TOPIC, config=config)
    log = store.topic(TOPIC).partition(0)
    scribe = Scribe(store, lambda: log, rng)
    for number in range(80):
        scribe.step()
        if rng.random() < 0.2:
            log.upkeep.apply_retention(clock.now_ms())

        expected = scribe.model.visible(log.start_offset)
        assert read(log) == scanned(log) == expected, number
    assert log.start_offset > 0


@pytest.mark.parametrize("seed", range(10))
def test_compaction(seed: int) -> None:
    clock = ManualClock()
    rng, store = Random(seed), open_store(SimulatedFileSystem(clock=clock), clock=clock)
    config = {"cleanup.policy": "compact", "segment.records": 3, "file.delete.delay.ms": 0}
    store.create_topic(TOPIC, config=config)
    log = store.topic(TOPIC).partition(0)
    scribe = Scribe(store, lambda: log, rng)
    cleaned = 0
    for number in range(80):
        scribe.step()
        if rng.random() < 0.2:
            cleaned += sum(bool(result) for result in store.compact(TOPIC, force=True))
        if rng.random() < 0.1:
            clock.advance(2 * 24 * 3600 * 1000)  # markers and tombstones may go

        expected, found = scribe.model.visible(), read(log)
        assert set(found) <= set(expected), number
        assert newest(found) == newest(expected), number
        assert scanned(log) == found, number
        undecided = {
            one.row
            for one in scribe.model.written
            if one.transaction is not None and one.transaction not in scribe.model.is_committed
            if one.row[0] < log.high_watermark  # the library syncs at the end
        }
        everything = {(int(r.offset), r.key, r.value) for r in log.read()}
        assert undecided <= everything, number
    assert cleaned
    assert len(read(log)) < len(scribe.model.visible())


def newest(rows: list[Row]) -> dict[bytes | None, Row]:
    return {row[1]: row for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_of_the_store(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic(TOPIC, config={"segment.records": 5})
        log = store.topic(TOPIC).partition(0)
        scribe = Scribe(store, lambda: log, rng)
        for number in range(40):
            scribe.step()
            if number % 8 == 7:
                copy = tmp_path / f"copy-{number}"
                store.snapshot(copy)
                expected = scribe.model.visible()
                assert scanned(log, threads=2) == expected, number
                with cordwood.open(copy, read_only=True) as beside:
                    assert read(beside.topic(TOPIC).partition(0)) == expected, number
                with cordwood.open(copy) as again:
                    assert read(again.topic(TOPIC).partition(0)) == expected, number


def test_no_transaction_ends_at_the_moment_that_a_copy_is_of(tmp_path: Path) -> None:
    def commit() -> None:
        with store.transaction("one") as transaction:
            transaction.append(TOPIC, b"1")

    with cordwood.open(tmp_path / "data") as store:
        store.create_topic(TOPIC)
        log = store.topic(TOPIC).partition(0)
        commit()
        thread = threading.Thread(target=commit)

        with store.transactions.still():
            before = log.end_offset
            thread.start()
            thread.join(0.2)
            assert log.end_offset == before
        thread.join()
        assert log.end_offset == before + 2


def test_a_copy_that_is_made_while_transactions_end_has_each_of_them_whole(
    tmp_path: Path,
) -> None:
    """Also with its offsets, and also if markers are being written."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(name: str) -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                with store.transaction(name) as transaction:
                    for partition in range(3):
                        transaction.append(
                            TOPIC, b"%s %d" % (name.encode(), number), partition=partition
                        )
                    transaction.commit_offsets(name, {(TOPIC, 0): number})
        except BaseException as error:
            failures.append(error)

    with cordwood.open(tmp_path / "data") as store:
        store.create_topic(TOPIC, partitions=3)
        threads = [threading.Thread(target=write, args=(name,)) for name in IDS]
        for thread in threads:
            thread.start()
        copies = [tmp_path / f"copy-{number}" for number in range(8)]
        for copy in copies:
            store.snapshot(copy)
        stop.set()
        for thread in threads:
            thread.join()

    assert not failures
    for copy in copies:
        with cordwood.open(copy) as again:
            for name in IDS:
                again.transactions.abort(name, lambda _: None)
                with again.transaction(name):
                    pass  # and wait for it
            logs = again.topic(TOPIC).partitions
            seen = [{r.value for r in log.read(isolation="read_committed")} for log in logs]
            assert seen[0] == seen[1] == seen[2], "torn"
            for name in IDS:
                numbers = [
                    int((value or b"").split()[1])
                    for value in seen[0]
                    if (value or b"").startswith(name.encode())
                ]
                assert again.group(name).committed(TOPIC, 0) == max(numbers, default=None)
