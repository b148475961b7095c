"""Every row of Kafka's tables of transactions, for both generations of clients."""

from dataclasses import replace

import pytest

from cordwood.format.transaction_records import TransactionState
from cordwood.log.transactions.transaction_machine import (
    Change,
    NeedsProducerId,
    Refusal,
    Refused,
    Unchanged,
    completed,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    decide_verification,
    is_expired,
    is_timed_out,
)
from cordwood.log.transactions.transaction_metadata import (
    ProducerIdentity,
    TransactionMetadata,
    may_follow,
)
from cordwood.quantities import ProducerId, TimestampMs

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
RESTING = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)

PID, OTHER, FRESH = ProducerId(7), ProducerId(8), ProducerId(99)
NOW, EARLIER = TimestampMs(50_000), TimestampMs(40_000)
PLACE = ("orders", 0)
PLACES = frozenset({PLACE})
FENCED, MAPPING = Refusal.PRODUCER_FENCED, Refusal.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, INVALID = Refusal.CONCURRENT_TRANSACTIONS, Refusal.INVALID_TXN_STATE


def at(state: TransactionState, epoch: int = 5, **changes: object) -> TransactionMetadata:
    """An id in `state`, whose last change came from a client of version 2 if not said otherwise."""
    has_partitions = state in (ONGOING, *PREPARED)
    found = TransactionMetadata(
        transactional_id="billing",
        producer_id=PID,
        epoch=epoch,
        previous_producer_id=PID,
        timeout_ms=1000,
        state=state,
        partitions=PLACES if has_partitions else frozenset(),
        start_ms=EARLIER if state is not EMPTY else TimestampMs(-1),
        last_update_ms=EARLIER,
        client_version=0 if state is EMPTY else 2,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def who(epoch: int = 5, producer_id: ProducerId = PID) -> ProducerIdentity:
    return ProducerIdentity(producer_id=producer_id, epoch=epoch)


def changed(decision: object) -> TransactionMetadata:
    assert isinstance(decision, Change), decision
    return decision.new


def init(
    current: TransactionMetadata | None,
    expected: ProducerIdentity | None = None,
    fresh_id: ProducerId | None = None,
) -> object:
    return decide_init(
        current, "billing", expected=expected, timeout_ms=2000, now_ms=NOW, fresh_id=fresh_id
    )


def end(
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    *,
    commit: bool,
    version: int,
    fresh_id: ProducerId | None = None,
) -> object:
    return decide_end(
        current,
        producer,
        is_commit=commit,
        client_version=version,
        now_ms=NOW,
        fresh_id=fresh_id,
    )


# --- InitProducerId --------------------------------------------------------------------------


def test_a_new_id_needs_a_producer_id_and_begins_with_epoch_0() -> None:
    assert init(None) == NeedsProducerId()

    new = changed(init(None, fresh_id=FRESH))

    assert (new.producer_id, new.epoch, new.state, new.timeout_ms) == (FRESH, 0, EMPTY, 2000)
    assert (new.previous_producer_id, new.last_epoch, new.start_ms) == (FRESH, -1, -1)


def test_a_producer_that_the_broker_forgot_gets_a_new_id() -> None:
    new = changed(init(None, who(17, OTHER), FRESH))

    assert (new.producer_id, new.epoch, new.last_epoch) == (FRESH, 0, -1)


@pytest.mark.parametrize("state", RESTING)
def test_a_second_producer_gets_the_next_epoch_and_fences_the_first(
    state: TransactionState,
) -> None:
    decision = init(at(state, last_epoch=4))

    new = changed(decision)
    assert (new.epoch, new.last_epoch, new.state, new.partitions) == (6, -1, EMPTY, frozenset())
    assert new.start_ms == -1
    assert isinstance(decision, Change)
    assert decision.is_durable


@pytest.mark.parametrize("state", RESTING)
def test_a_producer_that_continues_gets_the_next_epoch(state: TransactionState) -> None:
    new = changed(init(at(state), who(5)))

    assert (new.producer_id, new.epoch, new.last_epoch) == (PID, 6, 5)


@pytest.mark.parametrize("state", RESTING)
def test_a_repeated_continuation_gets_the_same_epoch(state: TransactionState) -> None:
    new = changed(init(at(state, epoch=6, last_epoch=5), who(5)))

    assert (new.epoch, new.last_epoch) == (6, 5)


@pytest.mark.parametrize("epoch", [3, 7])
def test_a_producer_with_another_epoch_is_fenced(epoch: int) -> None:
    assert init(at(EMPTY, last_epoch=4), who(epoch)) == Refused(FENCED)


def test_a_producer_with_another_id_is_fenced() -> None:
    assert init(at(EMPTY), who(5, OTHER)) == Refused(FENCED)


@pytest.mark.parametrize("state", PREPARED)
def test_a_producer_waits_for_a_transaction_that_is_being_completed(
    state: TransactionState,
) -> None:
    assert init(at(state)) == Refused(CONCURRENT)


def test_a_second_producer_aborts_the_open_transaction_first() -> None:
    decision = init(at(ONGOING))

    assert isinstance(decision, Change)
    assert decision.is_fence
    assert (decision.new.state, decision.new.epoch) == (PREPARE_ABORT, 6)
    assert decision.new.partitions == PLACES


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_after_the_last_epoch_comes_another_producer_id(epoch: int) -> None:
    assert init(at(COMPLETE_ABORT, epoch)) == NeedsProducerId()

    new = changed(init(at(COMPLETE_ABORT, epoch), fresh_id=FRESH))

    assert (new.producer_id, new.epoch, new.last_epoch) == (FRESH, 0, -1)
    assert new.previous_producer_id == PID


def test_a_producer_that_continues_after_the_last_epoch_may_ask_twice() -> None:
    first = changed(init(at(EMPTY, 32766), who(32766), FRESH))
    assert (first.producer_id, first.epoch, first.last_epoch) == (FRESH, 0, 32766)

    second = changed(init(first, who(32766)))

    assert (second.producer_id, second.epoch) == (FRESH, 0)


# --- AddPartitionsToTxn ----------------------------------------------------------------------


def add(
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    partitions: frozenset[tuple[str, int]] = PLACES,
    version: int = 2,
) -> object:
    return decide_add(current, producer, partitions, client_version=version, now_ms=NOW)


@pytest.mark.parametrize("state", RESTING)
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    new = changed(add(at(state), who()))

    assert (new.state, new.partitions, new.start_ms, new.epoch) == (ONGOING, PLACES, NOW, 5)


def test_more_partitions_join_the_transaction() -> None:
    new = changed(add(at(ONGOING), who(), frozenset({("orders", 1)})))

    assert new.partitions == {("orders", 0), ("orders", 1)}
    assert new.start_ms == EARLIER


def test_partitions_that_are_in_it_change_nothing() -> None:
    assert add(at(ONGOING), who()) == Unchanged(who())


@pytest.mark.parametrize(
    ("current", "producer", "reason"),
    [
        (None, who(), MAPPING),
        (at(ONGOING), who(5, OTHER), MAPPING),
        (at(ONGOING), who(4), FENCED),
        (at(ONGOING), who(6), FENCED),
        (at(PREPARE_COMMIT), who(), CONCURRENT),
        (at(PREPARE_ABORT), who(), CONCURRENT),
        (at(PREPARE_ABORT), who(4), FENCED),
    ],
)
def test_an_addition_is_refused(
    current: TransactionMetadata | None, producer: ProducerIdentity, reason: Refusal
) -> None:
    assert add(current, producer) == Refused(reason)
    assert decide_verification(current, producer, PLACES) == Refused(reason)


def test_a_producer_whose_next_id_is_prepared_waits_for_it() -> None:
    current = at(PREPARE_COMMIT, 32767, next_producer_id=FRESH)

    assert add(current, who(0, FRESH)) == Refused(CONCURRENT)
    assert end(current, who(0, FRESH), commit=False, version=2) == Refused(CONCURRENT)


@pytest.mark.parametrize(
    ("current", "is_durable"),
    [
        (at(EMPTY), False),
        (at(COMPLETE_COMMIT), False),
        (at(COMPLETE_COMMIT, client_version=0), True),
        (at(COMPLETE_ABORT, client_version=1), True),
        (at(ONGOING, client_version=0), False),
    ],
)
def test_only_an_end_without_a_new_epoch_must_be_on_the_disk_before_the_next_transaction(
    current: TransactionMetadata, is_durable: bool
) -> None:
    decision = add(current, who(), frozenset({("orders", 3)}), version=0)

    assert isinstance(decision, Change)
    assert decision.is_durable is is_durable


def test_a_partition_is_verified_if_it_was_added() -> None:
    assert decide_verification(at(ONGOING), who(), PLACES) == Unchanged(who())


@pytest.mark.parametrize("current", [at(ONGOING, partitions=frozenset()), at(EMPTY)])
def test_a_partition_that_was_not_added_makes_the_transaction_abortable(
    current: TransactionMetadata,
) -> None:
    decision = decide_verification(current, who(), PLACES)

    assert decision == Refused(Refusal.TRANSACTION_ABORTABLE)


# --- EndTxn, versions 0 to 4 -----------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_ends_a_transaction_with_the_same_epoch(commit: bool) -> None:
    new = changed(end(at(ONGOING, client_version=0), who(), commit=commit, version=1))

    assert new.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    assert (new.epoch, new.partitions, new.start_ms) == (5, PLACES, EARLIER)
    done = completed(new, now_ms=NOW)
    assert done.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert (done.epoch, done.partitions, done.start_ms) == (5, frozenset(), EARLIER)


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (COMPLETE_COMMIT, True, Unchanged(who())),
        (COMPLETE_ABORT, False, Unchanged(who())),
        (COMPLETE_COMMIT, False, Refused(INVALID)),
        (COMPLETE_ABORT, True, Refused(INVALID)),
        (PREPARE_COMMIT, True, Refused(CONCURRENT)),
        (PREPARE_ABORT, False, Refused(CONCURRENT)),
        (PREPARE_COMMIT, False, Refused(INVALID)),
        (PREPARE_ABORT, True, Refused(INVALID)),
        (EMPTY, True, Refused(INVALID)),
        (EMPTY, False, Refused(INVALID)),
    ],
)
def test_version_1_repeats_the_end(state: TransactionState, commit: bool, expected: object) -> None:
    assert end(at(state), who(), commit=commit, version=1) == expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("current", "producer", "reason"),
    [
        (None, who(), MAPPING),
        (at(ONGOING), who(5, OTHER), MAPPING),
        (at(ONGOING), who(4), FENCED),
        (at(ONGOING), who(6), FENCED),
        (at(EMPTY), who(4), FENCED),
    ],
)
def test_the_end_of_somebody_else_is_refused(
    version: int,
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    reason: Refusal,
) -> None:
    assert end(current, producer, commit=True, version=version) == Refused(reason)


