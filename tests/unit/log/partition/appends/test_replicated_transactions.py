"""Transactions in a log with other replicas: followers know what their leader knows, always."""

from __future__ import annotations

import random

import pytest

from cordwood.errors import NotLeaderError, UnverifiedTransactionError
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.producer_state import MarkerFacts, VerificationGuard
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.quantities import LeaderEpoch, Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

ONE, TWO = LeaderEpoch(1), LeaderEpoch(2)
ALICE, BOB = ProducerId(7), ProducerId(8)


def replica() -> tuple[SimulatedFileSystem, PartitionLog]:
    clock = ManualClock(NOW)
    fs = SimulatedFileSystem(clock=clock)
    return fs, new_log(fs, None, clock=clock, role=AMONG_OTHERS)[1]


def placed(data: bytearray, at: int, in_epoch: int = 1) -> bytes:
    data[0:8], data[12:16] = at.to_bytes(8, "big"), in_epoch.to_bytes(4, "big")
    return bytes(data)


def begun(at: int, producer: int, in_epoch: int = 1) -> bytes:
    """The first batch of a transaction, as the leader has it."""
    batch = client_batch(b"%d" % at, producer_id=producer, sequence=0, transactional=True)
    return placed(batch, at, in_epoch)


def ended(at: int, producer: int, *, is_abort: bool = False, in_epoch: int = 1) -> bytes:
    return placed(marker_batch(producer, is_abort=is_abort), at, in_epoch)


def followed(*pieces: bytes) -> tuple[SimulatedFileSystem, PartitionLog]:
    """A replica that has fetched batches of the leader of epoch 1, all committed."""
    fs, log = replica()
    log.replica.follow(ONE)
    for piece in pieces:
        log.replica.append(piece, leader_epoch=ONE)
    log.sync()
    log.replica.raise_high_watermark(log.end_offset)
    return fs, log


def committed(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read(isolation="read_committed")]


def marker(producer: ProducerId, *, epoch: int = 0, is_abort: bool = False) -> MarkerFacts:
    return MarkerFacts(
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=3,
        offset=Offset(0),
        timestamp=TimestampMs(NOW),
        is_abort=is_abort,
    )


OPEN_AND_ENDED = (
    begun(0, ALICE),
    begun(1, BOB),
    ended(2, ALICE, is_abort=True),
    begun(3, 9),
    ended(4, 9),
)


def test_a_new_leader_shows_committed_readers_what_the_old_one_did() -> None:
    _, log = followed(*OPEN_AND_ENDED)

    log.replica.lead(TWO)

    assert log.last_stable_offset == 1  # the transaction of Bob is open
    log.batches.end_transaction(marker(BOB), wait=False, led_in=TWO)
    log.sync()
    log.replica.raise_high_watermark(log.end_offset)
    assert log.last_stable_offset == 6
    assert committed(log) == [b"1", b"3"]


def test_a_restart_changes_nothing_about_it() -> None:
    fs, _ = followed(*OPEN_AND_ENDED)

    again = log_of(
        open_store(fs.crash(random.Random(1)), clock=ManualClock(NOW), role=AMONG_OTHERS)
    )

    again.replica.lead(TWO)
    again.replica.raise_high_watermark(Offset(5))
    assert again.last_stable_offset == 1
    assert [entry.producer_id for entry in again.producers.open_transactions()] == [BOB]
    again.batches.end_transaction(marker(BOB, is_abort=True), wait=False, led_in=TWO)
    again.replica.raise_high_watermark(again.end_offset)
    assert committed(again) == [b"3"]


def test_a_store_of_a_cluster_ends_no_transaction_by_itself() -> None:
    fs, log = followed(begun(0, ALICE))

    again = log_of(open_store(fs.kill(), clock=ManualClock(NOW), role=AMONG_OTHERS))

    assert again.end_offset == log.end_offset == 1
    assert [entry.producer_id for entry in again.producers.open_transactions()] == [ALICE]


