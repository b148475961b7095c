"""Readers beside an owner that replaces segments: at each step, with the owner alive or dead.

`newest` is what compaction must keep of each key; a reader may see more, but never less.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.storage.files import FileSystem
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, new_log

CONFIG: dict[str, object] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 600,
    "index.interval.bytes": 100,
    "min.cleanable.dirty.ratio": 0,
    "file.delete.delay.ms": 60_000,
}
DIRECTORY = f"{DATA}/{TOPIC}-0"
RENAMING = {"rename", "remove", "sync_directory"}

Contents = dict[int, tuple[bytes | None, bytes | None]]


class CompactingStore:
    """A store whose next compaction merges several segments and drops records."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store, self.log = new_log(self.fs, CONFIG, clock=self.clock)
        self.appended: Contents = {}
        self._append(Random(7), 40)
        self.store.compact(TOPIC, force=True)  # small segments are left, which can be merged
        kept = {record.offset for record in self.log.read()}
        self.appended = {offset: self.appended[offset] for offset in kept}
        self._append(Random(8), 20)
        by_key = {key: offset for offset, (key, _) in self.appended.items()}
        self.newest = {offset: self.appended[offset] for offset in by_key.values()}

    def _append(self, rng: Random, count: int) -> None:
        for number in range(count):
            key = b"key %d" % rng.randrange(5)
            self.appended[self.log.append(b"%d" % number, key=key).offset] = (key, b"%d" % number)

    def compact(self) -> None:
        (result,) = self.store.compact(TOPIC, force=True)
        assert result.segments_before > result.segments_after + 1
        assert result.bytes_reclaimed > 0

    def check(self, records: Contents) -> None:
        assert records.items() <= self.appended.items()
        assert self.newest.items() <= records.items(), "a record is missing"


def open_reader(fs: FileSystem, clock: ManualClock) -> ReadOnlyStore:
    return ReadOnlyStore([DATA], fs=fs, clock=clock, defaults=TopicConfig())


def log_in(store: ReadOnlyStore) -> ReadOnlyLog:
    return store.topic(TOPIC).partition(0)


def read_all(log: ReadOnlyLog) -> Contents:
    return {record.offset or 0: (record.key, record.value) for record in log.read()}


def has_swaps(fs: SimulatedFileSystem) -> bool:
    return any(name.endswith(".log.swap") for name in fs.names(DIRECTORY))


@pytest.mark.parametrize("is_owner_alive", [True, False])
def test_a_reader_that_opens_at_any_step_misses_nothing(is_owner_alive: bool) -> None:
    bench = CompactingStore()
    steps = 0

    def look(operation: str, path: str) -> None:
        nonlocal steps
        if operation not in RENAMING or DIRECTORY not in path:
            return
        watch, bench.fs.watch = bench.fs.watch, None
        fs = bench.fs if is_owner_alive else bench.fs.kill()
        steps += has_swaps(fs)
        with open_reader(fs, bench.clock) as store:
            log = log_in(store)
            bench.check(read_all(log))
            assert log.high_watermark == bench.log.high_watermark
            assert log.offset_for_time(0) == min(read_all(log))
            for key, _ in bench.newest.values():
                assert key is not None
                found = log.find(key)
                assert found is not None
                assert found.offset in bench.newest
        bench.fs.watch = watch

    bench.fs.watch = look
    bench.compact()
    bench.fs.watch = None

    assert steps > 20


def test_a_reader_of_an_earlier_view_goes_on_at_any_step() -> None:
    bench = CompactingStore()
    begun = []
    for _ in range(120):
        store = open_reader(bench.fs, bench.clock)
        log = log_in(store)
        records = log.read()
        first = next(records)
        begun.append((store, log, records, first))
    steps = iter(begun)

    def go_on(operation: str, path: str) -> None:
        if operation not in RENAMING or DIRECTORY not in path:
            return
        watch, bench.fs.watch = bench.fs.watch, None
        store, log, records, first = next(steps)
        rest = {record.offset or 0: (record.key, record.value) for record in [first, *records]}
        bench.check(rest)
        bench.check(read_all(log))
        store.close()
        bench.fs.watch = watch

    bench.fs.watch = go_on
    bench.compact()
    bench.fs.watch = None

    for store, _, records, first in steps:
        bench.check({r.offset or 0: (r.key, r.value) for r in [first, *records]})
        store.close()


