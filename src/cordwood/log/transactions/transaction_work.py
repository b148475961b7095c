"""What a table of transactions has done by others: records, markers and producer ids.

A broker that is alone does it with three threads of its own (`LocalWork`). A member of a cluster
does it for all its tables together: records count when other replicas have them, and partitions
may be led by other brokers.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cordwood.format.transaction_records import TopicPartition
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker
from cordwood.log.transactions.transaction_entry import Ask, TransactionEntry
from cordwood.log.transactions.transaction_journal import JournalEntry, TransactionJournal
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import EPOCH_BUMPING_VERSION
from cordwood.log.transactions.work_queue import WorkQueue
from cordwood.quantities import ProducerId
from cordwood.value_class import replace

if TYPE_CHECKING:  # it has a work, and the work has it
    from cordwood.log.transactions.transaction_table import TransactionTable

logger = logging.getLogger(__name__)


class TransactionWork(Protocol):
    """The port. `write`, `mark` and `give_id` are called under the lock of the table."""

    def write(self, entry: JournalEntry, *, is_urgent: bool) -> None:
        """Write a record, after all that were given before, and tell the caller if it waits.

        One that is not urgent may wait for the next one, or for `hurry`.
        """
        ...

    def mark(self, entry: TransactionEntry) -> None:
        """Have all partitions of a prepared transaction get their markers."""
        ...

    def give_id(self, ask: Ask) -> None:
        """Give the request a producer id that nobody has, and ask the table again."""
        ...

    def hurry(self) -> None:
        """Write what is left to be written."""
        ...

    def run_here(self) -> bool:
        """Without threads: do all that waits, in this thread; whether there was anything."""
        ...

    def stop(self, *, finishes: bool) -> None:
        """End, after the records that wait if it `finishes`. Safe to repeat."""
        ...


class LocalWork:
    """The work of a store that coordinates all its transactions and leads all its partitions."""

    def __init__(
        self,
        table: "TransactionTable[LocalWork]",
        *,
        journal: TransactionJournal,
        markers: MarkerWriter,
        new_producer_id: Callable[[], ProducerId],
        has_threads: bool,
    ) -> None:
        self._table = table
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._lock = threading.Lock()
        self._owed: list[WantedMarker] = []  # of transactions that no id has
        self.journal_queue = WorkQueue(
            "cordwood-transaction-log", journal.write, has_thread=has_threads
        )
        self.marker_queue: WorkQueue[TransactionEntry | None] = WorkQueue(
            "cordwood-markers", self.write_markers, has_thread=has_threads
        )
        self.id_queue: WorkQueue[Ask] = WorkQueue(
            "cordwood-transaction-ids", self._give_ids, has_thread=has_threads
        )

    def write(self, entry: JournalEntry, *, is_urgent: bool) -> None:
        self.journal_queue.put(entry, is_urgent=is_urgent)

    def mark(self, entry: TransactionEntry) -> None:
        self.marker_queue.put(entry)

    def give_id(self, ask: Ask) -> None:
        self.id_queue.put(ask)

    def _give_ids(self, asks: list[Ask]) -> None:
        """In a thread of its own: reserving ids touches the disk."""
        for ask in asks:
            give_id(self._table, ask, self._new_producer_id)

    def write_markers(self, entries: Sequence[TransactionEntry | None]) -> None:
        """Write the markers of these transactions, and those that are owed."""
        with self._lock:
            owed, self._owed = self._owed, []
        rounds = self._table.unmarked(entry for entry in entries if entry is not None)
        failures = self._try([*owed, *(marker for each in rounds for marker in each.wanted)])
        with self._lock:
            self._owed += (marker for marker in owed if marker.place in failures)
        self._table.tried(rounds, failures)

    def _try(self, wanted: list[WantedMarker]) -> set[TopicPartition]:
        """Write markers; the partitions that failed."""
        try:
            return set(self._markers.write(wanted))
        except Exception:  # a bug of ours: the transactions must not stay prepared for ever
            logger.exception("transaction markers could not be written")
            return {marker.place for marker in wanted}

    def owe(self, markers: Iterable[WantedMarker]) -> None:
        """Have markers of recovery that could not be written tried again, as long as they fail.

        As version 2: such a marker never ends a transaction that its producer began meanwhile.
        """
        with self._lock:
            self._owed += (replace(m, version=EPOCH_BUMPING_VERSION) for m in markers)

    def hurry(self) -> None:
        self.journal_queue.hurry()
        if self._owed:
            self.marker_queue.put(None)

    def run_here(self) -> bool:
        return (
            self.id_queue.run_here()
            or self.journal_queue.run_here()
            or self.marker_queue.run_here()
        )

    def stop(self, *, finishes: bool) -> None:
        self.id_queue.stop(finishes=finishes)
        # Markers that are left are written at the next opening.
        self.marker_queue.stop(finishes=False)
        self.journal_queue.stop(finishes=finishes)
        self._markers.close()


def give_id(
    table: "TransactionTable[Any]", ask: Ask, new_producer_id: Callable[[], ProducerId]
) -> None:
    """Give a request a new producer id, and ask the table again. For a thread that may wait."""
    try:
        ask.fresh_id = new_producer_id()
    except Exception as error:
        logger.error("no producer id for %s: %s", ask.transactional_id, error)
        ask.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
    else:
        table.proceed([ask])