def test_a_marker_that_is_cut_off_leaves_its_transaction_open() -> None:
    _, log = followed(begun(0, ALICE))
    log.replica.append(ended(1, ALICE, is_abort=True), leader_epoch=ONE)
    log.replica.follow(TWO)

    log.replica.truncate(Offset(1), leader_epoch=TWO)

    assert [entry.producer_id for entry in log.producers.open_transactions()] == [ALICE]
    log.replica.append(ended(1, ALICE, in_epoch=2), leader_epoch=TWO)
    log.replica.raise_high_watermark(Offset(2))
    assert committed(log) == [b"0"]  # it was committed after all, and no index says otherwise


def test_a_transaction_that_is_cut_off_was_never_there() -> None:
    _, log = followed(begun(0, ALICE), ended(1, ALICE))
    log.replica.append(begun(2, BOB), leader_epoch=ONE)
    log.replica.follow(TWO)

    log.replica.truncate(Offset(2), leader_epoch=TWO)

    assert log.producers.open_transactions() == []
    assert log.last_stable_offset == 2


# --- guards and leaderships --------------------------------------------------------------------


def rules(guard: VerificationGuard) -> TransactionRules:
    return TransactionRules(may_begin=True, starts_at_zero=False, guard=guard)


def test_a_batch_begins_a_transaction_under_its_guard() -> None:
    _, log = replica()
    log.replica.lead(ONE)
    guard = log.producers.guard(ALICE, 0, bumps_epochs=False)
    batch = client_batch(b"a", producer_id=ALICE, sequence=0, transactional=True)

    log.batches.append_batch(batch, wait=False, transaction=rules(guard), led_in=ONE)

    assert log.producers.is_in_transaction(ALICE, 0)


def test_a_batch_that_was_allowed_before_its_transaction_ended_begins_nothing() -> None:
    _, log = replica()
    log.replica.lead(ONE)
    guard = log.producers.guard(ALICE, 0, bumps_epochs=False)
    log.batches.end_transaction(marker(ALICE, is_abort=True), wait=False, led_in=ONE)
    batch = client_batch(b"a", producer_id=ALICE, sequence=0, transactional=True)

    with pytest.raises(UnverifiedTransactionError):
        log.batches.append_batch(batch, wait=False, transaction=rules(guard), led_in=ONE)

    assert log.producers.open_transactions() == []


def test_a_marker_that_was_replicated_meanwhile_takes_the_guard_away_too() -> None:
    _, log = replica()
    log.replica.lead(ONE)
    guard = log.producers.guard(ALICE, 0, bumps_epochs=False)
    log.replica.follow(TWO)
    log.replica.append(ended(0, ALICE, in_epoch=2), leader_epoch=TWO)
    log.replica.lead(LeaderEpoch(3))
    batch = client_batch(b"a", producer_id=ALICE, sequence=0, transactional=True)

    with pytest.raises(UnverifiedTransactionError):
        log.batches.append_batch(batch, wait=False, transaction=rules(guard))


def test_offsets_of_a_group_need_their_guard_too() -> None:
    _, log = replica()
    log.replica.lead(ONE)
    guard = log.producers.guard(ALICE, 0, bumps_epochs=False)
    batch = client_batch(b"a", producer_id=ALICE, transactional=True)
    unplaced = UnplacedBatch(len(batch), 1, TimestampMs(NOW), ALICE, 0, -1, True)
    log.batches.append_of_coordinator(batch, unplaced, wait=False, led_in=ONE, guard=guard)
    log.batches.end_transaction(marker(ALICE), wait=False, led_in=ONE)

    with pytest.raises(UnverifiedTransactionError):
        log.batches.append_of_coordinator(batch, unplaced, wait=False, led_in=ONE, guard=guard)


def test_a_marker_of_an_earlier_leadership_is_refused() -> None:
    _, log = followed(begun(0, ALICE))
    log.replica.lead(TWO)

    with pytest.raises(NotLeaderError):
        log.batches.end_transaction(marker(ALICE), wait=False, led_in=ONE)

    assert log.end_offset == 1
