"""Interrupts, systems without threads, bugs: nobody waits for ever, and no transaction hangs."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.errors import TransactionError
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.format.record import Record
from cordwood.format.transaction_records import TransactionState, encode_transaction_key
from cordwood.log.store.store import Store
from cordwood.log.transactions import transaction_journal, transaction_machine
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.work_queue import WorkQueue
from cordwood.quantities import ProducerId
from fakes.manual_clock import ManualClock
from fakes.scarcity import refuse_threads
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


@pytest.fixture
def store() -> Iterator[Store]:
    clock = ManualClock()
    with open_store(SimulatedFileSystem(clock=clock), clock=clock) as opened:
        opened.create_topic("paid", partitions=100)
        yield opened


def state_of(store: Store, transactional_id: str) -> TransactionState | None:
    metadata = store.transactions.find(transactional_id)
    return None if metadata is None else metadata.state


def test_an_interrupt_between_a_lease_and_the_append_leaves_no_open_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = store.transactions
    begin_append = coordinator.begin_append

    def interrupted(*args: Any, **options: Any) -> None:
        begin_append(*args, **options)
        raise KeyboardInterrupt

    def pay() -> None:
        with store.transaction("billing") as transaction:
            transaction.append("paid", b"1", partition=0)
            monkeypatch.setattr(coordinator, "begin_append", interrupted)
            transaction.append("paid", b"2", partition=1)

    with pytest.raises(KeyboardInterrupt):
        pay()

    assert state_of(store, "billing") is TransactionState.COMPLETE_ABORT
    log = store.topic("paid").partition(0)
    assert log.last_stable_offset == log.high_watermark == 2


def test_a_lease_that_comes_after_the_end_is_released(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = store.transactions
    begin_append = coordinator.begin_append
    late: list[Any] = []

    def interrupted(*args: Any, **options: Any) -> None:
        late.append(options.pop("done"))
        begin_append(*args, **options, done=outcomes.append)
        raise KeyboardInterrupt

    outcomes: list[Outcome] = []
    monkeypatch.setattr(coordinator, "begin_append", interrupted)
    transaction = store.transaction("billing")
    transaction.__enter__()
    _refuse_lone(store, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        transaction.append("paid", b"1", partition=0)
    transaction._leave()
    late[0](outcomes[0])
    ends: list[Outcome] = []
    coordinator.abort("billing", ends.append)

    assert len(ends) == 1
    assert state_of(store, "billing") is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    "transactional_id", ["", "x" * 40_000, "\udc80"], ids=["empty", "long", "no text"]
)
def test_an_id_that_no_record_can_hold_is_refused_at_once(
    store: Store, transactional_id: str
) -> None:
    with pytest.raises(TransactionError):
        store.transaction(transactional_id)


def test_the_limit_of_messages_does_not_keep_a_transaction_open(store: Store) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"1", partition=0)
    store.alter_topic("__transaction_state", config={"max.message.bytes": 200})

    with store.transaction("billing") as transaction:
        for number in range(100):
            transaction.append("paid", b"2", partition=number)

    assert state_of(store, "billing") is TransactionState.COMPLETE_COMMIT


def test_a_record_that_cannot_be_encoded_does_not_stop_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(transactional_id: str) -> bytes:
        if transactional_id == "bad":
            raise ValueError("a bug")
        return encode_transaction_key(transactional_id)

    monkeypatch.setattr(transaction_journal, "encode_transaction_key", encode)
    outcomes: dict[str, Outcome] = {}
    for name in ("bad", "billing"):
        store.transactions.init_producer(
            name, timeout_ms=1000, expected=None, done=partial(outcomes.__setitem__, name)
        )

    assert isinstance(outcomes["bad"], Refused)
    assert not isinstance(outcomes["billing"], Refused)
    assert store.transactions.find("bad") is None


def test_one_who_fails_to_take_an_answer_does_not_keep_it_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def fail(_outcome: Outcome) -> None:
        raise KeyError("a bug")

    def init(store: Store, transactional_id: str, done: Any) -> None:
        store.transactions.init_producer(
            transactional_id, timeout_ms=1000, expected=None, done=done
        )

    with cordwood.open(tmp_path) as store:
        with store.transaction("first"):
            pass
        gate, entered = _slow_promises(store, monkeypatch)
        init(store, "first", lambda outcome: None)
        assert entered.wait(60)
        # Both wait in the journal, and are written together.
        for transactional_id, done in (("bad", fail), ("good", lambda _: answered.set())):
            init(store, transactional_id, done)
        while len(store.transactions._table.work.queue._items) < 2:
            pass
        gate.set()
        assert answered.wait(60)


def test_a_request_that_fences_is_answered_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = cordwood.open(tmp_path)
    store.create_topic("paid")
    transaction = store.transaction("billing")
    transaction.__enter__()
    transaction.append("paid", b"1")
    gate, entered = _slow_promises(store, monkeypatch)
    outcomes: list[Outcome] = []
    store.transactions.init_producer(
        "billing", timeout_ms=1000, expected=None, done=outcomes.append
    )
    assert entered.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store.transactions._table.work.queue._is_stopped:
        pass
    gate.set()
    closing.join(60)

    assert outcomes == [Refused(Refusal.COORDINATOR_NOT_AVAILABLE)]


def test_a_queue_without_a_thread_works_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    done = threading.Event()

    def work(items: list[int]) -> None:
        worked.extend(items)
        if 2 in items:
            done.set()

    queue = WorkQueue("queue", work)
    with monkeypatch.context() as patch:
        refuse_threads(patch)
        assert queue.put(1)
    queue.put(2)

    assert done.wait(60)
    assert worked == [1, 2]
    queue.stop()


def test_a_queue_that_never_got_a_thread_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: WorkQueue[int] = WorkQueue("queue", lambda items: None)
    refuse_threads(monkeypatch)
    queue.put(1)

    queue.stop()


def test_the_marker_of_nobody_s_transaction_is_tried_until_the_disk_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock=clock)
    with open_store(fs, clock=clock) as store:
        log = store.create_topic("paid").partition(0)
        log.batches.append_batch(_batch_of_nobody(clock))

    def fail(_writer: MarkerWriter, _marker: WantedMarker, *, wait: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MarkerWriter, "_append", fail)
        store = open_store(fs, clock=clock)
        store.transactions.tick()
    with store:
        log = store.topic("paid").partition(0)
        assert (log.last_stable_offset, log.high_watermark) == (0, 1)

        store.transactions.tick()
        assert (log.last_stable_offset, log.high_watermark) == (2, 2)

        store.transactions.tick()
        assert log.high_watermark == 2


def test_markers_that_fail_are_logged_once_and_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    markers = store.transactions.markers
    numbers = iter([errno.EIO, errno.EIO, errno.ENOSPC, errno.ENOSPC])

    def fail(_marker: WantedMarker, *, wait: bool) -> None:
        raise OSError(next(numbers), "no")

    def lines(text: str) -> int:
        return sum(text in record.getMessage() for record in caplog.records)

    _refuse_lone(store, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(markers, "_append", fail)
        with store.transaction("billing") as transaction:
            transaction.append("paid", b"1", partition=0)
        for _ in range(3):
            store.transactions.tick()

        assert lines("has no transaction marker yet") == 2  # EIO, then ENOSPC
        assert (markers.unwritten_count, markers.failure_count) == (1, 4)

    store.transactions.tick()
    assert lines("has its transaction markers now") == 1
    assert (markers.unwritten_count, markers.failure_count) == (0, 4)
    assert state_of(store, "billing") is TransactionState.COMPLETE_COMMIT


def test_a_transaction_with_too_many_partitions_says_so_and_can_be_aborted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_machine, "PARTITIONS_MAX", 3)

    def pay() -> None:
        with store.transaction("billing") as transaction:
            for number in range(4):
                transaction.append("paid", b"1", partition=number)

    with pytest.raises(TransactionError, match="at most 10000 partitions; make several of it"):
        pay()

    assert state_of(store, "billing") is TransactionState.COMPLETE_ABORT


def test_ids_that_expire_make_room_and_an_end_needs_none(store: Store) -> None:
    coordinator = store.transactions
    clock, budget = coordinator._clock, coordinator._table.budget
    assert isinstance(clock, ManualClock)
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"1", partition=0)
        budget.bytes_max = budget.used
        with pytest.raises(TransactionError, match="expire sooner"):
            store.transaction("another").__enter__()

    assert state_of(store, "billing") is TransactionState.COMPLETE_COMMIT
    clock.advance(coordinator.config.id_expiration_ms + 1)
    coordinator.tick()
    assert budget.used == 0
    with store.transaction("another"):
        pass


def _refuse_lone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have transactions with one partition end in the general way, too."""
    monkeypatch.setattr(store._library_producers, "may_be_lone", lambda _topic: False)


