"""Waiting fetches: nothing that moves is missed; an archive is asked once for what many want."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.answer import Answer
from cordwood.broker.net.requests.request_metrics import ThreadCounts
from cordwood.broker.net.sockets.outbox import Piece
from cordwood.broker.records.fetch_handler import FetchHandler
from cordwood.broker.records.fetch_sessions import FetchSessions
from cordwood.broker.records.log_watch import LogWatch, ProgressWaiter
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.request_header import RequestHeader
from cordwood.quantities import Offset
from fakes.archived_store import ArchivedStore
from fakes.client_batches import client_batch
from fakes.sessions import LOCAL_SESSION
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC
from wire.record_requests import Wanted, fetch_body

LONG_MS = 3_600_000


class FakeConnection:
    """A client that nothing is sent to."""

    session = LOCAL_SESSION

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.counts = ThreadCounts()
        self.answers: deque[Answer] = deque()

    muted_until_s = 0.0
    throttle_ms = 0

    def mute(self, pause_s: float) -> None: ...

    def send_ready(self) -> None: ...
    def send_alone(self, answer: Answer, frame: bytes) -> int:
        return -1

    def close(self, reason: str) -> None: ...


class KeptAnswer(Answer):
    """An answer that stays where the test finds it."""

    def __init__(self, loop: EventLoop) -> None:
        super().__init__(FakeConnection(loop), RequestHeader(ApiKey.FETCH, 11, 1, None))

    def give(self, pieces: Any) -> None:
        assert not self.is_ready
        self.pieces: list[Piece] = list(pieces)
        self.is_ready = True

    @property
    def ranges(self) -> list[FileRange]:
        return [piece for piece in self.pieces if isinstance(piece, FileRange)]


class HeldReads:
    """Reads that are done when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, archive: str, read: Callable[[], None]) -> None:
        self.tasks.append(read)