# --- EndTxn, version 5 -----------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_ends_a_transaction_with_the_next_epoch(commit: bool) -> None:
    new = changed(end(at(ONGOING), who(), commit=commit, version=2))

    assert new.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    assert (new.epoch, new.last_epoch, new.partitions) == (6, 5, PLACES)
    assert new.identity_after_end == who(6)
    done = completed(new, now_ms=NOW)
    assert (done.epoch, done.partitions, done.client_version) == (6, frozenset(), 2)


RETRY, CURRENT = who(4), who(5)  # of an id that has epoch 5


@pytest.mark.parametrize(
    ("state", "producer", "commit", "expected"),
    [
        (EMPTY, RETRY, False, Refused(FENCED)),
        (EMPTY, RETRY, True, Refused(FENCED)),
        (EMPTY, CURRENT, True, Refused(INVALID)),
        (COMPLETE_ABORT, RETRY, False, Unchanged(CURRENT)),
        (COMPLETE_ABORT, RETRY, True, Refused(INVALID)),
        (COMPLETE_ABORT, CURRENT, True, Refused(INVALID)),
        (COMPLETE_COMMIT, RETRY, False, Refused(INVALID)),
        (COMPLETE_COMMIT, RETRY, True, Unchanged(CURRENT)),
        (COMPLETE_COMMIT, CURRENT, True, Refused(INVALID)),
        (PREPARE_COMMIT, RETRY, True, Refused(CONCURRENT)),
        (PREPARE_COMMIT, RETRY, False, Refused(INVALID)),
        (PREPARE_ABORT, RETRY, False, Refused(CONCURRENT)),
        (PREPARE_ABORT, RETRY, True, Refused(INVALID)),
        (PREPARE_COMMIT, CURRENT, True, Refused(CONCURRENT)),
        (PREPARE_ABORT, CURRENT, False, Refused(CONCURRENT)),
        (PREPARE_ABORT, who(3), False, Refused(FENCED)),
        (COMPLETE_ABORT, who(3), False, Refused(FENCED)),
        (COMPLETE_COMMIT, who(6), True, Refused(FENCED)),
    ],
)
def test_version_2_tells_a_retry_from_the_next_end_by_its_epoch(
    state: TransactionState, producer: ProducerIdentity, commit: bool, expected: object
) -> None:
    assert end(at(state), producer, commit=commit, version=2) == expected


