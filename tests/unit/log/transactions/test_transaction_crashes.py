"""The power goes, or the process ends, between any two writes of transactions over partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from cordwood.errors import CordwoodError, TransactionError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.store.store import Store
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

CHANGES = frozenset({"create", "remove", "rename", "sync", "sync_directory", "write_at"})
PARTITIONS = 3
COPIES = 3  # records of a transaction in each of its partitions, where that matters
DAY_MS = 24 * 3600 * 1000

Run = Callable[[Store, "History", Random, int], None]


@dataclass
class History:
    """What the producer was told so far, by number of the transaction."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    lone: dict[int, int] = field(default_factory=dict)  # the partition of those that have one

    def copy(self) -> History:
        return History(set(self.committed), set(self.aborted), set(self.begun), dict(self.lone))


class OldProducer:
    """A producer of version 1, as a broker serves it: one epoch for all its transactions."""

    def __init__(self, store: Store, transactional_id: str) -> None:
        self._store = store
        self._id = transactional_id
        self._sequences: Counter[int] = Counter()
        self._identity = self._granted(
            partial(store.transactions.init_producer, self._id, timeout_ms=60_000, expected=None)
        ).identity

    def _granted(self, ask: Callable[..., None]) -> Granted:
        outcomes: list[Outcome] = []
        ask(done=outcomes.append)
        [outcome] = outcomes
        assert isinstance(outcome, Granted), outcome
        return outcome

    def write(self, value: bytes, partition: int) -> None:
        place = ("orders", partition)
        self._begin(place, partial(self._append, value, partition))

    def commit_offset(self, group: str, offset: int) -> None:
        table = self._store.committed_offsets
        number = table.partition_of(group)
        records = table.records_of(group, {("orders", 0): (offset, "")})
        self._begin(
            (CONSUMER_OFFSETS_TOPIC, number),
            lambda: table.append_pending(
                number,
                records,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
            ),
        )

    def end(self, *, is_commit: bool) -> None:
        self._granted(
            partial(
                self._store.transactions.end,
                self._id,
                self._identity,
                is_commit=is_commit,
                client_version=0,
            )
        )

    def _begin(self, place: tuple[str, int], append: Callable[[], None]) -> None:
        coordinator = self._store.transactions
        ask = (self._id, self._identity, {place})
        self._granted(partial(coordinator.add_partitions, *ask, client_version=0))
        lease = self._granted(partial(coordinator.begin_append, *ask, client_version=0)).lease
        assert lease is not None
        append()
        lease.release()

    def _append(self, value: bytes, partition: int) -> None:
        batch = client_batch(
            value,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            sequence=self._sequences[partition],
            transactional=True,
        )
        rules = TransactionRules(may_begin=True, starts_at_zero=False)
        log = self._store.topic("orders").partition(partition)
        log.batches.append_batch(batch, transaction=rules)
        self._sequences[partition] += 1


def run_old(store: Store, history: History, rng: Random, count: int) -> None:
    """As `run`, with producers of version 1."""
    producers = {name: OldProducer(store, name) for name in ("one", "two")}
    for number in range(count):
        history.begun.add(number)
        producer = producers[rng.choice(("one", "two"))]
        for partition in range(PARTITIONS):
            for _ in range(rng.randint(1, 2)):
                producer.write(b"%d" % number, partition)
        producer.commit_offset("group", number + 1)
        is_commit = rng.random() >= 0.3
        producer.end(is_commit=is_commit)
        (history.committed if is_commit else history.aborted).add(number)


def run(store: Store, history: History, rng: Random, count: int) -> None:
    """Transactions, one after the other, of two ids."""
    for number in range(count):
        history.begun.add(number)
        with store.transaction(rng.choice(("one", "two"))) as transaction:
            for partition in range(PARTITIONS):
                for _ in range(rng.randint(1, 2)):
                    transaction.append("orders", b"%d" % number, partition=partition)
            transaction.commit_offsets("group", {("orders", 0): number + 1})
            if rng.random() < 0.3:
                transaction.abort()
                history.aborted.add(number)
        if number not in history.aborted:
            history.committed.add(number)


