"""Who is compacted when: limits, pauses, failures, and what one can see of them."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from cordwood.errors import ConfigError
from cordwood.log.compaction import cleaner as cleaner_module
from cordwood.log.compaction.cleaner import Cleaner, CleanerConfig, Throttle
from cordwood.log.compaction.compaction_run import CompactionOutcome, CompactionStoppedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import TimestampMs
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

CONFIG: dict[str, object] = {"cleanup.policy": "compact", "file.delete.delay.ms": 0}


def store_with(clock: ManualClock, **dirty_rounds: int) -> tuple[Store, SimulatedFileSystem]:
    """A topic for each name, with so many records of one key, sealed."""
    fs = SimulatedFileSystem(clock=clock)
    store = open_store(fs, clock=clock)
    for name, count in dirty_rounds.items():
        store.create_topic(name, config=CONFIG)
        add_dirt(store, name, count)
    return store, fs


def add_dirt(store: Store, name: str, count: int = 3) -> None:
    log = log_of(store, name)
    for number in range(count):
        log.append(b"%d" % number, key=b"k")
    log.roll()
    log.syncing.sync_pending()


def cleaner_of(store: Store, clock: ManualClock, config: CleanerConfig | None = None) -> Cleaner:
    logs: list[PartitionLog] = [log_of(store, name) for name in store.topics()]
    return Cleaner(lambda: logs, clock, config, secret=lambda: bytes(16))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("log.cleaner.threads", {"threads": 0}),
        ("log.cleaner.dedupe.buffer.size", {"dedupe_buffer_size": 100}),
        ("log.cleaner.io.buffer.load.factor", {"io_buffer_load_factor": 1.0}),
        ("log.cleaner.io.max.bytes.per.second", {"io_max_bytes_per_second": 0.0}),
        ("log.cleaner.backoff.ms", {"backoff_ms": -1}),
        ("log.cleaner.time.share.max", {"time_share_max": 0.0}),
    ],
)
def test_settings_that_cannot_be_used_are_refused(key: str, values: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        CleanerConfig(**values)  # type: ignore[arg-type]

    assert caught.value.key == key


def test_what_is_due_is_compacted_the_filthiest_first() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, some=3, more=3)
    cleaner = cleaner_of(store, clock)
    cleaner.run_due(DATA)
    clock.advance(60_000)
    add_dirt(store, "some", 3)
    add_dirt(store, "more", 30)

    results = cleaner.run_due(DATA)

    assert [result.topic for result in results] == ["more", "some"]
    assert {result.outcome for result in results} == {CompactionOutcome.DONE}


def test_a_compacted_segment_says_so_and_the_ones_behind_it_do_not() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, accounts=3)
    cleaner_of(store, clock).run_due(DATA)

    add_dirt(store, "accounts", 3)

    states = [segment.state for segment in log_of(store, "accounts").segments()]
    assert states == ["compacted", "sealed", "active"]


def test_a_log_is_not_compacted_twice_in_quick_succession() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, orders=3)
    cleaner = cleaner_of(store, clock)
    cleaner.run_due(DATA)
    add_dirt(store, "orders", 30)

    assert cleaner.run_due(DATA) == []
    clock.advance(15_000)
    assert len(cleaner.run_due(DATA)) == 1


def test_the_cleaner_rests_as_long_as_it_has_worked() -> None:
    clock = ManualClock(NOW)
    store, fs = store_with(clock, orders=3)
    cleaner = cleaner_of(store, clock, CleanerConfig(backoff_ms=0))

    def take_time(operation: str, path: str) -> None:
        if operation == "write_at" and path.endswith(".log.cleaned"):
            clock.advance(700)

    fs.watch = take_time
    cleaner.run_due(DATA)
    fs.watch = None
    add_dirt(store, "orders", 30)

    assert cleaner.rests_for_s == pytest.approx(0.7)
    assert cleaner.run_due(DATA) == []
    clock.advance(700)
    assert len(cleaner.run_due(DATA)) == 1


def test_a_disabled_cleaner_does_nothing_by_itself() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, orders=3)

    assert cleaner_of(store, clock, CleanerConfig(enable=False)).run_due(DATA) == []


def test_what_the_disk_refused_is_tried_again_after_ever_longer_pauses() -> None:
    clock = ManualClock(NOW)
    store, fs = store_with(clock, orders=3)
    cleaner = cleaner_of(store, clock)
    pauses_ms = []
    for _ in range(3):
        fs.fail_next("create", OSError(errno.EIO, "simulated"), path_ends=".log.cleaned")
        (result,) = cleaner.run_due(DATA)
        assert result.outcome is CompactionOutcome.FAILED
        (status,) = cleaner.status()
        assert status.last_error is not None
        assert "simulated" in status.last_error
        assert not status.is_uncleanable
        assert status.not_before_ms is not None
        pauses_ms.append(status.not_before_ms - clock.now_ms())
        assert cleaner.run_due(DATA) == []
        clock.advance(pauses_ms[-1])

    (result,) = cleaner.run_due(DATA)

    assert pauses_ms == [30_000, 60_000, 120_000]
    assert result.outcome is CompactionOutcome.DONE
    assert cleaner.status()[0].last_error is None


def test_a_log_that_cannot_be_compacted_is_left_alone_until_someone_asks() -> None:
    clock = ManualClock(NOW)
    store, fs = store_with(clock, orders=3, payments=3)
    path = log_of(store, "orders").view().segments[0].name
    fs.open_write(path).write_at(70, b"\xff")
    cleaner = cleaner_of(store, clock)

    results = {result.topic: result.outcome for result in cleaner.run_due(DATA)}

    assert results == {
        "orders": CompactionOutcome.FAILED,
        "payments": CompactionOutcome.DONE,
    }
    clock.advance(10**9)
    assert cleaner.run_due(DATA) == []
    assert [status.is_uncleanable for status in cleaner.status()] == [True, False]
    (asked,) = cleaner.run_now([log_of(store, "orders")], force=True)
    assert asked.outcome is CompactionOutcome.FAILED


def test_several_logs_are_compacted_at_once() -> None:
    clock = ManualClock(NOW)
    names = {f"topic{number}": 5 for number in range(5)}
    store, _ = store_with(clock, **names)
    cleaner = cleaner_of(store, clock, CleanerConfig(threads=3))

    results = cleaner.run_due(DATA)

    assert sorted(result.topic for result in results) == sorted(names)
    for name in names:
        assert [record.offset for record in log_of(store, name).read()] == [4]


def test_figures_add_up_and_can_be_seen() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, orders=20)
    before = log_of(store, "orders").size_bytes
    cleaner = cleaner_of(store, clock)

    (result,) = cleaner.run_due(DATA)

    (status,) = cleaner.status()
    after = log_of(store, "orders").size_bytes
    assert status.last_result == result
    assert (status.runs, status.is_running, status.progress) == (1, False, None)
    assert status.bytes_reclaimed == before - after > 0
    assert status.bytes_written == after
    assert status.bytes_read == 2 * before
    assert status.not_before_ms == TimestampMs(NOW + 15_000)


def test_a_stopped_cleaner_leaves_no_files_and_does_no_more() -> None:
    clock = ManualClock(NOW)
    store, fs = store_with(clock, orders=20)
    cleaner = cleaner_of(store, clock)

    def stop(operation: str, path: str) -> None:
        if path.endswith(".log.cleaned"):
            cleaner._stop.set()

    fs.watch = stop
    results = cleaner.run_due(DATA)

    fs.watch = None
    assert [result.outcome for result in results] == [CompactionOutcome.STOPPED]
    names = [entry.name for entry in fs.list("/data/orders-0")]
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert len(list(log_of(store, "orders").read())) == 20
    clock.advance(10**6)
    assert cleaner.run_due(DATA) == []


def test_closing_a_store_ends_its_compaction() -> None:
    clock = ManualClock(NOW)
    store, fs = store_with(clock, orders=20)
    is_begun, may_go_on = threading.Event(), threading.Event()

    def watch(operation: str, path: str) -> None:
        if path.endswith(".log.cleaned"):
            is_begun.set()

    fs.watch = watch

    def compact() -> None:
        store.compact("orders", force=True)
        may_go_on.set()

    compacting = threading.Thread(target=compact)
    compacting.start()
    is_begun.wait(60)

    store.close()

    assert may_go_on.wait(60)
    compacting.join()
    again = open_store(fs, clock=clock)
    assert [record.value for record in log_of(again, "orders").read()][-1] == b"19"


def test_a_throttle_makes_whoever_is_ahead_wait() -> None:
    clock = ManualClock(NOW)
    waits: list[float] = []
    throttle = Throttle(1000.0, clock, waits.append)

    throttle.pass_bytes(500)
    throttle.pass_bytes(500)
    clock.advance(5000)
    throttle.pass_bytes(100)

    assert waits == pytest.approx([0.5, 1.0, 0.1])


def test_without_a_limit_nobody_waits() -> None:
    waits: list[float] = []

    Throttle(None, ManualClock(NOW), waits.append).pass_bytes(10**12)

    assert waits == []


def test_a_wait_ends_when_the_cleaner_stops() -> None:
    clock = ManualClock(NOW)
    store, _ = store_with(clock, orders=3)
    cleaner = cleaner_of(store, clock, CleanerConfig(io_max_bytes_per_second=0.001))
    cleaner._stop.set()

    with pytest.raises(CompactionStoppedError):
        cleaner._wait(10_000)


def test_one_directory_has_one_turn_whoever_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    class SlowTurn(cleaner_module._Turn):
        def __init__(self) -> None:
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)
            super().__init__()

    monkeypatch.setattr(cleaner_module, "_Turn", SlowTurn)
    cleaner = Cleaner(list, ManualClock(), CleanerConfig())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(cleaner.run_due, ["/data", "/data"]))

    assert both.broken  # a second one was never begun