@pytest.mark.parametrize("state", RESTING)
def test_an_abort_of_nothing_gives_the_next_epoch(state: TransactionState) -> None:
    new = changed(end(at(state), CURRENT, commit=False, version=2))

    assert (new.state, new.epoch, new.partitions, new.start_ms) == (
        PREPARE_ABORT, 6, frozenset(), NOW
    )  # fmt: skip
    assert completed(new, now_ms=NOW).epoch == 6


def test_the_end_in_the_last_epoch_gives_another_producer_id() -> None:
    current = at(ONGOING, 32766)
    assert end(current, who(32766), commit=True, version=2) == NeedsProducerId()

    prepared = changed(end(current, who(32766), commit=True, version=2, fresh_id=FRESH))

    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (PID, 32767, FRESH)
    assert prepared.identity_after_end == who(0, FRESH)
    assert end(prepared, who(32766), commit=True, version=2) == Refused(CONCURRENT)
    done = completed(prepared, now_ms=NOW)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (FRESH, 0, PID)
    assert done.next_producer_id == -1
    assert end(done, who(32766), commit=True, version=2) == Unchanged(who(0, FRESH))
    assert end(done, who(32766), commit=False, version=2) == Refused(INVALID)
    assert end(done, who(32765), commit=True, version=2) == Refused(MAPPING)


