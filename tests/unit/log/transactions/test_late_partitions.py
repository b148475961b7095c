"""Transactions in a partition that is offline at the start and comes back later."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cordwood.errors import TransactionError
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.record import Record
from cordwood.format.transaction_records import TransactionState
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import ProducerId
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    """A store with a topic of two partitions, and an id that had a transaction."""
    found = SimulatedFileSystem(clock=clock)
    with open_store(found, clock=clock) as store:
        store.create_topic("paid", partitions=2)
        with store.transaction("billing") as transaction:
            transaction.append("paid", b"first", partition=1)
    return found


def append_in_transaction(log: PartitionLog, producer_id: int, epoch: int, value: bytes) -> None:
    """As if the record that says so had been lost in a power cut."""
    built = build_batch(
        [Record(value, timestamp_ms=1)],
        1,  # type: ignore[arg-type]
        BatchStyle(bytes_max=1000),
        ProducerStamp(
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        ),
    )
    log.batches.append_batch(built.data)


@contextmanager
def opened_without(fs: SimulatedFileSystem, clock: ManualClock, partition: str) -> Iterator[Store]:
    """A store in which the files of a partition cannot be opened, until `come_back`."""

    def watch(operation: str, path: str) -> None:
        if path.startswith(f"/data/{partition}") and operation in {"map_words", "open_write"}:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    fs.watch = watch
    with open_store(fs, clock=clock) as store:
        yield store


def come_back(store: Store, fs: SimulatedFileSystem, clock: ManualClock) -> None:
    fs.watch = None
    clock.advance(10_000)
    store.maintain()


def committed(store: Store, partition: int = 1) -> list[bytes | None]:
    log = store.topic("paid").partition(partition)
    assert log.last_stable_offset == log.high_watermark, "it hangs"
    return [record.value for record in log.read(isolation="read_committed")]


def test_a_transaction_that_nobody_has_is_aborted_when_its_partition_comes_back(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    with open_store(fs, clock=clock) as store:
        append_in_transaction(store.topic("paid").partition(1), 4711, 0, b"nobody's")

    with opened_without(fs, clock, "paid-1") as store:
        assert not store.topic("paid").has_partition(1)
        come_back(store, fs, clock)

        assert committed(store) == [b"first"]


def test_a_transaction_of_an_id_goes_on_when_its_partition_comes_back(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    with open_store(fs, clock=clock) as store:
        found = store.transactions.find("billing")
        assert found is not None
        log = store.topic("paid").partition(1)
        append_in_transaction(log, found.producer_id, found.epoch, b"second")

    with opened_without(fs, clock, "paid-1") as store:
        come_back(store, fs, clock)
        now = store.transactions.find("billing")
        assert now is not None
        assert now.state is TransactionState.ONGOING
        assert set(now.partitions) == {("paid", 1)}

        store.transactions.end(
            "billing", now.identity, is_commit=True, client_version=2, done=lambda _: None
        )
        assert committed(store) == [b"first", b"second"]


def test_a_transaction_that_was_committed_meanwhile_is_committed_in_a_late_partition(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    with open_store(fs, clock=clock) as store:
        found = store.transactions.find("billing")
        assert found is not None
        log = store.topic("paid").partition(1)
        append_in_transaction(log, found.producer_id, found.epoch, b"second")

    with opened_without(fs, clock, "paid-1") as store:
        outcomes: list[object] = []
        store.transactions.add_partitions(
            "billing", found.identity, {("paid", 0)}, client_version=2, done=outcomes.append
        )
        store.transactions.end(
            "billing", found.identity, is_commit=True, client_version=2, done=outcomes.append
        )
        come_back(store, fs, clock)

        assert len(outcomes) == 2
        assert committed(store) == [b"first", b"second"]


def test_markers_of_a_late_partition_are_written_when_it_comes_back(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store = open_store(fs, clock=clock)
    transaction = store.transaction("billing")
    transaction.__enter__()
    transaction.append("paid", b"second", partition=1)
    store.transactions.tick()  # the coordinator writes that it is ongoing
    found = store.transactions.find("billing")
    assert found is not None
    left = fs.kill()

    with opened_without(left, clock, "paid-1") as again:
        again.transactions.end(
            "billing", found.identity, is_commit=True, client_version=2, done=lambda _: None
        )
        come_back(again, left, clock)
        again.transactions.tick()

        assert committed(again) == [b"first", b"second"]


def test_ids_come_back_with_the_partition_that_has_them(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    with open_store(fs, clock=clock) as store:
        before = store.transactions.find("billing")
    assert before is not None

    with opened_without(fs, clock, "__transaction_state-0") as store:
        with pytest.raises(TransactionError):
            store.transaction("billing").__enter__()
        come_back(store, fs, clock)

        with store.transaction("billing") as transaction:
            transaction.append("paid", b"second", partition=1)
        after = store.transactions.find("billing")
        assert after is not None
        assert after.producer_id == before.producer_id
        assert after.epoch > before.epoch
        assert committed(store) == [b"first", b"second"]


def test_a_prepared_transaction_is_completed_when_the_partition_that_has_it_comes_back(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    store = open_store(fs, clock=clock)
    transaction = store.transaction("billing")
    transaction.__enter__()
    transaction.append("paid", b"second", partition=1)
    store.transactions._table.work._may_mark = False  # markers are never written
    found = store.transactions.find("billing")
    assert found is not None
    store.transactions.end(
        "billing", found.identity, is_commit=True, client_version=2, done=lambda _: None
    )
    left = fs.kill()

    with opened_without(left, clock, "__transaction_state-0") as again:
        log = again.topic("paid").partition(1)
        assert log.last_stable_offset < log.high_watermark
        come_back(again, left, clock)

        assert committed(again) == [b"first", b"second"]