class Bench:
    """A handler over a store, its loop turned by hand."""

    def __init__(self, store: Store, watch: type[LogWatch] = LogWatch) -> None:
        self.loop = EventLoop("data")
        self.reads = HeldReads()
        self.watch = watch(self.loop)
        self.handler = FetchHandler(
            table=PartitionTable(store),
            watch=self.watch,
            loop=self.loop,
            readers=self.reads,
            sessions=FetchSessions(10, self.loop.now_s),
            bytes_max=1 << 20,
        )

    def fetch(
        self, topic: str, offset: int, *, max_wait_ms: int = LONG_MS, min_bytes: int = 1
    ) -> KeptAnswer:
        answer = KeptAnswer(self.loop)
        wanted = [Wanted(topic=topic, offset=offset)]
        body = fetch_body(11, wanted, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        self.handler.handle(answer, memoryview(body))
        return answer

    def turn(self) -> None:
        self.loop.call_soon(lambda: None)
        self.loop._turn()

    def work(self) -> None:
        tasks, self.reads.tasks = self.reads.tasks, []
        for task in tasks:
            task()
        self.turn()

    def close(self) -> None:
        self.loop._close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    setup = StoreSetup(
        defaults=TopicConfig(durability="os"), has_housekeeping=False, free_bytes_min=0
    )
    opened = Store([str(tmp_path)], setup)
    opened.create_topic("t")
    yield opened
    opened.close()


@pytest.fixture
def archived() -> Iterator[tuple[ArchivedStore, Bench]]:
    """Offsets 0 to 11 are in the archive only."""
    source = ArchivedStore(SimulatedFileSystem())
    source.create()
    source.append(14)
    source.archive_and_drop()
    bench = Bench(source.store)
    yield source, bench
    bench.close()


class HastyLog(LogWatch):
    """Something is appended between the look at a log and the entry among those who wait."""

    def await_progress(self, log: PartitionLog, waiter: ProgressWaiter) -> None:
        if log.end_offset == 0:
            log.append(b"just now")
        super().await_progress(log, waiter)


def test_what_is_appended_between_the_look_and_the_wait_is_not_missed(store: Store) -> None:
    bench = Bench(store, HastyLog)

    answer = bench.fetch("t", 0)
    bench.turn()
    bench.close()

    assert answer.is_ready
    assert len(answer.ranges) == 1


def test_a_fetch_waits_until_its_log_moves(store: Store) -> None:
    bench = Bench(store)
    answer = bench.fetch("t", 0)
    bench.turn()
    was_ready, waiting = answer.is_ready, bench.handler.waiting_count

    store.topic("t").append(b"x")
    bench.turn()
    bench.close()

    assert (was_ready, waiting) == (False, 1)
    assert answer.is_ready
    assert bench.handler.waiting_count == 0


def test_records_that_are_being_synced_do_not_keep_a_fetch_that_has_others(tmp_path: Path) -> None:
    setup = StoreSetup(has_housekeeping=False, free_bytes_min=0)
    with Store([str(tmp_path)], setup) as store:
        store.create_topic("t")
        log = store.topic("t").partition(0)
        log.append(b"durable")
        placed = log.batches.append_batch(memoryview(bytearray(client_batch(b"x"))), wait=False)
        log.promises.acknowledge_early(Offset(placed.last_offset + 1))
        bench = Bench(store)

        answer = bench.fetch("t", 0, max_wait_ms=1, min_bytes=1 << 20)
        was_ready = answer.is_ready
        time.sleep(0.002)
        bench.turn()
        bench.close()

        assert log.promises.are_ahead_of_readers
        assert not was_ready
        assert len(answer.ranges) == 1


def test_a_fetch_goes_on_waiting_for_the_topic_that_has_its_name_now(store: Store) -> None:
    bench = Bench(store)
    answer = bench.fetch("t", 0)
    store.delete_topic("t")
    store.create_topic("t")
    bench.turn()
    was_ready = answer.is_ready

    store.topic("t").append(b"x")
    bench.turn()
    bench.close()

    assert not was_ready
    assert len(answer.ranges) == 1
    assert bench.handler.waiting_count == 0


def test_a_fetch_whose_log_is_closed_is_answered(store: Store) -> None:
    bench = Bench(store)
    answer = bench.fetch("t", 0)

    store.topic("t").partition(0).close()
    bench.turn()
    bench.close()

    assert answer.is_ready


def test_closed_logs_are_forgotten(store: Store) -> None:
    bench = Bench(store)
    for _ in range(10):
        answer = bench.fetch("t", 0)
        store.topic("t").append(b"x")
        bench.turn()
        assert answer.is_ready
        store.delete_topic("t")
        bench.turn()
        store.create_topic("t")
    watched = len(bench.watch._watches)
    bench.close()

    assert watched == 0


def test_when_the_broker_stops_all_who_wait_are_answered(store: Store) -> None:
    bench = Bench(store)
    answers = [bench.fetch("t", 0) for _ in range(3)]

    bench.handler.finish_all()
    bench.close()

    assert all(answer.is_ready and not answer.ranges for answer in answers)
    assert bench.handler.waiting_count == 0


@pytest.mark.parametrize("max_wait_ms", [0, LONG_MS])
def test_an_archive_is_read_by_a_worker_and_the_fetch_goes_on_then(
    archived: tuple[ArchivedStore, Bench], max_wait_ms: int
) -> None:
    _, bench = archived

    answer = bench.fetch(TOPIC, 4, max_wait_ms=max_wait_ms)
    was_ready = answer.is_ready
    bench.work()

    assert not was_ready
    assert [found.base_offset for found in answer.ranges] == [4]


def test_the_archive_is_asked_once_for_what_many_want(
    archived: tuple[ArchivedStore, Bench],
) -> None:
    _, bench = archived

    answers = [bench.fetch(TOPIC, 4) for _ in range(5)]
    asked = len(bench.reads.tasks)
    bench.work()

    assert asked == 1
    assert all(answer.ranges for answer in answers)


def test_who_cannot_wait_for_a_slow_archive_asks_again_and_meets_the_same_reading(
    archived: tuple[ArchivedStore, Bench],
) -> None:
    _, bench = archived
    late = bench.fetch(TOPIC, 4)
    bench.handler.finish_all()  # as when its time is over

    again = bench.fetch(TOPIC, 4)
    asked = len(bench.reads.tasks)
    bench.work()

    assert late.is_ready
    assert not late.ranges
    assert asked == 1
    assert again.ranges


def test_a_reading_that_fails_is_told_to_all_who_wait_for_it(
    archived: tuple[ArchivedStore, Bench],
) -> None:
    source, bench = archived
    answers = [bench.fetch(TOPIC, 4) for _ in range(2)]
    source.objects.fail_at(1, goes_on=True)

    bench.work()

    assert all(answer.is_ready and not answer.ranges for answer in answers)