def test_a_prepared_rotation_that_was_loaded_from_the_log_completes_the_same_way() -> None:
    prepared = changed(end(at(ONGOING, 32766), who(32766), commit=True, version=2, fresh_id=FRESH))

    loaded = TransactionMetadata.of_record("billing", prepared.to_record())

    assert completed(loaded, now_ms=NOW).identity == who(0, FRESH)


# --- fencing, time-outs, expiry --------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
def test_a_fence_aborts_with_one_higher_epoch(version: int) -> None:
    new = changed(decide_fence(at(ONGOING, client_version=version), now_ms=NOW))

    assert (new.state, new.epoch, new.client_version) == (PREPARE_ABORT, 6, 2)


def test_a_fence_in_the_last_epoch_gives_another_producer_id() -> None:
    assert decide_fence(at(ONGOING, 32766), now_ms=NOW) == NeedsProducerId()

    new = changed(decide_fence(at(ONGOING, 32766), now_ms=NOW, fresh_id=FRESH))

    assert (new.epoch, new.next_producer_id) == (32767, FRESH)
    assert completed(new, now_ms=NOW).identity == who(0, FRESH)


@pytest.mark.parametrize("state", RESTING)
def test_there_is_nothing_to_fence_without_a_transaction(state: TransactionState) -> None:
    assert decide_fence(at(state), now_ms=NOW) == Refused(INVALID)


def test_after_a_time_out_a_client_of_version_2_aborts_and_continues() -> None:
    fenced = completed(changed(decide_fence(at(ONGOING), now_ms=NOW)), now_ms=NOW)

    assert end(fenced, who(5), commit=True, version=2) == Refused(INVALID)
    assert end(fenced, who(5), commit=False, version=2) == Unchanged(who(6))


def test_after_a_time_out_a_client_of_version_1_is_fenced() -> None:
    fenced = completed(changed(decide_fence(at(ONGOING, client_version=0), now_ms=NOW)), now_ms=NOW)

    assert end(fenced, who(5), commit=True, version=1) == Refused(FENCED)
    assert end(fenced, who(5), commit=False, version=1) == Refused(FENCED)


@pytest.mark.parametrize(("started_ms", "expected"), [(48_999, True), (49_000, False)])
def test_only_an_open_transaction_times_out(started_ms: int, expected: bool) -> None:
    current = at(ONGOING, start_ms=TimestampMs(started_ms))

    assert is_timed_out(current, now_ms=NOW) is expected
    assert not is_timed_out(replace(current, state=PREPARE_ABORT), now_ms=NOW)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EMPTY, True),
        (COMPLETE_COMMIT, True),
        (COMPLETE_ABORT, True),
        (ONGOING, False),
        (PREPARE_COMMIT, False),
        (PREPARE_ABORT, False),
    ],
)
def test_an_id_that_rests_for_long_expires(state: TransactionState, expected: bool) -> None:
    assert is_expired(at(state), now_ms=NOW, expiration_ms=10_000) is expected
    assert not is_expired(at(state), now_ms=NOW, expiration_ms=10_001)


def test_states_follow_each_other_as_in_kafka() -> None:
    allowed = {new: {old for old in TransactionState if may_follow(new, old)} for new in
               TransactionState}  # fmt: skip

    rest = set(RESTING)
    assert allowed == {
        EMPTY: rest,
        ONGOING: {ONGOING, *rest},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: {ONGOING, *rest},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
        TransactionState.DEAD: rest,
        TransactionState.PREPARE_EPOCH_FENCE: set(),
    }
