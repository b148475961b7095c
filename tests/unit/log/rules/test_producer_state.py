"""The rules that keep a producer's batches exactly once, in order, and its transactions whole."""

from dataclasses import replace

import pytest

from cordwood.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from cordwood.log.rules.producer_entry import sequence_after, sequence_before
from cordwood.log.rules.producer_state import (
    PRODUCER_EXPIRATION_MS,
    AppendOrigin,
    BatchFacts,
    CompletedTransaction,
    Duplicate,
    MarkerFacts,
    ProducerStates,
    plan_stray_snapshots,
)
from cordwood.quantities import INT32_MAX, NO_OFFSET, NO_SEQUENCE, Offset, ProducerId, TimestampMs

NOW = TimestampMs(1_760_000_000_000)
ALICE = ProducerId(7)
BOB = ProducerId(8)
MINUTE_MS = 60_000


def batch(
    sequence: int,
    offset: int,
    *,
    count: int = 1,
    epoch: int = 0,
    producer: ProducerId = ALICE,
    transactional: bool = False,
    timestamp: int = NOW,
) -> BatchFacts:
    return BatchFacts(
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        last_sequence=(sequence + count - 1) % (INT32_MAX + 1),
        first_offset=Offset(offset),
        last_offset=Offset(offset + count - 1),
        max_timestamp=TimestampMs(timestamp),
        is_transactional=transactional,
    )


def in_transaction(
    offset: int, *, producer: ProducerId = ALICE, sequence: int = 0, epoch: int = 0
) -> BatchFacts:
    return batch(sequence, offset, producer=producer, epoch=epoch, transactional=True)


def marker(
    offset: int,
    *,
    producer: ProducerId = ALICE,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_abort: bool = False,
) -> MarkerFacts:
    return MarkerFacts(
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        offset=Offset(offset),
        timestamp=NOW,
        is_abort=is_abort,
    )


def states_after(*batches: BatchFacts) -> ProducerStates:
    states = ProducerStates()
    for facts in batches:
        states.update(facts)
    return states


def end(states: ProducerStates, ending: MarkerFacts) -> CompletedTransaction:
    completed = states.append_marker(ending)
    assert completed is not None
    states.complete(completed)
    return completed


# --- sequences, epochs, duplicates -----------------------------------------------------------


def test_a_batch_that_continues_the_sequence_is_accepted() -> None:
    states = states_after(batch(0, 0, count=3))

    assert states.check(batch(3, 3)) is None


def test_checking_changes_nothing() -> None:
    states = states_after(batch(0, 0))
    before = states.to_snapshot()

    states.check(batch(1, 1, transactional=True))

    assert states.to_snapshot() == before
    assert states.map_end_offset == 1


@pytest.mark.parametrize("sequence", [0, 1, 42, INT32_MAX])
def test_an_unknown_producer_may_start_at_any_sequence(sequence: int) -> None:
    states = ProducerStates()

    assert states.check(batch(sequence, 0)) is None


def test_under_transactions_version_2_an_unknown_producer_starts_at_zero() -> None:
    states = ProducerStates()

    assert states.check(batch(0, 0), unknown_starts_at_zero=True) is None
    with pytest.raises(OutOfOrderSequenceError) as caught:
        states.check(batch(3, 0), unknown_starts_at_zero=True)

    assert (caught.value.expected, caught.value.got) == (0, 3)


@pytest.mark.parametrize("sequence", [2, 4, INT32_MAX])
def test_a_gap_or_a_partial_repeat_in_the_sequence_is_refused(sequence: int) -> None:
    states = states_after(batch(0, 0, count=3))

    with pytest.raises(OutOfOrderSequenceError) as caught:
        states.check(batch(sequence, 3))

    assert (caught.value.producer_id, caught.value.expected, caught.value.got) == (
        ALICE,
        3,
        sequence,
    )


