"""Transactions with one partition: their marker is the commit, and one sync is enough."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from cordwood.errors import LogFailedError, ProducerFencedError, TransactionError
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.format.transaction_records import TransactionState, decode_transaction_value
from cordwood.log.partition.appends.client_batches import ClientBatches
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_metadata import EPOCH_EXHAUSTED, TransactionMetadata
from cordwood.value_class import replace
from fakes.interrupter import interrupt, places
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, IdleFlusher, open_store

DAY_MS = 24 * 3600 * 1000
STRIDE = 16  # every sixteenth place; the first one is another one in each run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


@pytest.fixture
def store(fs: SimulatedFileSystem, clock: ManualClock) -> Iterator[Store]:
    """A store in which one transaction of the id has created all topics."""
    with open_store(fs, clock=clock) as opened:
        opened.create_topic("paid", partitions=3)
        pay(opened, b"0")
        yield opened


def pay(store: Store, *values: bytes, partition: int = 0) -> None:
    with store.transaction("billing") as transaction:
        for value in values:
            transaction.append("paid", value, partition=partition)


def committed(store: Store, partition: int = 0) -> list[bytes | None]:
    log = log_of(store, partition)
    assert log.last_stable_offset == log.high_watermark, "it hangs"
    return [record.value for record in log.read(isolation="read_committed")]


def log_of(store: Store, partition: int = 0) -> PartitionLog:
    return store.topic("paid").partition(partition)


def known(store: Store) -> TransactionMetadata:
    found = store.transactions.find("billing")
    assert found is not None
    return found


def written_states(store: Store) -> list[TransactionState]:
    """What `__transaction_state` has of its only id, in order."""
    log = store.topic(TRANSACTION_STATE_TOPIC).partition(0)
    values = [record.value for record in log.read()]
    return [decode_transaction_value(value).state for value in values if value is not None]


def init(store: Store) -> list[Outcome]:
    """Another producer asks for the id."""
    outcomes: list[Outcome] = []
    store.transactions.init_producer(
        "billing", timeout_ms=60_000, expected=None, done=outcomes.append
    )
    return outcomes


def before_marker(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, after: bool = False
) -> None:
    """Have something done just before the next marker of a log is written, or just after."""
    end_transaction = ClientBatches.end_transaction

    def end(batches: ClientBatches, marker: MarkerFacts, **options: Any) -> Any:
        monkeypatch.setattr(ClientBatches, "end_transaction", end_transaction)
        if not after:
            act()
        result = end_transaction(batches, marker, **options)
        if after:
            act()
        return result

    monkeypatch.setattr(ClientBatches, "end_transaction", end)


# --- what it costs ------------------------------------------------------------------------------


def test_a_lone_transaction_is_synced_once_and_the_coordinator_writes_nothing(
    fs: SimulatedFileSystem, store: Store
) -> None:
    calls: list[tuple[str, str]] = []
    fs.watch = lambda operation, path: calls.append((operation, path))

    pay(store, b"1", b"2")

    fs.watch = None
    changes = [(name, path) for name, path in calls if name in {"sync", "write_at"}]
    assert [name for name, _ in changes].count("sync") == 1
    assert changes[-1][0] == "sync"
    assert all("/paid-0/" in path for _, path in changes)
    assert committed(store) == [b"0", b"1", b"2"]


def test_the_coordinator_writes_the_end_later_and_at_the_close(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    pay(store, b"1")
    assert written_states(store) == [TransactionState.EMPTY]

    store.transactions.tick()
    assert written_states(store)[1:] == [TransactionState.COMPLETE_COMMIT]

    pay(store, b"2")
    epoch = known(store).epoch
    store.close()
    with open_store(fs, clock=clock) as again:
        assert (known(again).state, known(again).epoch) == (
            TransactionState.COMPLETE_COMMIT,
            epoch,
        )


@pytest.mark.parametrize("kind", ["two partitions", "offsets", "abort"])
def test_everything_else_is_decided_by_the_coordinator(store: Store, kind: str) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"1", partition=0)
        if kind == "two partitions":
            transaction.append("paid", b"1", partition=1)
        elif kind == "offsets":
            transaction.commit_offsets("group", {("paid", 0): 1})
        else:
            transaction.abort()

    decided = TransactionState.PREPARE_ABORT if kind == "abort" else TransactionState.PREPARE_COMMIT
    assert decided in written_states(store)
    assert committed(store) == ([b"0"] if kind == "abort" else [b"0", b"1"])


def test_an_adopted_topic_has_no_lone_transactions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.registry, "is_adopted", lambda _name: True)

    pay(store, b"1")

    assert TransactionState.PREPARE_COMMIT in written_states(store)
    assert committed(store) == [b"0", b"1"]


# --- crashes --------------------------------------------------------------------------------------


def test_after_a_death_the_epoch_comes_from_the_logs(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    for number in range(5):
        pay(store, b"%d" % number, partition=number % 2)
    epoch = known(store).epoch

    with open_store(fs.kill(), clock=clock) as again:
        assert known(again).epoch == epoch
        pay(again, b"next", partition=1)
        assert known(again).epoch == epoch + 2  # it was taken over, and ended one
        assert committed(again, 1) == [b"1", b"3", b"next"]


def test_a_lone_transaction_that_was_open_at_a_death_is_never_committed(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    for number in range(3):
        pay(store, b"%d" % number, partition=1)
    unfinished = store.transaction("billing")
    unfinished.__enter__()
    unfinished.append("paid", b"unfinished", partition=1)

    with open_store(fs.kill(), clock=clock) as again:
        assert known(again).state is TransactionState.ONGOING
        pay(again, b"next", partition=1)

        assert committed(again, 1) == [b"0", b"1", b"2", b"next"]


def test_a_general_transaction_that_is_still_prepared_on_the_disk_ends_no_later_one(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = store.transactions.work
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"a", partition=0)
        transaction.append("paid", b"a", partition=1)
        write = work.write
        # Its completion stays in memory.
        monkeypatch.setattr(
            work,
            "write",
            lambda entry, **options: entry.written and write(entry, **options),
        )
    pay(store, b"b", partition=0)
    epoch = known(store).epoch
    unfinished = store.transaction("billing")
    unfinished.__enter__()
    unfinished.append("paid", b"unfinished", partition=1)
    assert written_states(store)[-1] is TransactionState.PREPARE_COMMIT

    with open_store(fs.kill(), clock=clock) as again:
        assert known(again).epoch == epoch
        pay(again, b"next", partition=1)
        assert committed(again, 0) == [b"0", b"a", b"b"]
        assert committed(again, 1) == [b"a", b"next"]


def test_the_end_is_not_written_before_its_log_is_on_the_disk(
    fs: SimulatedFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(fs, clock=clock, flusher=IdleFlusher())
    log = store.create_topic("paid").partition(0)
    pay(store, b"0")
    store.transactions.tick()
    before = written_states(store)
    with monkeypatch.context() as patch:

        def interrupted(_end: int) -> None:
            raise KeyboardInterrupt

        patch.setattr(log.promises, "await_kept", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pay(store, b"1", b"2", b"3")

    store.transactions.tick()
    assert written_states(store) == before
    log.sync()
    store.transactions.tick()
    store.topic(TRANSACTION_STATE_TOPIC).partition(0).sync()
    assert written_states(store)[-1] is TransactionState.COMPLETE_COMMIT
    assert committed(store) == [b"0", b"1", b"2", b"3"]


# --- a log that comes online late -----------------------------------------------------------------


def open_without(
    fs: SimulatedFileSystem, clock: ManualClock, partition: str
) -> tuple[Store, Callable[[], None]]:
    """A store without a partition, and what brings it back."""

    def watch(operation: str, path: str) -> None:
        if path.startswith(f"/data/{partition}") and operation in {"map_words", "open_write"}:
            raise OSError(errno.EMFILE, "Too many open files", path)

    def come_back() -> None:
        fs.watch = None
        clock.advance(10_000)
        opened.maintain()

    fs.watch = watch
    opened = open_store(fs, clock=clock)
    return opened, come_back


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("is_open", [False, True])
def test_an_epoch_that_is_given_a_second_time_commits_nothing_in_a_late_log(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock, count: int, is_open: bool
) -> None:
    for number in range(1, 4):
        pay(store, b"%d" % number, partition=1)
    unfinished = store.transaction("billing")
    unfinished.__enter__()
    unfinished.append("paid", b"unfinished", partition=1)
    last = known(store).identity

    again, come_back = open_without(fs.kill(), clock, "paid-1")
    for _ in range(count):
        pay(again, b"meanwhile", partition=0)
    transaction = again.transaction("billing")
    if is_open:
        transaction.__enter__()
        transaction.append("paid", b"another", partition=0)
    come_back()

    now = known(again).identity
    assert now.producer_id != last.producer_id or now.epoch >= last.epoch
    assert committed(again, 1) == [b"1", b"2", b"3"]
    others = [b"meanwhile"] * count
    if is_open:
        with suppress(TransactionError):  # it was aborted, if its epoch was outdated
            transaction.commit()
            others.append(b"another")
    try:
        pay(again, b"next", partition=1)
    except ProducerFencedError:  # its epoch was outdated; it gets the next one
        pay(again, b"next", partition=1)
    assert committed(again, 1) == [b"1", b"2", b"3", b"next"]
    assert committed(again, 0) == [b"0", *others]
    again.close()


@pytest.mark.parametrize("count", range(6))
def test_what_is_open_in_a_log_that_missed_a_start_is_not_committed_at_the_next(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock, count: int
) -> None:
    for number in range(1, 4):
        pay(store, b"%d" % number, partition=1)
    unfinished = store.transaction("billing")
    unfinished.__enter__()
    unfinished.append("paid", b"unfinished", partition=1)
    after = fs.kill()

    without, _ = open_without(after, clock, "paid-1")
    for _ in range(count):
        pay(without, b"meanwhile", partition=0)
    without.close()
    after.watch = None
    with open_store(after, clock=clock) as again:
        pay(again, b"next", partition=1)

        assert committed(again, 1) == [b"1", b"2", b"3", b"next"]
        assert committed(again, 0) == [b"0"] + [b"meanwhile"] * count


def test_a_record_that_was_put_off_is_written_when_there_is_room_again(
    fs: SimulatedFileSystem, store: Store
) -> None:
    pay(store, b"1")
    epoch = known(store).epoch

    def fill_disk(operation: str, path: str) -> None:
        if TRANSACTION_STATE_TOPIC in path and operation == "write_at":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    fs.watch = fill_disk
    store.transactions.tick()
    fs.watch = None
    store.transactions.tick()

    log = store.topic(TRANSACTION_STATE_TOPIC).partition(0)
    newest = [decode_transaction_value(record.value or b"") for record in log.read()][-1]
    assert newest.state is TransactionState.COMPLETE_COMMIT
    assert newest.producer_epoch == epoch


def test_ids_that_come_late_are_raised_to_what_the_logs_have(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    for number in range(1, 4):
        pay(store, b"%d" % number)
    epoch = known(store).epoch

    again, come_back = open_without(fs.kill(), clock, f"{TRANSACTION_STATE_TOPIC}-0")
    come_back()

    assert known(again).epoch == epoch
    pay(again, b"next")
    assert committed(again) == [b"0", b"1", b"2", b"3", b"next"]
    again.close()


# --- other producers of the id --------------------------------------------------------------------


def test_a_producer_that_was_replaced_before_its_commit_is_refused(store: Store) -> None:
    transaction = store.transaction("billing")
    transaction.__enter__()
    transaction.append("paid", b"1", partition=0)
    assert isinstance(init(store)[0], Granted)

    with pytest.raises(ProducerFencedError):
        transaction.commit()

    assert committed(store) == [b"0"]


@pytest.mark.parametrize("after", [False, True], ids=["before the marker", "after it"])
def test_whoever_asks_for_the_id_while_the_marker_is_written_comes_second(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    outcomes: list[Outcome] = []
    before_marker(monkeypatch, lambda: outcomes.extend(init(store)), after=after)

    pay(store, b"1")
    taken = known(store)

    assert committed(store) == [b"0", b"1"]
    pay(store, b"2")  # it takes the id back
    assert known(store).epoch > taken.epoch
    assert committed(store) == [b"0", b"1", b"2"]


def test_a_timeout_while_the_marker_is_written_takes_nothing_back(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> None:
        clock.advance(DAY_MS)
        store.transactions.tick()

    before_marker(monkeypatch, wait)

    pay(store, b"1")

    assert committed(store) == [b"0", b"1"]
    pay(store, b"2")
    assert committed(store) == [b"0", b"1", b"2"]


def test_the_last_epoch_of_a_producer_id_ends_in_the_general_way(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    table = store.transactions._table
    entry = table._entries["billing"]
    assert entry.metadata is not None
    table.install(entry, replace(entry.metadata, epoch=EPOCH_EXHAUSTED - 1))
    identity = known(store).identity
    store._library_producers._producers["billing"].identity = identity
    for number in range(1, 5):
        pay(store, b"%d" % number)
    after = known(store)

    assert after.producer_id != identity.producer_id
    with open_store(fs.kill(), clock=clock) as again:
        assert known(again).identity == after.identity
        pay(again, b"5")
        assert committed(again) == [b"0", b"1", b"2", b"3", b"4", b"5"]


# --- failures and interrupts --------------------------------------------------------------------


def test_a_marker_that_cannot_be_written_is_left_to_the_coordinator(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before_marker(monkeypatch, fail)

    pay(store, b"1")

    assert TransactionState.PREPARE_COMMIT in written_states(store)
    assert committed(store) == [b"0", b"1"]


def test_a_sync_that_fails_is_told_and_the_next_opening_says_how_it_ended(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    fs.fail_next("sync", OSError(errno.EIO, "Input/output error"), path_ends=".log")

    with pytest.raises(LogFailedError):
        pay(store, b"1", b"2")

    for seed in range(20):
        with open_store(fs.crash(Random(seed)), clock=clock) as again:
            pay(again, b"3", partition=1)
            assert committed(again) in ([b"0"], [b"0", b"1", b"2"])
            assert committed(again, 1) == [b"3"]


def _world_with_threads() -> tuple[SimulatedFileSystem, Store]:
    """The coordinator has its own threads: only those of the caller are interrupted."""
    fs = SimulatedFileSystem()
    store = Store([DATA], StoreSetup(fs=fs, opening_threads=1))
    store.create_topic("paid", partitions=1)
    pay(store, b"0")
    return fs, store


def test_an_interrupt_anywhere_leaves_all_or_nothing_and_an_id_that_works() -> None:
    _, store = _world_with_threads()
    count = places(partial(pay, store, b"1", b"2"))
    store.abandon()
    assert count > 500

    for place in range(1 + Random().randrange(STRIDE), count + 1, STRIDE):
        fs, store = _world_with_threads()
        where = interrupt(partial(pay, store, b"1", b"2"), place)
        try:
            if log_of(store).state.failure is None:
                pay(store, b"3")
                assert committed(store) in ([b"0", b"3"], [b"0", b"1", b"2", b"3"])
            for left in (fs.kill(), fs.crash(Random(place))):
                with open_store(left, clock=ManualClock(store._clock.now_ms())) as again:
                    pay(again, b"4")
                    seen = committed(again)
                    assert seen[-1] == b"4"
                    assert [v for v in seen if v in (b"1", b"2")] in ([], [b"1", b"2"])
        except BaseException as error:
            error.add_note(f"interrupted at place {place} of {count}, {where}")
            raise
        store.abandon()