QUESTIONS: dict[str, Callable[[ReadOnlyLog], object]] = {
    "read": read_all,
    "open": lambda log: log.size_bytes,
    "time": lambda log: log.offset_for_time(0),
    "find": lambda log: log.find(b"key 1"),
    "history": lambda log: list(log.history(b"key 1")),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_swap_may_happen_between_any_two_calls_of_a_reader(question: str) -> None:
    call = 0
    while True:
        bench = CompactingStore()
        left = call

        def swap(operation: str, path: str, bench: CompactingStore = bench) -> None:
            nonlocal left
            if DIRECTORY not in path:
                return
            left -= 1
            if left < 0:
                bench.fs.watch = None
                bench.compact()

        bench.fs.watch = swap
        with open_reader(bench.fs, bench.clock) as store:
            log = log_in(store)
            answer = QUESTIONS[question](log)
            is_through = left >= 0
            bench.fs.watch = None
            if question == "read":
                assert isinstance(answer, dict)
                bench.check(answer)
            elif question == "find":
                assert answer == log.find(b"key 1")
            elif question == "time":
                assert answer in bench.appended
            bench.check(read_all(log))
        if is_through:
            return
        call += 1


def test_the_size_of_a_new_active_segment_is_its_own_in_the_first_view() -> None:
    bench = CompactingStore()
    with open_reader(bench.fs, bench.clock) as store:
        log = log_in(store)
        assert log.view().segments.active.size == bench.log.state.segments.active.size

        bench.log.roll()
        bench.log.append(b"new", key=b"new")

        active = log.view().segments.active
        assert active.base_offset == bench.log.state.segments.active.base_offset
        assert active.size == bench.log.state.segments.active.size


KEYS = [b"key %d" % number for number in range(5)]


class OvertakingStore:
    """A store whose next round replaces every record below the high watermark by newer ones.

    The replacement is as large as the replaced file.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store, self.log = new_log(self.fs, CONFIG, clock=self.clock)
        for _ in range(2):
            self.overtake()

    def overtake(self) -> None:
        for key in KEYS:
            self.log.append(b"value", key=key)
        self.store.compact(TOPIC, force=True)


SEARCHES: dict[str, Callable[[ReadOnlyLog], set[bytes | None]]] = {
    "read": lambda log: {record.key for record in log.read()},
    "committed": lambda log: {record.key for record in log.read(isolation="read_committed")},
    "scan": lambda log: {
        key for batch in log.scan(threads=2) for key in batch.column("key").to_pylist()
    },
    "find": lambda log: {None if (found := log.find(key)) is None else found.key for key in KEYS},
    "history": lambda log: {record.key for key in KEYS for record in log.history(key)},
    "time": lambda log: {None} if log.offset_for_time(0) is None else set(KEYS),
}


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("search", SEARCHES)
def test_no_key_is_missing_if_appends_and_a_swap_happen_between_any_two_calls(
    search: str, is_open: bool
) -> None:
    """Compaction removes records because of newer ones past the end that the reader knew."""
    call = 0
    is_through = False
    while not is_through:
        bench = OvertakingStore()
        left = call

        def overtake(operation: str, path: str, bench: OvertakingStore = bench) -> None:
            nonlocal left
            if DIRECTORY not in path:
                return
            left -= 1
            if left < 0:
                bench.fs.watch = None
                bench.overtake()

        if not is_open:
            bench.fs.watch = overtake
        with open_reader(bench.fs, bench.clock) as store:
            log = log_in(store)
            if is_open:
                bench.overtake()  # the next view lists the files again
                bench.fs.watch = overtake
            assert SEARCHES[search](log) == set(KEYS)
            is_through = left >= 0
            bench.fs.watch = None
        call += 1


def test_a_read_that_began_before_appends_and_a_swap_goes_on_to_the_new_end() -> None:
    bench = OvertakingStore()
    with open_reader(bench.fs, bench.clock) as store:
        for log in (log_in(store), bench.log):
            records = log.read()
            bounded = log.read(stop=log.high_watermark)
            bench.overtake()

            assert [record.key for record in records] == KEYS
            assert list(bounded) == []