@pytest.mark.parametrize("last_sequence", [INT32_MAX, 4])
def test_sequences_wrap_from_the_largest_int32_to_zero(last_sequence: int) -> None:
    count = 10
    base = sequence_before(last_sequence, count - 1)
    states = states_after(batch(base, 0, count=count))

    assert states.check(batch(sequence_after(last_sequence), 10)) is None
    assert states.check(batch(base, 10, count=count)) == Duplicate(Offset(0), Offset(9), NOW)


def test_zero_follows_the_largest_sequence_and_no_other() -> None:
    states = states_after(batch(INT32_MAX - 1, 0))

    with pytest.raises(OutOfOrderSequenceError):
        states.check(batch(0, 1))


@pytest.mark.parametrize("which", range(5))
def test_each_of_the_last_five_batches_is_known_again(which: int) -> None:
    states = states_after(*(batch(n * 2, n * 2, count=2, timestamp=NOW + n) for n in range(7)))
    n = which + 2

    found = states.check(batch(n * 2, 99, count=2))

    assert found == Duplicate(Offset(n * 2), Offset(n * 2 + 1), TimestampMs(NOW + n))


def test_a_repeat_older_than_five_batches_is_out_of_order() -> None:
    states = states_after(*(batch(n, n) for n in range(6)))

    with pytest.raises(OutOfOrderSequenceError):
        states.check(batch(0, 6))


def test_a_repeat_must_cover_exactly_the_same_sequences() -> None:
    states = states_after(batch(0, 0, count=3))

    with pytest.raises(OutOfOrderSequenceError):
        states.check(batch(0, 3, count=2))


def test_producers_are_told_apart() -> None:
    states = states_after(batch(0, 0), batch(0, 1, producer=BOB), batch(1, 2))

    assert states.check(batch(1, 3, producer=BOB)) is None
    assert states.check(batch(0, 3, producer=BOB)) == Duplicate(Offset(1), Offset(1), NOW)
    assert states.producer_count == 2


def test_an_older_epoch_is_refused() -> None:
    states = states_after(batch(0, 0, epoch=3))

    with pytest.raises(InvalidProducerEpochError) as caught:
        states.check(batch(1, 1, epoch=2))

    assert (caught.value.current, caught.value.got) == (3, 2)


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    states = states_after(batch(0, 0), batch(1, 1))

    assert states.check(batch(0, 2, epoch=1)) is None
    with pytest.raises(OutOfOrderSequenceError) as caught:
        states.check(batch(2, 2, epoch=1))

    assert caught.value.expected == 0


def test_batches_of_an_older_epoch_are_no_duplicates() -> None:
    states = states_after(batch(0, 0), batch(0, 1, epoch=1), batch(1, 2, epoch=1))

    found = states.check(batch(0, 3, epoch=1))

    assert found == Duplicate(Offset(1), Offset(1), NOW)


def test_a_replayed_log_is_taken_as_it_is() -> None:
    states = states_after(batch(0, 0, epoch=5))

    for facts in (batch(9, 1, epoch=5), batch(0, 2, epoch=4), batch(0, 3, epoch=4)):
        assert states.check(facts, origin=AppendOrigin.REPLICATION) is None
        states.update(facts)

    assert states.to_snapshot()[0].producer_epoch == 4
    assert states.map_end_offset == 4


def test_a_coordinators_batches_have_no_sequence_to_check() -> None:
    facts = replace_sequence(batch(0, 0, transactional=True), NO_SEQUENCE)
    states = states_after(facts)

    assert states.check(facts, origin=AppendOrigin.COORDINATOR) is None


def test_a_coordinators_batches_are_fenced_by_epoch_all_the_same() -> None:
    states = states_after(batch(0, 0, epoch=2))

    with pytest.raises(InvalidProducerEpochError):
        states.check(batch(NO_SEQUENCE, 1, epoch=1), origin=AppendOrigin.COORDINATOR)


def replace_sequence(facts: BatchFacts, sequence: int) -> BatchFacts:
    return facts._replace(base_sequence=sequence, last_sequence=sequence)


