"""Writes the state of transactions to its topic. Many changes share a write and a sync.

Each record is a batch of its own, as Kafka writes them. All that wait are written together. Those
that must be durable before anyone acts on them share one sync; if none must, there is no sync. The
caller syncs: it may have other logs to sync at the same time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from cordwood.errors import CordwoodError, LogClosedError, LogError, RecordTooLargeError
from cordwood.format.batch_builder import BatchStyle, build_sole
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

    `written` is None if nobody waits: then the record need not be durable. `lost` is called if the
    record could not be written.
    """

    transactional_id: str
    value: TransactionMetadata | None
    at_ms: TimestampMs
    written: Written | None = None
    lost: Callable[[], None] | None = None


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
                value = entry.value
                data, timestamp = build_sole(
                    None if value is None else encode_transaction_value(value.to_record()),
                    encode_transaction_key(entry.transactional_id),
                    (),
                    entry.at_ms,
                    entry.at_ms,
                    style,
                )
            except Exception as error:  # the other entries are not concerned
                self.refused.append((entry, error))
                continue
            self.batches.add(memoryview(data), UnplacedBatch(len(data), 1, timestamp))
            self.entries.append(entry)


class WrittenEntries:
    """Entries that are in the topic, and not yet durable.

    ends  where each log must be durable before the callers that wait are told
    """

    __slots__ = ("_answers", "ends")

    def __init__(self) -> None:
        self.ends: dict[PartitionLog, Offset] = {}
        self._answers: list[tuple[JournalEntry, PartitionLog | None, Exception | None]] = []

    def add(self, entry: JournalEntry, log: PartitionLog | None, answer: object) -> None:
        """`answer` is the offset of the entry, or why it is not there."""
        error = answer if isinstance(answer, Exception) else None
        self._answers.append((entry, log, error))
        if log is not None and isinstance(answer, int) and entry.written is not None:
            self.ends[log] = Offset(max(answer + 1, self.ends.get(log, 0)))

    def tell(self, unsynced: Mapping[PartitionLog, Exception]) -> None:
        """Call the callers that wait, in order. `unsynced` has the logs whose sync failed."""
        for entry, log, refused in self._answers:
            error = refused or (None if log is None else unsynced.get(log))
            if error is not None:
                logger.warning(
                    "the state of transactional id %s could not be written: %s",
                    entry.transactional_id,
                    error,
                )
            try:
                if error is not None and entry.lost is not None:
                    entry.lost()
                if entry.written is not None:
                    entry.written(None if error is None else refusal_to_write(error))
            except Exception:  # a bug of ours: the others must hear of their records
                logger.exception("the state of a transaction was written, and then")


class TransactionJournal:
    """Appends entries to the topic. Called by one thread at a time."""

    def __init__(self, log_of: Callable[[str], PartitionLog]) -> None:
        """`log_of` finds the log of an id and creates the topic if need be."""
        self._log_of = log_of

    def prepare(self, transactional_id: str) -> None:
        """Have the log of an id open, and the topic created. May raise."""
        self._log_of(transactional_id)

    def append(self, entries: Sequence[JournalEntry]) -> WrittenEntries:
        """Write all entries, in order. They are not durable, and nobody is told.

        The newest record of an id is the one that counts. So one that nobody waits for is left out
        if a newer one of its id is written with it.
        """
        written = WrittenEntries()
        by_log: dict[PartitionLog, list[JournalEntry]] = {}
        for entry in _newest(entries):
            try:
                by_log.setdefault(self._log_of(entry.transactional_id), []).append(entry)
            except (CordwoodError, OSError) as error:
                written.add(entry, None, error)
        for log, placed in by_log.items():
            group = JournalGroup(placed)
            for entry, refusal in group.refused:
                written.add(entry, None, refusal)
            if group.entries:
                answers = log.batches.append_group(group.batches)
                for entry, answer in zip(group.entries, answers, strict=True):
                    written.add(entry, log, answer)
        return written


def _newest(entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """All but those that nobody waits for and a newer one of the same id replaces."""
    if len(entries) < 2:
        return entries
    last = {entry.transactional_id: entry for entry in entries}
    if len(last) == len(entries):
        return entries
    return [
        entry
        for entry in entries
        if entry.written is not None or last[entry.transactional_id] is entry
    ]


def refusal_to_write(error: Exception) -> Refusal:
    """What the producer is told if a record could not be written."""
    if isinstance(error, LogClosedError):
        return Refusal.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, RecordTooLargeError):
        return Refusal.UNKNOWN_SERVER_ERROR
    if isinstance(error, LogError):
        return Refusal.COORDINATOR_NOT_AVAILABLE
    return Refusal.NOT_COORDINATOR