def run_lone(store: Store, history: History, rng: Random, count: int) -> None:
    """Transactions of one partition each, beside some of all partitions; see `lone_commit`."""
    for number in range(count):
        if rng.random() < 0.2:
            store.transactions.tick()
        history.begun.add(number)
        with store.transaction(rng.choice(("one", "two"))) as transaction:
            partition = rng.randrange(PARTITIONS)
            is_lone = rng.random() < 0.8
            for each in (partition,) if is_lone else range(PARTITIONS):
                for copy in range(COPIES):
                    transaction.append("orders", b"%d %d" % (number, copy), partition=each)
                    if rng.random() < 0.1:  # the marker comes into another file
                        store.topic("orders").partition(each).roll()
            if rng.random() < 0.2:
                transaction.abort()
                history.aborted.add(number)
            elif is_lone:
                history.lone[number] = partition
        if number not in history.aborted:
            history.committed.add(number)


def check_lone(store: Store, clock: ManualClock, history: History) -> None:
    known = {id_: store.transactions.find(id_) for id_ in ("one", "two")}
    for log in store.topic("orders").partitions:
        for producer in log.producers.listed():
            [epoch] = [
                m.epoch for m in known.values() if m and m.producer_id == producer.producer_id
            ]
            assert producer.producer_epoch <= epoch, f"{log.name} is ahead of the coordinator"
    clock.advance(DAY_MS)
    store.transactions.tick()

    seen: Counter[tuple[int, int]] = Counter()  # copies, by transaction and partition
    for log in store.topic("orders").partitions:
        assert log.last_stable_offset == log.high_watermark, f"{log.name} hangs"
        for record in log.read(isolation="read_committed"):
            seen[int((record.value or b"").split()[0]), log.partition] += 1
    for number in history.begun:
        places = {partition: seen[number, partition] for partition in range(PARTITIONS)}
        if number in history.aborted:
            assert not any(places.values()), f"aborted, and read: {number}"
        elif number in history.lone:
            partition = history.lone[number]
            assert sum(places.values()) == places[partition], f"{number} is elsewhere: {places}"
            assert places[partition] in (0, COPIES), f"torn: {number}, {places}"
            if number in history.committed:
                assert places[partition], f"lost: {number}"
        else:
            found = set(places.values()) - {0}
            assert found <= {COPIES}, f"torn: {number}, {places}"
            if number in history.committed:
                assert set(places.values()) == {COPIES}, f"lost: {number}"
    for transactional_id in ("one", "two"):
        for partition in range(PARTITIONS):
            before = dict(seen)
            with store.transaction(transactional_id) as transaction:
                transaction.append("orders", b"999 0", partition=partition)
            after: Counter[tuple[int, int]] = Counter()
            for log in store.topic("orders").partitions:
                for record in log.read(isolation="read_committed"):
                    after[int((record.value or b"").split()[0]), log.partition] += 1
            assert {key: count for key, count in after.items() if key[0] != 999} == {
                key: count for key, count in before.items() if count and key[0] != 999
            }


@pytest.mark.parametrize("kind", ["power", "kill"])
@pytest.mark.parametrize("seed", range(4))
def test_a_lone_transaction_is_whole_or_absent_wherever_a_crash_comes(kind: str, seed: int) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    rng = Random(seed)
    store = open_store(fs, clock=clock)
    store.create_topic("orders", partitions=PARTITIONS)
    history = History()
    cuts: list[tuple[SimulatedFileSystem, History]] = []

    def note(operation: str, path: str) -> None:
        if operation in CHANGES and (kind == "power" or rng.random() < 0.3):
            left = fs.kill() if kind == "kill" else fs.crash(Random(rng.random()))
            cuts.append((left, history.copy()))

    fs.watch = note
    run_lone(store, history, rng, 8)
    fs.watch = None
    assert len(cuts) > 20

    for number, (left, then) in enumerate(cuts):
        then.lone = history.lone  # also of the one that was under way
        later = ManualClock(clock.now_ms())
        again: list[SimulatedFileSystem] = []
        if number % 3 == 0:  # and a second crash while it is opened

            def cut(operation: str, path: str, fs: SimulatedFileSystem = left) -> None:
                if operation in CHANGES:
                    again.append(fs.crash(Random(rng.random())))  # noqa: B023 (called in this turn)

            left.watch = cut
            open_store(left, clock=ManualClock(clock.now_ms())).abandon()
            left.watch = None
        for times, last in enumerate([left, *again[-2:]], 1):
            with open_store(last, clock=later) as recovered:
                try:
                    check_lone(recovered, later, then)
                except (AssertionError, CordwoodError) as error:
                    error.add_note(f"cut {number} of {len(cuts)}, {times}")
                    raise