# --- transactions ----------------------------------------------------------------------------


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    states = states_after(in_transaction(0))

    with pytest.raises(InvalidTransactionStateError) as caught:
        states.check(batch(1, 1))

    assert "offset 0" in str(caught.value)


def test_a_transaction_begins_with_its_first_batch_and_spans_the_next_ones() -> None:
    states = states_after(batch(0, 0), in_transaction(1, sequence=1), in_transaction(2, sequence=2))

    assert states.has_open_transaction(ALICE)
    assert not states.has_open_transaction(BOB)
    assert states.first_unstable_offset(Offset(3)) == 1


@pytest.mark.parametrize("is_abort", [True, False])
def test_a_marker_completes_the_transaction(is_abort: bool) -> None:
    states = states_after(in_transaction(10), in_transaction(11, sequence=1))

    completed = end(states, marker(12, is_abort=is_abort))

    assert completed == CompletedTransaction(
        producer_id=ALICE, first_offset=Offset(10), last_offset=Offset(12), is_aborted=is_abort
    )
    assert not states.has_open_transaction(ALICE)
    assert states.map_end_offset == 13


def test_a_transaction_stays_unstable_until_it_is_complete() -> None:
    states = states_after(in_transaction(0))

    states.append_marker(marker(1))

    assert states.first_unstable_offset(Offset(2)) == 0


def test_a_completed_transaction_stays_unstable_until_its_marker_is_below_the_high_watermark() -> (
    None
):
    states = states_after(in_transaction(0))
    end(states, marker(1))

    assert states.first_unstable_offset(Offset(1)) == 0
    assert states.first_unstable_offset(Offset(2)) is None


def test_the_first_unstable_offset_is_the_earliest_of_open_and_completed_ones() -> None:
    states = states_after(in_transaction(0), in_transaction(1, producer=BOB))

    end(states, marker(2, producer=BOB))
    assert states.first_unstable_offset(Offset(2)) == 0

    end(states, marker(3))
    assert states.first_unstable_offset(Offset(2)) == 0
    assert states.first_unstable_offset(Offset(3)) == 0
    assert states.first_unstable_offset(Offset(4)) is None


def test_the_last_stable_offset_after_a_transaction_is_the_next_open_one_or_past_its_marker() -> (
    None
):
    states = states_after(in_transaction(0), in_transaction(1, producer=BOB))
    first = states.append_marker(marker(2))
    assert first is not None

    assert states.last_stable_offset_after(first) == 1
    states.complete(first)
    second = states.append_marker(marker(3, producer=BOB))
    assert second is not None
    assert states.last_stable_offset_after(second) == 4


def test_a_marker_without_records_here_updates_the_epoch_only() -> None:
    states = ProducerStates()

    completed = states.append_marker(marker(5, epoch=3, coordinator_epoch=2))

    assert completed is None
    assert states.first_unstable_offset(Offset(0)) is None
    [entry] = states.to_snapshot()
    assert entry == ProducerSnapshotEntry(
        producer_id=ALICE,
        producer_epoch=3,
        last_sequence=NO_SEQUENCE,
        last_offset=NO_OFFSET,
        offset_delta=0,
        timestamp=NOW,
        coordinator_epoch=2,
        current_txn_first_offset=NO_OFFSET,
    )


def test_a_marker_that_raises_the_epoch_fences_the_old_one_and_restarts_the_sequence() -> None:
    states = states_after(in_transaction(0))
    end(states, marker(1, epoch=1))

    with pytest.raises(InvalidProducerEpochError):
        states.check(in_transaction(2, sequence=1, epoch=0))
    with pytest.raises(OutOfOrderSequenceError):
        states.check(in_transaction(2, sequence=1, epoch=1))
    assert states.check(in_transaction(2, sequence=0, epoch=1)) is None


def test_a_marker_of_the_same_epoch_lets_the_sequence_go_on() -> None:
    states = states_after(in_transaction(0))
    end(states, marker(1))

    assert states.check(in_transaction(2, sequence=1)) is None
    assert states.check(in_transaction(2, sequence=0)) == Duplicate(Offset(0), Offset(0), NOW)


