"""Readers of a group under any sequence of appends, failures, rebalances and power cuts.

Whatever happens: no record is skipped, two readers never hold the same partition, and the records
of a partition come in order, repeated only from a committed offset on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cordwood.log.reading.merged_logs import TopicRecord
from cordwood.log.topics.group_reader import GroupReader
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

TOPIC = "t"
READERS_MAX = 4
PARTITIONS_MAX = 6


class HandlerError(Exception):
    pass


class Worker:
    """A reader and the record that is being handled."""

    def __init__(self, reader: GroupReader) -> None:
        self.reader = reader
        self.records: Iterator[TopicRecord] = iter(reader)
        self.current: TopicRecord | None = None


class GroupReaderMachine(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 4), count=st.integers(4, 20))
    def begin(self, partitions: int, count: int) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store = open_store(self.fs, clock=self.clock)
        self.store.create_topic(TOPIC, partitions=partitions)
        self.handled: set[tuple[int, int]] = set()
        self.handled_before_cut = 0
        self.workers: list[Worker] = []
        for number in range(partitions):
            self.append(number, count)
        self.open_a_reader(5000)

    # --- what users do -----------------------------------------------------------------------

    @rule(number=st.integers(0, PARTITIONS_MAX - 1), count=st.integers(1, 8))
    def append(self, number: int, count: int) -> None:
        topic = self.store.topic(TOPIC)
        topic.append_many([(None, b"x")] * count, partition=number % topic.partition_count)

    @precondition(lambda self: self.store.topic(TOPIC).partition_count < PARTITIONS_MAX)
    @rule()
    def add_a_partition(self) -> None:
        count = self.store.topic(TOPIC).partition_count
        self.store.alter_topic(TOPIC, partitions=count + 1)

    @precondition(lambda self: len(self.workers) < READERS_MAX)
    @rule(interval_ms=st.sampled_from([0, 100, 5000]))
    def open_a_reader(self, interval_ms: int) -> None:
        group = self.store.group("g")
        reader = group.reader(TOPIC, commit_interval_ms=interval_ms, idle_timeout_ms=0)
        self.workers.append(Worker(reader))

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, READERS_MAX - 1), steps=st.integers(1, 6))
    def handle_some(self, which: int, steps: int) -> None:
        worker = self.workers[which % len(self.workers)]
        for _ in range(steps):
            self.handle_current(worker)
            worker.current = next(worker.records, None)
            if worker.current is None:
                worker.records = iter(worker.reader)
            else:
                self.check_order(worker.current)

    def check_order(self, record: TopicRecord) -> None:
        """All records before it were handled: by this reader, or by those before it."""
        before = {(record.partition, offset) for offset in range(record.offset)}
        assert before <= self.handled, record

    def handle_current(self, worker: Worker) -> None:
        if worker.current is not None:
            self.handled.add((worker.current.partition, worker.current.offset))

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, READERS_MAX - 1))
    def commit(self, which: int) -> None:
        worker = self.workers[which % len(self.workers)]
        self.handle_current(worker)
        worker.reader.commit()

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, READERS_MAX - 1))
    def close(self, which: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        self.handle_current(worker)
        worker.reader.close()

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, READERS_MAX - 1))
    def fail(self, which: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        with suppress(HandlerError), worker.reader:
            raise HandlerError

    @rule(ms=st.integers(1, 6000))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    @precondition(lambda self: len(self.handled) > self.handled_before_cut + 4)
    @rule(seed=st.integers(0, 1000))
    def cut_the_power(self, seed: int) -> None:
        left = self.fs.crash(random.Random(seed))
        self.workers.clear()
        self.store.abandon()
        self.fs = left
        self.handled_before_cut = len(self.handled)
        self.store = open_store(self.fs, clock=self.clock)
        self.open_a_reader(100)

    # --- what holds --------------------------------------------------------------------------

    @invariant()
    def every_record_before_a_commit_was_handled(self) -> None:
        for (_, number), offset in self.store.group("g").committed(TOPIC).items():
            assert {(number, n) for n in range(offset)} <= self.handled

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        held = [number for worker in self.workers for number in worker.reader.partitions]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        while self.workers:
            self.fail(0)
        with self.store.group("g").reader(TOPIC, idle_timeout_ms=0) as reader:
            self.handled |= {(record.partition, record.offset) for record in reader}
        logs = self.store.topic(TOPIC).partitions
        assert self.handled >= {(g.partition, n) for g in logs for n in range(g.high_watermark)}
        self.store.close()


TestGroupReaderMachine = GroupReaderMachine.TestCase
TestGroupReaderMachine.settings = settings(deadline=None)
