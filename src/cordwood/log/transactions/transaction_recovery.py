"""Recovery: what a coordinator does before it answers its first request."""

import logging
from collections.abc import Callable, Sequence

from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker
from cordwood.log.transactions.reconciliation import (
    Continue,
    End,
    OpenTransaction,
    Report,
    plan_reconciliation,
)
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.log.transactions.transaction_machine import Change, decide_add
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.quantities import TimestampMs

logger = logging.getLogger(__name__)


def recover_transactions(
    table: TransactionTable,
    loaded: Sequence[TransactionMetadata],
    logs: Sequence[PartitionLog],
    *,
    markers: MarkerWriter,
    is_adopted: Callable[[str], bool],
    is_whole: bool,
    now_ms: TimestampMs,
) -> list[OpenTransaction]:
    """Complete what was prepared, then deal with what is open in logs (`reconciliation`).

    Returns what is left for an operator to decide. Unless `loaded` `is_whole`, nothing is taken
    for nobody's: the decision about it may be in what cannot be read.
    """
    if not loaded and not _open_in(logs, is_adopted):
        return []
    epochs = (producer.coordinator_epoch for log in logs for producer in log.producers.listed())
    table.coordinator_epoch = max((0, *epochs))
    entries = table.load(loaded)
    prepared = [entry for entry in entries if entry.metadata and entry.metadata.is_prepared]
    table.write_markers(prepared)
    reported: list[OpenTransaction] = []
    if is_whole:
        reported = _reconcile(table, entries, _open_in(logs, is_adopted), markers, now_ms)
    else:
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
    table: TransactionTable,
    entries: Sequence[TransactionEntry],
    found: Sequence[OpenTransaction],
    markers: MarkerWriter,
    now_ms: TimestampMs,
) -> list[OpenTransaction]:
    by_producer = {e.metadata.producer_id: e.metadata for e in entries if e.metadata is not None}
    by_id = {e.metadata.transactional_id: e for e in entries if e.metadata is not None}
    reported: list[OpenTransaction] = []
    wanted: list[WantedMarker] = []
    for plan in plan_reconciliation(by_producer, found):
        if isinstance(plan, Report):
            reported.append(plan.found)
            _tell_reported(plan.found)
        elif isinstance(plan, Continue):
            _continue(table, by_id[plan.transactional_id], plan, now_ms)
        else:
            wanted.append(_marker(plan, table.coordinator_epoch))
    failures = markers.write(wanted)
    table.owe(marker for marker in wanted if marker.place in failures)
    return reported


def _tell_reported(found: OpenTransaction) -> None:
    logger.warning(
        "%s-%d: the transaction of producer %d, epoch %d, is open and no transactional id has it; "
        "end it with 'cordwood transactions abort' if its coordinator is gone",
        *found.place,
        found.producer_id,
        found.epoch,
    )


def _continue(
    table: TransactionTable, entry: TransactionEntry, plan: Continue, now_ms: TimestampMs
) -> None:
    metadata = entry.metadata
    assert metadata is not None
    decision = decide_add(
        metadata,
        metadata.identity,
        {plan.place},
        client_version=metadata.client_version,
        now_ms=now_ms,
    )
    if isinstance(decision, Change):
        table.install(entry, decision.new)
        table.write(decision.new)


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