def test_a_marker_of_a_fenced_producer_is_refused() -> None:
    states = states_after(in_transaction(0, epoch=4))

    with pytest.raises(InvalidProducerEpochError):
        states.check_marker(marker(1, epoch=3))


def test_a_marker_of_a_replaced_coordinator_is_refused() -> None:
    states = states_after(in_transaction(0))
    end(states, marker(1, coordinator_epoch=5))

    with pytest.raises(TransactionCoordinatorFencedError) as caught:
        states.check_marker(marker(2, coordinator_epoch=4))

    assert (caught.value.current, caught.value.got) == (5, 4)


def test_a_replayed_marker_may_have_an_older_coordinator_epoch() -> None:
    states = states_after(in_transaction(0))
    end(states, marker(1, coordinator_epoch=5))

    states.check_marker(marker(2, coordinator_epoch=4), origin=AppendOrigin.REPLICATION)
    states.append_marker(marker(2, coordinator_epoch=4))

    assert states.to_snapshot()[0].coordinator_epoch == 4


def test_under_transactions_version_2_a_repeated_marker_may_not_end_the_next_transaction() -> None:
    states = states_after(in_transaction(0))
    bumped = marker(1, epoch=1)
    states.check_marker(bumped, transaction_version=2)
    end(states, bumped)

    states.check_marker(replace(bumped, offset=Offset(2)), transaction_version=2)
    states.update(in_transaction(2, epoch=1))

    with pytest.raises(InvalidProducerEpochError):
        states.check_marker(replace(bumped, offset=Offset(3)), transaction_version=2)


@pytest.mark.parametrize(
    ("idle_ms", "is_late"), [(15 * MINUTE_MS + 5 * MINUTE_MS, False), (20 * MINUTE_MS + 1, True)]
)
def test_a_transaction_is_late_five_minutes_after_its_longest_timeout(
    idle_ms: int, is_late: bool
) -> None:
    states = states_after(in_transaction(0))

    now = TimestampMs(NOW + idle_ms)

    assert states.has_late_transaction(now, timeout_ms_max=15 * MINUTE_MS) is is_late


def test_without_an_open_transaction_none_is_late() -> None:
    states = states_after(batch(0, 0))

    assert not states.has_late_transaction(TimestampMs(NOW * 2), timeout_ms_max=1)


# --- expiry, offsets, snapshots ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle_ms", "expired"), [(PRODUCER_EXPIRATION_MS - 1, 0), (PRODUCER_EXPIRATION_MS, 1)]
)
def test_a_producer_expires_when_its_last_batch_is_a_day_old(idle_ms: int, expired: int) -> None:
    states = states_after(batch(0, 0))

    count = states.expire(TimestampMs(NOW + idle_ms))

    assert count == expired
    assert states.producer_count == 1 - expired


def test_an_open_transaction_keeps_its_producer_from_expiring() -> None:
    states = states_after(in_transaction(0))

    assert states.expire(TimestampMs(NOW * 2)) == 0


def test_an_expired_producer_is_unknown_again() -> None:
    states = states_after(batch(0, 0, epoch=5))

    states.expire(TimestampMs(NOW + 10), expiration_ms=10)

    assert states.check(batch(17, 1, epoch=1)) is None


def test_batches_without_a_producer_move_the_end_offset() -> None:
    states = states_after(batch(0, 0))

    states.advance_to(Offset(10))

    assert states.map_end_offset == 10
    assert states.needs_snapshot


def test_no_snapshot_is_needed_where_one_was_taken() -> None:
    states = states_after(batch(0, 5))

    states.last_snapshot_offset = states.map_end_offset

    assert not states.needs_snapshot


