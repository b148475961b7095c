"""What happens at a start to transactions that are open in a log and unknown to the coordinator.

The record that adds a partition to a transaction need not reach the disk before the partition has
records. So a power cut can take the record and leave the records. Kafka must prevent that, because
its coordinator and its partitions are on different machines; here, one look at all logs finds it:

    the open transaction has                       then it is
    a later epoch than its id was loaded with      aborted: no record and no marker committed it
    the current epoch of an id                     continued: the id is in this transaction
    the epoch before, and the id ended it          ended in the same way: its marker was lost
    an older epoch, or nobody's producer id        aborted
    nobody's producer id, in an adopted topic      reported: its coordinator may be elsewhere

The first row is about a partition that comes online later. Transactions that their marker decides
raise the epoch in their log before the record of their id does. If that log was not there when the
ids were loaded, its id may have come to the same epoch a second time, for other transactions.

Pure. It is asked once all prepared transactions are complete, and for a partition that comes online
later, before anyone uses it.
"""

from collections.abc import Iterable, Mapping

from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import INT16_MAX, NO_PRODUCER_EPOCH, ProducerId
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a log."""

    place: TopicPartition
    producer_id: ProducerId
    epoch: int
    is_adopted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """The partition is part of the current transaction of an id, which has that epoch."""

    transactional_id: str
    place: TopicPartition
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The partition needs a marker."""

    place: TopicPartition
    producer_id: ProducerId
    epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An operator has to decide."""

    found: OpenTransaction


Reconciliation = Continue | End | Report


def plan_reconciliation(
    known: Mapping[ProducerId, TransactionMetadata],
    found: Iterable[OpenTransaction],
    *,
    loaded: Mapping[ProducerId, int] | None = None,
) -> list[Reconciliation]:
    """What to do about each open transaction; nothing about those that are as they should be.

    `loaded` has the epochs with which producers were loaded, for a partition that comes later.
    """
    plans: list[Reconciliation] = []
    for transaction in found:
        metadata = known.get(transaction.producer_id)
        if (
            loaded is not None
            and metadata is not None
            and transaction.epoch > loaded.get(transaction.producer_id, NO_PRODUCER_EPOCH)
        ):
            plans.append(_abort(transaction, min(transaction.epoch + 1, INT16_MAX)))
            continue
        plan = _plan(metadata, transaction)
        if plan is not None:
            plans.append(plan)
    return plans


def _plan(metadata: TransactionMetadata | None, found: OpenTransaction) -> Reconciliation | None:
    if metadata is None or found.epoch > metadata.epoch:
        if found.is_adopted:
            return Report(found=found)
        return _abort(found, min(found.epoch + 1, INT16_MAX))
    if metadata.is_prepared:
        return None  # a partition cannot be reached now; its markers are tried again
    if found.epoch == metadata.epoch:
        is_listed = found.place in metadata.partitions
        if metadata.state is TransactionState.ONGOING and is_listed:
            return None
        if metadata.is_complete and not metadata.bumps_epochs:
            # Such an end is durable before the next transaction begins, so this one has ended.
            # Its marker was lost with a log that does not promise the disk. Which of several
            # transactions of the same epoch it was, nobody knows.
            return _abort(found, metadata.epoch)
        return Continue(
            transactional_id=metadata.transactional_id, place=found.place, epoch=found.epoch
        )
    is_last = metadata.bumps_epochs and found.epoch == metadata.epoch - 1
    if is_last and metadata.state is TransactionState.COMPLETE_COMMIT:
        return End(
            place=found.place,
            producer_id=found.producer_id,
            epoch=metadata.epoch,
            is_commit=True,
        )
    return _abort(found, metadata.epoch)


def _abort(found: OpenTransaction, epoch: int) -> End:
    return End(place=found.place, producer_id=found.producer_id, epoch=epoch, is_commit=False)