def visible(store: Store) -> list[set[int]]:
    """The transactions that a read_committed reader sees, by partition."""
    return [
        {int(record.value or b"") for record in log.read(isolation="read_committed")}
        for log in store.topic("orders").partitions
    ]


def check(store: Store, clock: ManualClock, history: History) -> None:
    # Whatever is still open has lost its producer, and times out.
    clock.advance(DAY_MS)
    store.transactions.tick()

    seen = visible(store)

    assert seen[0] == seen[1] == seen[2], f"torn: {seen}"
    assert history.committed <= seen[0], f"lost: {history.committed - seen[0]}"
    assert not history.aborted & seen[0], f"aborted, and read: {history.aborted & seen[0]}"
    assert seen[0] <= history.begun
    offset = store.group("group").committed("orders", 0)
    assert offset == (max(seen[0]) + 1 if seen[0] else None), (offset, seen)
    for topic in store.topics(include_internal=True):
        for log in store.topic(topic).partitions:
            assert log.last_stable_offset == log.high_watermark, f"{log.name} hangs"
    run_another(store)


def run_another(store: Store) -> None:
    with store.transaction("one") as transaction:
        transaction.append("orders", b"999", partition=0)
    assert b"999" in [
        r.value for r in store.topic("orders").partition(0).read(isolation="read_committed")
    ]


@pytest.mark.parametrize("run", [run, run_old], ids=["version 2", "version 1"])
@pytest.mark.parametrize("kind", ["power", "kill"])
@pytest.mark.parametrize("seed", range(4))
def test_a_transaction_is_whole_or_absent_wherever_a_crash_comes(
    run: Run, kind: str, seed: int
) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    rng = Random(seed)
    store = open_store(fs, clock=clock)
    store.create_topic("orders", partitions=PARTITIONS)
    history = History()
    cuts: list[tuple[SimulatedFileSystem, History]] = []

    def note(operation: str, path: str) -> None:
        if operation in CHANGES and rng.random() < 0.5:
            left = fs.kill() if kind == "kill" else fs.crash(Random(rng.random()))
            cuts.append((left, history.copy()))

    fs.watch = note
    run(store, history, rng, 6)
    fs.watch = None
    assert len(cuts) > 50

    for number, (left, then) in enumerate(cuts):
        later = ManualClock(clock.now_ms())
        with open_store(left, clock=later) as again:
            try:
                check(again, later, then)
            except (AssertionError, TransactionError) as error:
                error.add_note(f"cut {number} of {len(cuts)}")
                raise


@pytest.mark.parametrize("run", [run, run_old], ids=["version 2", "version 1"])
@pytest.mark.parametrize("seed", range(3))
def test_a_second_crash_during_recovery_changes_nothing(run: Run, seed: int) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    rng = Random(seed)
    store = open_store(fs, clock=clock)
    store.create_topic("orders", partitions=PARTITIONS)
    history = History()
    cuts: list[tuple[SimulatedFileSystem, History]] = []

    def note(operation: str, path: str) -> None:
        if operation in CHANGES and rng.random() < 0.15:
            cuts.append((fs.crash(Random(rng.random())), history.copy()))

    fs.watch = note
    run(store, history, rng, 5)
    fs.watch = None

    for left, then in cuts:
        again: list[SimulatedFileSystem] = []

        def cut(operation: str, path: str, fs: SimulatedFileSystem = left) -> None:
            if operation in CHANGES and rng.random() < 0.3:
                again.append(fs.crash(Random(rng.random())))  # noqa: B023 (called in this turn)

        left.watch = cut
        open_store(left, clock=ManualClock(clock.now_ms()))
        left.watch = None
        for twice in again[-3:]:
            later = ManualClock(clock.now_ms())
            with open_store(twice, clock=later) as recovered:
                check(recovered, later, then)