def test_a_snapshot_restores_epochs_sequences_and_open_transactions() -> None:
    states = states_after(
        in_transaction(0, producer=BOB),
        batch(0, 1, count=4),
        batch(4, 5, count=3, timestamp=NOW + 1),
    )

    file = encode_producer_snapshot(states.to_snapshot())
    restored = ProducerStates.from_snapshot(
        decode_producer_snapshot(file), end_offset=states.map_end_offset, now_ms=NOW
    )

    assert restored.to_snapshot() == states.to_snapshot()
    assert restored.map_end_offset == 8
    assert not restored.needs_snapshot
    assert restored.first_unstable_offset(Offset(8)) == 0
    assert restored.check(batch(7, 8)) is None
    assert restored.check(batch(4, 8, count=3)) == Duplicate(
        Offset(5), Offset(7), TimestampMs(NOW + 1)
    )


def test_a_restored_transaction_can_be_completed() -> None:
    entries = states_after(in_transaction(3, producer=BOB), in_transaction(4)).to_snapshot()
    restored = ProducerStates.from_snapshot(reversed(entries), end_offset=Offset(5), now_ms=NOW)

    completed = end(restored, marker(5, producer=BOB))

    assert completed.first_offset == 3
    assert restored.first_unstable_offset(Offset(6)) == 4


def test_a_snapshot_remembers_only_the_newest_batch() -> None:
    entries = states_after(batch(0, 0), batch(1, 1)).to_snapshot()

    restored = ProducerStates.from_snapshot(entries, end_offset=Offset(2), now_ms=NOW)

    assert restored.check(batch(1, 2)) == Duplicate(Offset(1), Offset(1), NOW)
    with pytest.raises(OutOfOrderSequenceError):
        restored.check(batch(0, 2))


def test_a_batch_that_wraps_the_sequence_is_known_again_after_a_restart() -> None:
    wrapping = batch(INT32_MAX - 1, 0, count=5)
    entries = states_after(wrapping).to_snapshot()

    restored = ProducerStates.from_snapshot(entries, end_offset=Offset(5), now_ms=NOW)

    assert restored.check(wrapping) == Duplicate(Offset(0), Offset(4), NOW)


def test_expired_producers_are_left_out_when_a_snapshot_is_loaded() -> None:
    entries = states_after(batch(0, 0), in_transaction(1, producer=BOB)).to_snapshot()

    later = TimestampMs(NOW + PRODUCER_EXPIRATION_MS)
    restored = ProducerStates.from_snapshot(entries, end_offset=Offset(2), now_ms=later)

    assert [entry.producer_id for entry in restored.to_snapshot()] == [BOB]


def test_a_producer_known_by_a_marker_alone_survives_a_restart() -> None:
    states = ProducerStates()
    states.append_marker(marker(0, epoch=2))

    restored = ProducerStates.from_snapshot(states.to_snapshot(), end_offset=Offset(1), now_ms=NOW)

    with pytest.raises(InvalidProducerEpochError):
        restored.check(batch(0, 1, epoch=1))
    assert restored.check(batch(0, 1, epoch=2)) is None


def test_a_reset_forgets_everything() -> None:
    states = states_after(in_transaction(0), in_transaction(1, producer=BOB))
    end(states, marker(2))

    states.reset(Offset(100))

    assert states.producer_count == 0
    assert states.map_end_offset == 100
    assert states.first_unstable_offset(Offset(0)) is None
    assert not states.needs_snapshot


def test_moving_the_log_start_keeps_producers_and_forgets_completed_transactions_below() -> None:
    states = states_after(in_transaction(0))
    end(states, marker(1))

    states.move_log_start(Offset(10))

    assert states.producer_count == 1
    assert states.map_end_offset == 10
    assert states.first_unstable_offset(Offset(0)) is None


@pytest.mark.parametrize(
    ("snapshots", "segments", "strays"),
    [
        ([], [0], []),
        ([10, 20], [0, 10, 20], []),
        ([5, 10, 20], [0, 10, 20], [5]),
        ([10, 25], [0, 10, 20], []),
        ([3, 10, 25, 30], [0, 10, 20], [3, 25]),
        ([3, 15], [0, 10, 20], [3, 15]),
        ([3, 15], [], [3]),
    ],
)
def test_snapshots_of_no_segment_are_stray_but_for_the_newest_at_the_end(
    snapshots: list[int], segments: list[int], strays: list[int]
) -> None:
    planned = plan_stray_snapshots(map(Offset, snapshots), map(Offset, segments))

    assert planned == strays


