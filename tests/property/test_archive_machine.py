"""A log with an archive is a list whose front may be deleted, whatever fails and restarts."""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.archived_store import ArchivedStore
from fakes.failing_objects import ProcessKilled
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC


class ArchiveMachine(RuleBasedStateMachine):
    """The model: values by offset from `start` on. The archive and the disk may differ in shape,
    never in what is read."""

    @initialize(cache_bytes=st.sampled_from([1, 400, 1 << 20]))
    def open(self, cache_bytes: int) -> None:
        self.fs = SimulatedFileSystem()
        self.cache_bytes = cache_bytes
        self.bench = ArchivedStore(self.fs, cache_bytes=cache_bytes)
        self.bench.create()
        self.model: list[bytes] = []
        self.start = 0

    @rule(count=st.integers(1, 7))
    def append(self, count: int) -> None:
        for _ in range(count):
            value = b"v%d" % len(self.model)
            self.bench.log.append(value)
            self.model.append(value)

    @rule()
    def archive(self) -> None:
        for status in self.bench.store.archive_now():
            assert status.last_error is None, status

    @rule(number=st.integers(1, 40), late=st.booleans())
    def archive_and_fail(self, number: int, late: bool) -> None:
        self.bench.objects.fail_at(number, late=late)
        self.bench.store.archive_now()
        self.bench.objects.heal()

    @rule()
    def drop_local_copies(self) -> None:
        self.bench.log.upkeep.apply_retention(self.bench.clock.now_ms())

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, len(self.model)))
        self.bench.log.delete_before(offset)
        self.start = offset

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule()
    def restart(self) -> None:
        self.bench.store.close()
        self.reopen(self.fs)

    @rule(number=st.integers(1, 40), late=st.booleans())
    def be_killed_while_archiving(self, number: int, late: bool) -> None:
        self.bench.objects.fail_at(number, late=late, error=ProcessKilled)
        with suppress(ProcessKilled):
            self.bench.store.archive_now()
        self.reopen(self.fs.kill())

    @rule(seed=st.integers(0, 10_000))
    def lose_power(self, seed: int) -> None:
        self.reopen(self.fs.crash(random.Random(seed)))

    def reopen(self, fs: SimulatedFileSystem) -> None:
        self.fs = fs
        self.bench = ArchivedStore(fs, cache_bytes=self.cache_bytes)
        assert self.bench.store.damages() == []

    @rule()
    def lose_the_disk_and_restore(self) -> None:
        for status in self.bench.store.archive_now():
            assert status.last_error is None, status
        log = self.bench.log
        archived = log.archive.archived_up_to
        if not archived:
            return
        self.bench.store.close()
        self.fs.remove_tree("/data")
        self.bench = ArchivedStore(self.fs, cache_bytes=self.cache_bytes)
        self.bench.store.restore_topic(TOPIC, "file:///archive", take_over=True)
        self.model = self.model[:archived]
        self.start = min(self.start, archived)  # what was deleted past the archive is lost too

    @invariant()
    def reads_back_what_was_appended(self) -> None:
        log = self.bench.log
        assert (log.start_offset, log.end_offset) == (self.start, len(self.model))
        assert [record.value for record in log.read()] == self.model[self.start :]
        middle = (self.start + len(self.model)) // 2
        assert [record.value for record in log.read(middle)] == self.model[middle:]


TestArchive = ArchiveMachine.TestCase
