"""Recovery: what a coordinator does before it answers its first request.

A partition that is offline then gets the same when it comes back, before anyone uses it.
"""

import errno
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker
from cordwood.log.transactions.reconciliation import (
    Continue,
    End,
    OpenTransaction,
    Reconciliation,
    Report,
    plan_reconciliation,
)
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.transaction_topic import read_transactions
from cordwood.log.transactions.transaction_work import LocalWork
from cordwood.quantities import NO_PRODUCER_EPOCH, ProducerId, TimestampMs

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.02  # a change of an id takes as long as a sync


def recover_transactions(
    table: TransactionTable[LocalWork],
    loaded: Sequence[TransactionMetadata],
    logs: Sequence[PartitionLog],
    *,
    markers: MarkerWriter,
    is_adopted: Callable[[str], bool],
    is_whole: bool,
    now_ms: TimestampMs,
    has_all: bool = True,
) -> list[OpenTransaction]:
    """Complete what was prepared, then deal with what is open in logs (`reconciliation`).

    Returns what is left for an operator to decide. Unless `loaded` `is_whole`, nothing is taken
    for nobody's: the decision about it may be in what cannot be read. Unless `logs` `has_all` that
    there are, one that is missing may know later epochs of any id (`lone_commit`): each id gets
    another producer id before it is used again.
    """
    if not loaded and is_whole and not _open_in(logs, is_adopted):
        return []
    epochs = _survey(table, logs, is_adopted)
    table.misses_logs = not has_all
    entries = table.load(loaded)
    prepared = [entry for entry in entries if entry.metadata and entry.metadata.is_prepared]
    table.work.write_markers(prepared)
    table.raise_epochs(epochs, is_live=False)
    reported: list[OpenTransaction] = []
    if is_whole:
        found = _open_in(logs, is_adopted)
        reported = _reconcile(table, entries, found, markers, now_ms)
    else:
        table.log_epochs = epochs  # ids that come later must not be below
        logger.error(
            "%s cannot be read as a whole: transactions that are open in logs stay open until it "
            "can; repair the directory and start again",
            TRANSACTION_STATE_TOPIC,
        )
    table.work_here()
    logger.info(
        "loaded %d transactional ids, completed %d transactions", len(entries), len(prepared)
    )
    return reported


def admit_log(
    table: TransactionTable[LocalWork],
    log: PartitionLog,
    *,
    is_adopted: bool,
    is_whole: bool,
    now_ms: TimestampMs,
) -> None:
    """Deal with what is open in a log that comes online late. Nobody else uses the log yet.

    A log of the coordinator itself brings its ids. Raises `OSError` if it has to be tried again.
    """
    epochs = _survey(table, [log], lambda _: is_adopted)
    table.raise_epochs(epochs, is_live=True)
    if log.topic == TRANSACTION_STATE_TOPIC:
        count = table.load_late(read_transactions([log]))
        table.raise_epochs(table.log_epochs, is_live=True)
        logger.info("%s is online and brings %d transactional ids", log.name, count)
        return
    for _ in range(_ATTEMPTS):
        found = _open_in([log], lambda _: is_adopted)
        if not found or not is_whole:
            return
        if all(_end_late(table, log, plan, now_ms) for plan in _plans(table, found)):
            return
        time.sleep(_PAUSE_S)  # an id is being changed
    raise OSError(errno.EBUSY, "the transactional ids of its transactions are busy", log.name)


def _plans(
    table: TransactionTable[LocalWork], found: Sequence[OpenTransaction]
) -> list[Reconciliation]:
    known = {each.producer_id: each for each in table.all()}
    return plan_reconciliation(known, found, loaded=table.loaded_epochs())


def _end_late(
    table: TransactionTable[LocalWork], log: PartitionLog, plan: Reconciliation, now_ms: TimestampMs
) -> bool:
    """Carry out one plan; False if it has to be made again."""
    if isinstance(plan, Report):
        _tell_reported(plan.found)
        return True
    if isinstance(plan, Continue):
        return table.continue_in(plan.transactional_id, plan.place, plan.epoch, now_ms)
    wanted = _marker(plan, table.coordinator_epoch)
    marker = MarkerFacts(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.epoch,
        coordinator_epoch=wanted.coordinator_epoch,
        offset=log.end_offset,
        timestamp=now_ms,
        is_abort=not wanted.is_commit,
    )
    log.batches.end_transaction(marker, transaction_version=wanted.version)
    return True


def _survey(
    table: TransactionTable[LocalWork],
    logs: Sequence[PartitionLog],
    is_adopted: Callable[[str], bool],
) -> dict[ProducerId, int]:
    """The highest epoch of each producer, in logs that only this coordinator writes markers to.

    The epoch that the coordinator puts into markers is raised: it may not be below any of them.
    """
    epochs: dict[ProducerId, int] = {}
    for log in logs:
        is_ours = not is_adopted(log.topic)
        for producer in log.producers.listed():
            table.coordinator_epoch = max(table.coordinator_epoch, producer.coordinator_epoch)
            if is_ours:
                known = epochs.get(producer.producer_id, NO_PRODUCER_EPOCH)
                epochs[producer.producer_id] = max(known, producer.producer_epoch)
    return epochs


def _open_in(
    logs: Sequence[PartitionLog], is_adopted: Callable[[str], bool]
) -> list[OpenTransaction]:
    return [
        OpenTransaction(
            place=(log.topic, log.partition),
            producer_id=producer.producer_id,
            epoch=producer.producer_epoch,
            is_adopted=is_adopted(log.topic),
        )
        for log in logs
        for producer in log.producers.open_transactions()
    ]


def _reconcile(
    table: TransactionTable[LocalWork],
    entries: Sequence[TransactionEntry],
    found: Sequence[OpenTransaction],
    markers: MarkerWriter,
    now_ms: TimestampMs,
) -> list[OpenTransaction]:
    by_producer = {e.metadata.producer_id: e.metadata for e in entries if e.metadata is not None}
    reported: list[OpenTransaction] = []
    wanted: list[WantedMarker] = []
    for plan in plan_reconciliation(by_producer, found):
        if isinstance(plan, Report):
            reported.append(plan.found)
            _tell_reported(plan.found)
        elif isinstance(plan, Continue):
            table.continue_in(plan.transactional_id, plan.place, plan.epoch, now_ms)
        else:
            wanted.append(_marker(plan, table.coordinator_epoch))
    failures = markers.write(wanted)
    table.work.owe(marker for marker in wanted if marker.place in failures)
    return reported


def _tell_reported(found: OpenTransaction) -> None:
    logger.warning(
        "%s-%d: the transaction of producer %d, epoch %d, is open and no transactional id has it; "
        "end it with 'cordwood transactions abort' if its coordinator is gone",
        *found.place,
        found.producer_id,
        found.epoch,
    )


def _marker(plan: End, coordinator_epoch: int) -> WantedMarker:
    logger.warning(
        "%s-%d: the open transaction of producer %d is %s",
        *plan.place,
        plan.producer_id,
        "committed, as it was before the crash" if plan.is_commit else "aborted: nobody has it",
    )
    return WantedMarker(
        place=plan.place,
        producer_id=plan.producer_id,
        epoch=plan.epoch,
        is_commit=plan.is_commit,
        version=1,
        coordinator_epoch=coordinator_epoch,
    )
