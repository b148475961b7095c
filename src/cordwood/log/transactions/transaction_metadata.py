"""What is known of a transactional id: one frozen value, which a decision replaces."""

from typing import Any, Final

from cordwood.format.transaction_records import TopicPartition, TransactionState, TransactionValue
from cordwood.quantities import (
    INT16_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerId,
    TimestampMs,
)
from cordwood.value_class import dataclass

# A client never gets epoch 32767: it is left for the marker that fences the last epoch.
EPOCH_EXHAUSTED: Final = INT16_MAX - 1
# Clients of this version and later get a new epoch with the end of every transaction (KIP-890).
EPOCH_BUMPING_VERSION: Final = 2

_COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

# Which state may follow which. Kafka's table, without PrepareEpochFence: fencing is one step here.
_PREVIOUS: Final = {
    TransactionState.EMPTY: {TransactionState.EMPTY, *_COMPLETE},
    TransactionState.ONGOING: {TransactionState.ONGOING, TransactionState.EMPTY, *_COMPLETE},
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING},
    TransactionState.PREPARE_ABORT: {TransactionState.ONGOING, TransactionState.EMPTY, *_COMPLETE},
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
    TransactionState.DEAD: {TransactionState.EMPTY, *_COMPLETE},
}


def may_follow(new: TransactionState, old: TransactionState) -> bool:
    return old in _PREVIOUS.get(new, ())


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch needs another producer id before its next epoch."""
    return epoch >= EPOCH_EXHAUSTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """The producer id and epoch that a producer stamps its batches with."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The newest transaction of a transactional id.

    previous_producer_id  the producer id before the last change
    next_producer_id      the one that takes over when the transaction is complete, if any
    last_epoch            the epoch before the last change of epoch; not stored, so -1 after a start
    client_version        the version of transactions that the last change was made in
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: TimestampMs = NO_TIMESTAMP
    last_update_ms: TimestampMs
    client_version: int = 0

    @classmethod
    def of_record(cls, transactional_id: str, value: TransactionValue) -> "TransactionMetadata":
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            timeout_ms=value.timeout_ms,
            state=value.state,
            partitions=value.partitions,
            start_ms=value.start_ms,
            last_update_ms=value.last_update_ms,
            client_version=value.client_version,
        )

    def to_record(self) -> TransactionValue:
        return TransactionValue(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            timeout_ms=self.timeout_ms,
            state=self.state,
            partitions=self.partitions,
            last_update_ms=self.last_update_ms,
            start_ms=self.start_ms,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            client_version=self.client_version,
        )

    def moved(
        self, state: TransactionState, now_ms: TimestampMs, **changes: Any
    ) -> "TransactionMetadata":
        """The metadata after a step to `state`. Asserts that the step is allowed."""
        assert may_follow(state, self.state), (self, state)
        # As `replace`, without asking for each field: every transaction takes three steps.
        values: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "last_epoch": self.last_epoch,
            "previous_producer_id": self.producer_id,
            "next_producer_id": self.next_producer_id,
            "timeout_ms": self.timeout_ms,
            "state": state,
            "partitions": self.partitions,
            "start_ms": self.start_ms,
            "last_update_ms": now_ms,
            "client_version": self.client_version,
            **changes,
        }
        return TransactionMetadata(**values)

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(producer_id=self.producer_id, epoch=self.epoch)

    @property
    def identity_after_end(self) -> ProducerIdentity:
        """What the producer uses once the prepared transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(producer_id=self.next_producer_id, epoch=0)
        return self.identity

    @property
    def is_complete(self) -> bool:
        return self.state in _COMPLETE

    @property
    def is_prepared(self) -> bool:
        """Whether the decision is made and not yet known to all partitions."""
        return self.state in _PREPARED

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= EPOCH_BUMPING_VERSION