def _batch_of_nobody(clock: ManualClock) -> memoryview:
    now_ms = clock.now_ms()
    return build_batch(
        [Record(b"1", timestamp_ms=now_ms)],
        now_ms,
        BatchStyle(bytes_max=1000),
        ProducerStamp(
            producer_id=ProducerId(77),
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        ),
    ).data


def _slow_promises(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> tuple[threading.Event, threading.Event]:
    """The disk waits for the first event, and sets the second when somebody waits for it."""
    gate, entered = threading.Event(), threading.Event()

    def slow(await_kept: Callable[..., None], *args: Any, **options: Any) -> None:
        entered.set()
        gate.wait(60)
        await_kept(*args, **options)

    for name in (*store.topics(), TRANSACTION_STATE_TOPIC):
        for log in store.topic(name).partitions:
            slowly = partial(slow, log.promises.await_kept)
            monkeypatch.setattr(log.promises, "await_kept", slowly)
    return gate, entered


def test_a_commit_that_took_place_is_no_failure_if_another_producer_takes_the_id_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("paid")
        _refuse_lone(store, monkeypatch)
        coordinator, outcomes = store.transactions, dict[str, Outcome]()
        taken = threading.Event()

        def take(outcome: Outcome) -> None:
            outcomes["taken"] = outcome
            taken.set()

        with store.transaction("billing") as transaction:
            transaction.append("paid", b"1")
            journal = coordinator.work._journal
            append = journal.append

            def append_late(entries: Any) -> Any:
                # The commit is under way, and not yet decided: this waits for it.
                coordinator.init_producer("billing", timeout_ms=60_000, expected=None, done=take)
                journal.append = append  # type: ignore[method-assign]
                return append(entries)

            journal.append = append_late  # type: ignore[method-assign]
            transaction.commit()

        assert taken.wait(30.0)
        assert isinstance(outcomes["taken"], Granted)
        assert [record.value for record in store.topic("paid").partition(0).read()] == [b"1"]