# --- batches that wait for the coordinator -----------------------------------------------------


def test_a_batch_does_not_overtake_an_earlier_one_that_waits_to_begin_the_transaction() -> None:
    states = ProducerStates()
    states.await_sequence(ALICE, 0, 3)
    states.await_sequence(ALICE, 0, 5)

    with pytest.raises(OutOfOrderSequenceError):
        states.check(in_transaction(0, sequence=5))
    assert states.check(in_transaction(0, sequence=3)) is None

    states.update(in_transaction(0, sequence=3))
    assert states.check(in_transaction(1, sequence=4)) is None


def test_a_batch_of_another_epoch_or_producer_does_not_wait_for_it() -> None:
    states = ProducerStates()
    states.await_sequence(ALICE, 0, 0)

    assert states.check(in_transaction(0, sequence=5, epoch=1)) is None
    assert states.check(in_transaction(0, sequence=5, producer=BOB)) is None


def test_of_a_known_producer_the_next_sequence_is_known() -> None:
    states = ProducerStates()
    states.update(in_transaction(0, sequence=3))
    states.append_marker(marker(1))

    states.await_sequence(ALICE, 0, 0)

    assert states.check(in_transaction(2, sequence=4)) is None


def test_a_marker_ends_the_waiting() -> None:
    states = ProducerStates()
    states.await_sequence(ALICE, 0, 3)
    states.append_marker(marker(0, epoch=1))

    assert states.check(in_transaction(1, sequence=0, epoch=1)) is None


def test_the_producers_that_wait_are_bounded() -> None:
    states = ProducerStates()
    for number in range(5000):
        states.await_sequence(ProducerId(number), 0, 0)

    assert len(states._awaited) == 1000
    with pytest.raises(OutOfOrderSequenceError):
        states.check(in_transaction(0, sequence=1, producer=ProducerId(4999)))


# --- guards ------------------------------------------------------------------------------------


def test_a_guard_stays_until_the_transaction_begins() -> None:
    states = ProducerStates()
    guard = states.guard(ALICE, 0, bumps_epochs=False)

    again = states.guard(ALICE, 0, bumps_epochs=False)
    held = states.is_guarded(ALICE, guard)
    states.update(in_transaction(0))

    assert again is guard
    assert held
    assert not states.is_guarded(ALICE, guard)


def test_a_marker_takes_the_guard_away_so_a_late_answer_begins_nothing() -> None:
    states = ProducerStates()
    guard = states.guard(ALICE, 0, bumps_epochs=False)

    states.append_marker(marker(0))
    after = states.guard(ALICE, 0, bumps_epochs=False)

    assert not states.is_guarded(ALICE, guard)
    assert after is not guard


def test_in_version_2_the_marker_of_the_transaction_before_leaves_the_guard() -> None:
    states = states_after(in_transaction(0))
    guard = states.guard(ALICE, 1, bumps_epochs=True)

    end(states, marker(1, epoch=1))
    kept = states.is_guarded(ALICE, guard)
    states.append_marker(marker(2, epoch=2))

    assert kept
    assert not states.is_guarded(ALICE, guard)


def test_another_epoch_gets_another_guard() -> None:
    states = ProducerStates()
    first = states.guard(ALICE, 0, bumps_epochs=True)

    second = states.guard(ALICE, 1, bumps_epochs=True)

    assert second is not first
    assert not states.is_guarded(ALICE, first)


def test_guards_of_producers_that_never_come_back_are_dropped() -> None:
    states = ProducerStates()
    first = states.guard(ProducerId(0), 0, bumps_epochs=True)

    for number in range(1, 10_001):
        states.guard(ProducerId(number), 0, bumps_epochs=True)

    assert not states.is_guarded(ProducerId(0), first)
