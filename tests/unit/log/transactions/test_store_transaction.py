"""Transactions of the library: several partitions and offsets, all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    DiskFullError,
    InvalidRecordError,
    ProducerFencedError,
    TransactionError,
)
from cordwood.format.transaction_records import TransactionState
from cordwood.log.store.store import Store
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


@pytest.fixture
def store(fs: SimulatedFileSystem, clock: ManualClock) -> Iterator[Store]:
    with open_store(fs, clock=clock) as opened:
        opened.create_topic("orders", partitions=3)
        opened.create_topic("paid")
        yield opened


def committed(store: Store, topic: str) -> list[bytes | None]:
    return [
        record.value
        for log in store.topic(topic).partitions
        for record in log.read(isolation="read_committed")
    ]


def test_records_are_visible_together_at_the_end(store: Store) -> None:
    with store.transaction("billing") as transaction:
        place = transaction.append("orders", b"a", key=b"k", partition=2)
        transaction.append("paid", b"b")

        assert (place.partition, place.offset) == (2, 0)
        assert committed(store, "orders") == committed(store, "paid") == []

    assert committed(store, "orders") == [b"a"]
    assert committed(store, "paid") == [b"b"]
    assert store.topic("orders").partition(2).last_stable_offset == 2  # the marker takes one


def test_many_records_are_appended_in_one_call_each_to_the_partition_of_its_key(
    store: Store,
) -> None:
    records = [(b"key %d" % number, b"value %d" % number) for number in range(40)]

    with store.transaction("billing") as transaction:
        transaction.append("orders", b"first", partition=0)
        places = transaction.append_many("orders", records)
        transaction.append("orders", b"last", partition=0)

        assert committed(store, "orders") == []

    topic = store.topic("orders")
    assert len(places) == 40
    assert {place.partition for place in places} == {0, 1, 2}
    for (key, value), place in zip(records, places, strict=True):
        found = topic.partition(place.partition).get(place.offset)
        assert found is not None
        assert (found.key, found.value) == (key, value)
        assert place.partition == topic.choose_partition(key)
    assert len(committed(store, "orders")) == 42


def test_records_of_several_batches_are_numbered_through(store: Store) -> None:
    values = [bytes([number]) * 50_000 for number in range(30)]  # six batches

    with store.transaction("billing") as transaction:
        (part,) = transaction.append_many("paid", [(None, value) for value in values]).ranges
        transaction.append("paid", b"next")  # refused, if the numbers were wrong

    assert (part.first_offset, part.next_offset) == (0, 30)
    assert committed(store, "paid") == [*values, b"next"]


def test_after_an_append_that_failed_nothing_is_committed(
    fs: SimulatedFileSystem, store: Store
) -> None:
    def ignore_a_failure() -> None:
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"a", partition=0)
            fs.capacity_bytes = 0
            with pytest.raises(DiskFullError):
                transaction.append_many("orders", [(None, bytes(1000))], partition=0)
            fs.capacity_bytes = None

    with pytest.raises(TransactionError, match="an append failed"):
        ignore_a_failure()

    assert committed(store, "orders") == []


def test_a_record_that_is_refused_leaves_the_transaction_as_it_was(store: Store) -> None:
    store.create_topic("accounts", config={"cleanup.policy": "compact"})

    with store.transaction("billing") as transaction:
        transaction.append("accounts", b"1", key=b"a")
        with pytest.raises(InvalidRecordError):
            transaction.append_many("accounts", [(b"b", b"2"), (None, b"3")])

    assert committed(store, "accounts") == [b"1"]


def test_an_exception_aborts(store: Store) -> None:
    def fail() -> None:
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"a")
            raise KeyError("no")

    with pytest.raises(KeyError):
        fail()

    assert committed(store, "orders") == []
    assert all(log.last_stable_offset == log.high_watermark for log in
               store.topic("orders").partitions)  # fmt: skip


def test_offsets_are_committed_with_the_records(store: Store) -> None:
    store.group("billing").commit({("orders", 0): 3})

    with store.transaction("billing") as transaction:
        transaction.append("paid", b"b")
        transaction.commit_offsets("billing", {("orders", 0): 7, ("orders", 1): (2, "note")})
        assert store.group("billing").committed() == {("orders", 0): 3}

    assert store.group("billing").committed() == {("orders", 0): 7, ("orders", 1): 2}


def test_offsets_of_an_aborted_transaction_do_not_count(store: Store) -> None:
    store.group("billing").commit({("orders", 0): 3})

    with store.transaction("billing") as transaction:
        transaction.commit_offsets("billing", {("orders", 0): 7})
        transaction.abort()

    assert store.group("billing").committed() == {("orders", 0): 3}


def test_one_id_has_many_transactions_each_with_the_next_epoch(store: Store) -> None:
    for number in range(5):
        with store.transaction("billing") as transaction:
            transaction.append("paid", b"%d" % number)

    metadata = store.transactions.find("billing")
    assert metadata is not None
    assert (metadata.epoch, metadata.state) == (5, TransactionState.COMPLETE_COMMIT)
    assert committed(store, "paid") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_without_work_writes_nothing(store: Store) -> None:
    with store.transaction("billing"):
        pass

    metadata = store.transactions.find("billing")
    assert metadata is not None
    assert (metadata.epoch, metadata.state) == (0, TransactionState.EMPTY)


def test_two_transactions_of_one_id_cannot_be_open_at_once(store: Store) -> None:
    with (
        store.transaction("billing") as transaction,
        pytest.raises(TransactionError, match="another transaction of this id is open"),
        store.transaction("billing"),
    ):
        pass

    with pytest.raises(TransactionError, match="not open"):
        transaction.append("paid", b"late")


def test_transactions_of_two_ids_are_independent(store: Store) -> None:
    with store.transaction("one") as one:
        one.append("paid", b"1")
        with store.transaction("two") as two:
            two.append("paid", b"2")
        assert committed(store, "paid") == []  # the reader stops before the first open one

    assert committed(store, "paid") == [b"1", b"2"]


def test_another_producer_of_the_same_id_fences_this_one(store: Store) -> None:
    outcomes: list[object] = []

    def be_fenced() -> None:
        with store.transaction("billing") as transaction:
            transaction.append("paid", b"a")
            store.transactions.init_producer(
                "billing", timeout_ms=1000, expected=None, done=outcomes.append
            )
            transaction.append("paid", b"b")

    with pytest.raises(ProducerFencedError):
        be_fenced()

    assert committed(store, "paid") == []
    assert len(outcomes) == 1

    with store.transaction("billing") as transaction:
        transaction.append("paid", b"c")
    assert committed(store, "paid") == [b"c"]


def test_a_transaction_that_takes_too_long_is_aborted(store: Store, clock: ManualClock) -> None:
    def be_late() -> None:
        with store.transaction("billing", timeout_ms=5000) as transaction:
            transaction.append("paid", b"a")
            clock.advance(20_000)
            store.transactions.tick()
            assert store.topic("paid").partition(0).last_stable_offset == 2

    with pytest.raises(TransactionError, match="longer than its timeout of 5000 ms"):
        be_late()

    assert committed(store, "paid") == []
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"b")
    assert committed(store, "paid") == [b"b"]


def test_the_timeout_has_a_limit(store: Store) -> None:
    with (
        pytest.raises(TransactionError, match="timeout of the transaction"),
        store.transaction("billing", timeout_ms=10**9),
    ):
        pass


def test_an_id_that_is_not_used_is_forgotten(store: Store, clock: ManualClock) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"a")

    clock.advance(8 * 24 * 3600 * 1000)
    store.transactions.tick()

    assert store.transactions.find("billing") is None
    with store.transaction("other") as transaction:
        transaction.append("paid", b"b")
    [newest] = [
        record.value
        for record in store.topic("__transaction_state").partition(0).read()
        if record.key is not None and record.key.endswith(b"billing")
    ][-1:]
    assert newest is None


def test_a_restart_keeps_epochs_and_states(fs: SimulatedFileSystem, store: Store) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("paid", b"a")
    before = store.transactions.find("billing")
    store.close()

    with open_store(fs) as again:
        after = again.transactions.find("billing")
        assert before is not None
        assert after is not None
        assert after.to_record() == before.to_record()


def test_internal_topics_and_empty_ids_are_refused(store: Store) -> None:
    with pytest.raises(TransactionError, match="must not be empty"):
        store.transaction("")
    with (
        pytest.raises(TransactionError, match="internal topic"),
        store.transaction("billing") as transaction,
    ):
        transaction.append("__consumer_offsets", b"")


def test_with_threads_and_a_real_disk_it_is_the_same(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("orders", partitions=4)
        for number in range(20):
            with store.transaction("billing") as transaction:
                for partition in range(4):
                    transaction.append("orders", b"%d" % number, partition=partition)
                transaction.commit_offsets("group", {("orders", 0): number})
                if number % 3 == 0:
                    transaction.abort()

        assert committed(store, "orders") == [
            b"%d" % number for _ in range(4) for number in range(20) if number % 3
        ]
        assert store.group("group").committed() == {("orders", 0): 19}


def test_while_its_topic_cannot_be_read_no_transaction_is_taken_for_nobody_s(
    fs: SimulatedFileSystem, store: Store, clock: ManualClock
) -> None:
    """The decision about it may be in what cannot be read."""
    transaction = store.transaction("billing").__enter__()
    transaction.append("paid", b"a")
    store.topic("paid").partition(0).sync()
    store.abandon()
    left = fs.kill()
    left.rename("/data/__transaction_state-0", "/data/elsewhere")

    with open_store(left, clock=clock) as without:
        assert without.topic("paid").partition(0).last_stable_offset == 0
    left.rename("/data/elsewhere", "/data/__transaction_state-0")

    with open_store(left, clock=clock) as again:
        metadata = again.transactions.find("billing")
        assert metadata is not None
        assert metadata.state is TransactionState.ONGOING
