"""Writes the state of transactions to its topic. Many changes share a write and a sync.

Each record is a batch of its own, as Kafka writes them. All that wait are written together. Those
that must be durable before anyone acts on them share one sync; if none must, there is no sync.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from cordwood.errors import CordwoodError, LogClosedError, LogError, RecordTooLargeError
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.record import Record
from cordwood.format.transaction_records import encode_transaction_key, encode_transaction_value
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.transactions.transaction_machine import Refusal
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import INT32_MAX, Offset, TimestampMs
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# Called with None once the record is as durable as it has to be, otherwise with the reason.
Written = Callable[[Refusal | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A change to write. `value` is None if the id is forgotten.

    `written` is None if nobody waits: then the record need not be durable.
    """

    transactional_id: str
    value: TransactionMetadata | None
    at_ms: TimestampMs
    written: Written | None = None


class JournalGroup:
    """Records that are appended together, each a batch of its own.

    entries  those that are in `batches`, in the same order
    refused  those that cannot be encoded, and why
    """

    __slots__ = ("batches", "entries", "refused")

    def __init__(self, entries: Iterable[JournalEntry]) -> None:
        self.batches = BatchGroup()
        self.entries: list[JournalEntry] = []
        self.refused: list[tuple[JournalEntry, Exception]] = []
        # Not the limit of the topic: a transaction that cannot be written cannot be ended.
        style = BatchStyle(bytes_max=INT32_MAX)
        for entry in entries:
            try:
                built = build_batch([_record(entry)], entry.at_ms, style)
            except Exception as error:  # the other entries are not concerned
                self.refused.append((entry, error))
                continue
            self.batches.add(built.data, UnplacedBatch(built.size, 1, built.max_timestamp))
            self.entries.append(entry)


class TransactionJournal:
    """Appends entries to the topic. Called by one thread at a time."""

    def __init__(self, log_of: Callable[[str], PartitionLog]) -> None:
        """`log_of` finds the log of an id and creates the topic if need be."""
        self._log_of = log_of

    def write(self, entries: list[JournalEntry]) -> None:
        """Write all entries, in order; then call the callers that wait for them."""
        by_log: dict[PartitionLog, list[JournalEntry]] = {}
        results: list[Callable[[], None]] = []
        for entry in entries:
            try:
                by_log.setdefault(self._log_of(entry.transactional_id), []).append(entry)
            except (CordwoodError, OSError) as error:
                _note(results, entry, error)
        for log, placed in by_log.items():
            self._write(log, placed, results)
        for tell in results:
            try:
                tell()
            except Exception:  # a bug of ours: the others must hear of their records
                logger.exception("the state of a transaction was written, and then")

    def _write(
        self, log: PartitionLog, entries: list[JournalEntry], results: list[Callable[[], None]]
    ) -> None:
        group = JournalGroup(entries)
        for entry, error in group.refused:
            _note(results, entry, error)
        grouped = group.entries
        if not grouped:
            return
        answers = log.batches.append_group(group.batches)
        failure: Exception | None = None
        if any(entry.written is not None for entry in grouped):
            ends = [Offset(at + 1) for at in answers if not isinstance(at, Exception)]
            try:
                if ends:
                    log.promises.await_kept(max(ends))
            except (CordwoodError, OSError) as error:
                failure = error
        for entry, answer in zip(grouped, answers, strict=True):
            _note(results, entry, answer if isinstance(answer, Exception) else failure)


def _record(entry: JournalEntry) -> Record:
    value = None if entry.value is None else encode_transaction_value(entry.value.to_record())
    key = encode_transaction_key(entry.transactional_id)
    return Record(value, key=key, timestamp_ms=entry.at_ms)


def _note(results: list[Callable[[], None]], entry: JournalEntry, error: Exception | None) -> None:
    if error is not None:
        logger.warning(
            "the state of transactional id %s could not be written: %s",
            entry.transactional_id,
            error,
        )
    if entry.written is not None:
        results.append(partial(entry.written, None if error is None else refusal_to_write(error)))


def refusal_to_write(error: Exception) -> Refusal:
    """What the producer is told if a record could not be written."""
    if isinstance(error, LogClosedError):
        return Refusal.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, RecordTooLargeError):
        return Refusal.UNKNOWN_SERVER_ERROR
    if isinstance(error, LogError):
        return Refusal.COORDINATOR_NOT_AVAILABLE
    return Refusal.NOT_COORDINATOR
