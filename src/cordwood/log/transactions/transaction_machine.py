"""Decides what a request does to a transaction. Pure: values in, a decision out.

    Empty, Complete* --add--> Ongoing --end, fence--> Prepare* --markers--> Complete*

Every function takes what is known of the transactional id and returns a `Decision`. The caller
carries it out and asks again where the decision says so (`coordinator`). While a decision is being
written, nobody asks about the same id.

Two generations of clients meet here. Version 1 keeps its epoch for all transactions. Version 2
(KIP-890) gets a new epoch with the end of each, so a delayed request of one transaction can never
be mistaken for one of the next.

Fencing, by a time-out or by a second producer of the same id, aborts with one higher epoch in both
generations. Kafka's pending state PrepareEpochFence is not needed: fencing is one step here.
"""

from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final

from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    EPOCH_EXHAUSTED,
    ProducerIdentity,
    TransactionMetadata,
    is_exhausted,
)
from cordwood.quantities import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass, replace

# Each has a marker to be written at the end, and is part of the record that decides.
PARTITIONS_MAX: Final = 10_000

_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING


class Refusal(Enum):
    """Why a request is refused. The names are those of Kafka's errors."""

    CONCURRENT_TRANSACTIONS = "the transaction is being completed"
    PRODUCER_FENCED = "a newer producer has the same transactional id"
    INVALID_PRODUCER_ID_MAPPING = "the transactional id does not have this producer id"
    INVALID_TXN_STATE = "the transaction is not in a state that allows this"
    TRANSACTION_ABORTABLE = "the partition is not part of the transaction"
    INVALID_TRANSACTION_TIMEOUT = "the timeout of the transaction is not in the allowed range"
    COORDINATOR_NOT_AVAILABLE = "the coordinator is stopping, or has too much to do"
    COORDINATOR_LOAD_IN_PROGRESS = "the coordinator reads its log; try again"
    NOT_COORDINATOR = "the state of the transaction could not be written"
    UNKNOWN_SERVER_ERROR = "the state of the transaction is too large"
    TOO_MANY_PARTITIONS = (
        f"a transaction may have at most {PARTITIONS_MAX} partitions; make several of it"
    )
    TOO_MANY_IDS = (
        "the transactional ids take all the memory that they may; use fewer of them, or let them "
        "expire sooner (transactional.id.expiration.ms)"
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer with an error; nothing changes."""

    reason: Refusal


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Answer that it is done; nothing changes. `identity` is what the producer uses next."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Write `new`, then answer.

    is_durable  the record must have the durability of its topic before anyone acts on it
    is_fence    it aborts the transaction of somebody else: ask again when it is complete
    """

    new: TransactionMetadata
    is_durable: bool = True
    is_fence: bool = False


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Ask again, with a producer id that nobody has."""


Decision = Refused | Unchanged | Change | NeedsProducerId


def _refused(reason: Refusal) -> Refused:
    return Refused(reason)


# --- InitProducerId --------------------------------------------------------------------------


def decide_init(
    current: TransactionMetadata | None,
    transactional_id: str,
    *,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: TimestampMs,
    fresh_id: ProducerId | None = None,
) -> Decision:
    """A producer begins its work, or continues after an error (`expected`)."""
    if current is None:
        if fresh_id is None:
            return NeedsProducerId()
        current = TransactionMetadata(
            transactional_id=transactional_id,
            producer_id=fresh_id,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
        )
    if expected is not None and not _may_continue(current, expected):
        return _refused(Refusal.PRODUCER_FENCED)
    if current.is_prepared:
        return _refused(Refusal.CONCURRENT_TRANSACTIONS)
    if current.state is _ONGOING:
        return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)
    if is_exhausted(current.epoch) and (expected is None or expected.epoch == current.epoch):
        if fresh_id is None:
            return NeedsProducerId()
        last_epoch = NO_PRODUCER_EPOCH if expected is None else current.epoch
        return _initialised(
            current, now_ms, timeout_ms, producer_id=fresh_id, epoch=0, last_epoch=last_epoch
        )
    bumped = current.epoch + 1
    if expected is None:
        return _initialised(current, now_ms, timeout_ms, epoch=bumped, last_epoch=NO_PRODUCER_EPOCH)
    if current.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return _initialised(current, now_ms, timeout_ms, epoch=bumped, last_epoch=current.epoch)
    if expected.epoch == current.last_epoch:
        # The answer to the first try was lost: the same answer again.
        return _initialised(
            current, now_ms, timeout_ms, epoch=current.epoch, last_epoch=current.last_epoch
        )
    return _refused(Refusal.PRODUCER_FENCED)


def _may_continue(current: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Whether the asker may be the producer of this id; its epoch is checked later."""
    return (
        current.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == current.producer_id
        or (expected.producer_id == current.previous_producer_id and is_exhausted(expected.epoch))
    )


def _initialised(
    current: TransactionMetadata, now_ms: TimestampMs, timeout_ms: int, **changes: int
) -> Change:
    new = current.moved(
        _EMPTY,
        now_ms,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
        **changes,
    )
    return Change(new=new)


# --- AddPartitionsToTxn, AddOffsetsToTxn, and the first produce into a partition ---------------


def decide_add(
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    partitions: AbstractSet[TopicPartition],
    *,
    client_version: int,
    now_ms: TimestampMs,
) -> Decision:
    """Partitions become part of the transaction, which begins if it has not."""
    refusal = _refusal_of(current, producer)
    if refusal is not None:
        return refusal
    assert current is not None
    if current.state is _ONGOING and partitions <= current.partitions:
        return Unchanged(current.identity)
    begins = current.state is not _ONGOING
    all_partitions = current.partitions | partitions
    if len(all_partitions) > PARTITIONS_MAX:
        return _refused(Refusal.TOO_MANY_PARTITIONS)
    new = current.moved(
        _ONGOING,
        now_ms,
        partitions=all_partitions,
        start_ms=now_ms if begins else current.start_ms,
        next_producer_id=NO_PRODUCER_ID,
        client_version=client_version,
    )
    # A transaction that ended without a new epoch may still be prepared on the disk. Its markers
    # would be written again after a crash, and would end the new transaction of the same epoch.
    # So that end is on the disk before the new transaction has records. In every other case a
    # record that a crash takes is made good from the logs: see `reconciliation`.
    is_durable = begins and current.is_complete and not current.bumps_epochs
    return Change(new=new, is_durable=is_durable)


def decide_verification(
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    partitions: AbstractSet[TopicPartition],
) -> Decision:
    """Whether partitions were added before: clients of version 1 must have done it."""
    refusal = _refusal_of(current, producer)
    if refusal is not None:
        return refusal
    assert current is not None
    if current.state is not _ONGOING or not partitions <= current.partitions:
        return _refused(Refusal.TRANSACTION_ABORTABLE)
    return Unchanged(current.identity)


def _refusal_of(current: TransactionMetadata | None, producer: ProducerIdentity) -> Refused | None:
    if current is None or current.producer_id != producer.producer_id:
        if current is not None and _is_next(current, producer):
            return _refused(Refusal.CONCURRENT_TRANSACTIONS)
        return _refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != producer.epoch:
        return _refused(Refusal.PRODUCER_FENCED)
    if current.is_prepared:
        return _refused(Refusal.CONCURRENT_TRANSACTIONS)
    return None


def _is_next(current: TransactionMetadata, producer: ProducerIdentity) -> bool:
    """Whether the producer has the id that takes over when the transaction is complete."""
    return current.is_prepared and current.identity_after_end == producer


# --- EndTxn ----------------------------------------------------------------------------------


def decide_end(
    current: TransactionMetadata | None,
    producer: ProducerIdentity,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: TimestampMs,
    fresh_id: ProducerId | None = None,
) -> Decision:
    """The producer commits or aborts its transaction."""
    if current is None:
        return _refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= EPOCH_BUMPING_VERSION:
        return _end_with_new_epoch(
            current, producer, is_commit=is_commit, now_ms=now_ms, fresh_id=fresh_id
        )
    if current.producer_id != producer.producer_id:
        return _refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != producer.epoch:
        return _refused(Refusal.PRODUCER_FENCED)
    if current.state is _ONGOING:
        new = current.moved(_prepared(is_commit=is_commit), now_ms, client_version=client_version)
        return Change(new=new)
    return _again(current, is_commit=is_commit)


def _end_with_new_epoch(
    current: TransactionMetadata,
    producer: ProducerIdentity,
    *,
    is_commit: bool,
    now_ms: TimestampMs,
    fresh_id: ProducerId | None,
) -> Decision:
    is_retry_after_rotation = (
        current.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_EXHAUSTED
        and current.epoch == 0
        and current.bumps_epochs
    )
    is_retry = is_retry_after_rotation or (
        current.bumps_epochs and current.epoch == producer.epoch + 1
    )
    is_current = current.epoch == producer.epoch
    if _is_next(current, producer):
        # Kafka says PRODUCER_FENCED. But the producer knows its next epoch by our own answer.
        return _refused(Refusal.CONCURRENT_TRANSACTIONS)
    if current.producer_id != producer.producer_id and not is_retry_after_rotation:
        return _refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    if current.is_prepared:
        if not is_retry:
            return _refused(Refusal.PRODUCER_FENCED)
        return _again(current, is_commit=is_commit)
    if current.is_complete and is_retry:
        return _again(current, is_commit=is_commit)
    if not is_current:
        return _refused(Refusal.PRODUCER_FENCED)
    if current.state is not _ONGOING:
        if is_commit:
            return _refused(Refusal.INVALID_TXN_STATE)
        # An abort of nothing: the producer may have sent batches that never arrived. With the
        # next epoch they are refused if they arrive later.
        return _bumped(
            current, TransactionState.PREPARE_ABORT, now_ms, fresh_id=fresh_id, start_ms=now_ms
        )
    return _bumped(
        current,
        _prepared(is_commit=is_commit),
        now_ms,
        fresh_id=fresh_id,
        start_ms=current.start_ms,
    )


def _prepared(*, is_commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def _bumped(
    current: TransactionMetadata,
    state: TransactionState,
    now_ms: TimestampMs,
    *,
    fresh_id: ProducerId | None,
    start_ms: TimestampMs,
    is_fence: bool = False,
) -> Decision:
    """Prepare the end, with the next epoch; and with the next producer id if that was the last."""
    next_id = NO_PRODUCER_ID
    if is_exhausted(current.epoch):
        if fresh_id is None:
            return NeedsProducerId()
        next_id = fresh_id
    new = current.moved(
        state,
        now_ms,
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        next_producer_id=next_id,
        start_ms=start_ms,
        client_version=EPOCH_BUMPING_VERSION,
    )
    return Change(new=new, is_fence=is_fence)


def _again(current: TransactionMetadata, *, is_commit: bool) -> Decision:
    """A repeated request to end a transaction: the decision stands, whatever is asked."""
    decided = {
        TransactionState.PREPARE_COMMIT: True,
        TransactionState.COMPLETE_COMMIT: True,
        TransactionState.PREPARE_ABORT: False,
        TransactionState.COMPLETE_ABORT: False,
    }.get(current.state)
    if decided is not is_commit:
        return _refused(Refusal.INVALID_TXN_STATE)
    if current.is_prepared:
        return _refused(Refusal.CONCURRENT_TRANSACTIONS)
    return Unchanged(current.identity)


# --- a transaction that its marker decides ----------------------------------------------------


def may_begin_alone(current: TransactionMetadata) -> bool:
    """Whether a transaction that begins now may be decided by its marker alone.

    Not the first one after a change of the producer id: if the record that makes the change is
    still prepared on the disk, nobody would look for the epochs of the new id in the logs.
    """
    return (
        current.state is not _ONGOING
        and current.previous_producer_id == current.producer_id
        and (current.state is _EMPTY or current.bumps_epochs)
    )


def may_commit_alone(
    current: TransactionMetadata, producer: ProducerIdentity, place: TopicPartition
) -> bool:
    """Whether a marker in `place` can be the commit: nothing else is part of the transaction."""
    return (
        current.state is _ONGOING
        and current.epoch == producer.epoch
        and current.producer_id == producer.producer_id
        and current.bumps_epochs
        and len(current.partitions) == 1
        and place in current.partitions
        and not is_exhausted(current.epoch)
    )


def committed_alone(current: TransactionMetadata, *, now_ms: TimestampMs) -> TransactionMetadata:
    """The log of its only partition has the marker: the transaction is prepared and complete."""
    assert current.state is _ONGOING, current
    assert not is_exhausted(current.epoch), current
    return TransactionMetadata(
        transactional_id=current.transactional_id,
        producer_id=current.producer_id,
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=current.timeout_ms,
        state=TransactionState.COMPLETE_COMMIT,
        partitions=frozenset(),
        start_ms=current.start_ms,
        last_update_ms=now_ms,
        client_version=EPOCH_BUMPING_VERSION,
    )


def raised(
    current: TransactionMetadata, epoch: int, *, now_ms: TimestampMs
) -> TransactionMetadata | None:
    """What an id is if a log has a higher `epoch` of its producer; None: nothing changes.

    The epoch comes from a marker, so the transaction of every lower epoch has ended. A producer of
    version 1 is left alone: none of its transactions is decided by a marker alone.
    """
    if epoch <= current.epoch or current.is_prepared:
        return None
    if current.state is not _EMPTY and not current.bumps_epochs:
        return None
    return TransactionMetadata(
        transactional_id=current.transactional_id,
        producer_id=current.producer_id,
        epoch=epoch,
        previous_producer_id=current.producer_id,
        timeout_ms=current.timeout_ms,
        state=_EMPTY,
        last_update_ms=now_ms,
        client_version=EPOCH_BUMPING_VERSION,
    )


# --- time-outs, markers, expiry --------------------------------------------------------------


def with_new_id(decision: Decision, fresh_id: ProducerId | None) -> Decision:
    """The same decision; a producer that begins its work gets another producer id.

    What is open in the name of the old one, in a log that is missing now, is then nobody's.
    """
    if (
        not isinstance(decision, Change)
        or not decision.is_durable
        or decision.new.state is not TransactionState.EMPTY
    ):
        return decision
    if fresh_id is None:
        return NeedsProducerId()
    new = replace(decision.new, producer_id=fresh_id, epoch=0, last_epoch=NO_PRODUCER_EPOCH)
    return replace(decision, new=new)


def decide_fence(
    current: TransactionMetadata, *, now_ms: TimestampMs, fresh_id: ProducerId | None = None
) -> Decision:
    """Abort the transaction of a producer that is silent or has a successor."""
    if current.is_prepared:
        return _refused(Refusal.CONCURRENT_TRANSACTIONS)
    if current.state is not _ONGOING:
        return _refused(Refusal.INVALID_TXN_STATE)
    return _bumped(
        current,
        TransactionState.PREPARE_ABORT,
        now_ms,
        fresh_id=fresh_id,
        start_ms=current.start_ms,
        is_fence=True,
    )


def completed(current: TransactionMetadata, *, now_ms: TimestampMs) -> TransactionMetadata:
    """All partitions have the marker. It need not be durable: a restart comes to the same."""
    assert current.is_prepared, current
    is_commit = current.state is TransactionState.PREPARE_COMMIT
    after = current.identity_after_end
    return current.moved(
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        now_ms,
        producer_id=after.producer_id,
        epoch=after.epoch,
        last_epoch=current.epoch if current.bumps_epochs else current.last_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def is_timed_out(current: TransactionMetadata, *, now_ms: TimestampMs) -> bool:
    return current.state is _ONGOING and current.start_ms + current.timeout_ms < now_ms


def is_expired(current: TransactionMetadata, *, now_ms: TimestampMs, expiration_ms: int) -> bool:
    """Whether the id was not used for so long that it is forgotten."""
    if current.state is not _EMPTY and not current.is_complete:
        return False
    return current.last_update_ms + expiration_ms <= now_ms
