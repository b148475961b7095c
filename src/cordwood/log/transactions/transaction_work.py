"""The work of a table of transactions that is alone: records, markers and producer ids.

It is done with two threads of its own, or in steps by a broker that is alone. See
`transaction_port` for what a table needs.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from typing import Any

from cordwood.errors import CordwoodError
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.marker_turns import MarkerTurns
from cordwood.log.transactions.marker_writer import (
    MarkerRound,
    MarkerWriter,
    WantedMarker,
    WrittenMarkers,
)
from cordwood.log.transactions.transaction_entry import Ask, TransactionEntry
from cordwood.log.transactions.transaction_journal import (
    JournalEntry,
    TransactionJournal,
    WrittenEntries,
)
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import EPOCH_BUMPING_VERSION
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.work_queue import Substitute, WorkQueue
from cordwood.quantities import Offset, ProducerId
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

# A record to write, a transaction that needs its markers, or None: markers that are owed.
WorkItem = JournalEntry | TransactionEntry | None


class Marking:
    """Markers that are in their logs, and what is to be done when they are durable."""

    __slots__ = ("owed", "rounds", "written")

    def __init__(
        self, owed: list[WantedMarker], rounds: list[MarkerRound], written: WrittenMarkers
    ) -> None:
        self.owed = owed
        self.rounds = rounds
        self.written = written

    @property
    def ends(self) -> Mapping[PartitionLog, Offset]:
        """Where each log must be durable."""
        return self.written.ends


class LocalWork:
    """The work of a store that coordinates all its transactions and leads all its partitions.

    A broker does it in its data loop, instead of a thread: see `work_by`.
    """

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
        self._journal = journal
        self._may_mark = True  # not once it ends
        self.has_threads = has_threads
        self.queue: WorkQueue[WorkItem] = WorkQueue(
            "cordwood-transactions", self._do, has_thread=has_threads
        )
        self.id_queue: WorkQueue[Ask] = WorkQueue(
            "cordwood-transaction-ids", self._give_ids, has_thread=has_threads
        )

    def write(self, entry: JournalEntry, *, is_urgent: bool) -> None:
        self.queue.put(entry, is_urgent=is_urgent)

    def mark(self, entry: TransactionEntry) -> None:
        self.queue.put(entry)

    def give_id(self, ask: Ask) -> None:
        self.id_queue.put(ask)

    def _give_ids(self, asks: list[Ask]) -> None:
        """In a thread of its own: reserving ids touches the disk.

        So does the creation of the topic, which may have to wait here, and nowhere else.
        """
        for ask in asks:
            with suppress(CordwoodError, OSError):  # the record finds it again, and is refused
                self._journal.prepare(ask.transactional_id)
            give_id(self._table, ask, self._new_producer_id)

    def _do(self, items: Sequence[WorkItem]) -> None:
        """Write records and markers, and sync all of them at once.

        The decisions behind these markers are durable: they come after the records of their
        transactions in an earlier call.
        """
        entries = [item for item in items if isinstance(item, JournalEntry)]
        is_marking = self._may_mark and len(entries) < len(items)
        with self._markers.turns.round() if is_marking else nullcontext():
            written = self.append_records(entries)
            ends = dict(written.ends)
            marking = None
            if is_marking:
                marking = self.append_markers(
                    [item for item in items if isinstance(item, TransactionEntry)]
                )
                ends.update(marking.ends)
            unsynced = self._markers.await_kept(ends)
        written.tell(unsynced)
        if marking is not None:
            self.finish_markers(marking, unsynced)

    # --- in steps, for whoever does not wait for the disk ----------------------------------------

    @property
    def may_mark(self) -> bool:
        """Whether markers are still written. At the end they are left to the next opening."""
        return self._may_mark

    @property
    def turns(self) -> MarkerTurns:
        return self._markers.turns

    def append_records(self, entries: Sequence[JournalEntry]) -> WrittenEntries:
        """Write records. The caller syncs, and tells those who wait."""
        return self._journal.append(entries)

    def append_markers(
        self, entries: Iterable[TransactionEntry], *, wait: bool = True
    ) -> "Marking":
        """Write the markers of these transactions, and those that are owed, in a round.

        The caller syncs, and then calls `finish_markers`. Without `wait`, those that are owed are
        left out, and so are those for a log that a publication holds: the thread waits for it.
        """
        owed = self._take_owed() if wait else []
        rounds = self._table.unmarked(entries)
        wanted = [*owed, *(marker for each in rounds for marker in each.wanted)]
        return Marking(owed, rounds, self._append_markers(wanted, wait=wait))

    def finish_markers(
        self, marking: "Marking", unsynced: Mapping[PartitionLog, Exception]
    ) -> None:
        """The logs were synced, but those in `unsynced`: transactions are complete."""
        written = marking.written
        failures = self._markers.finish(written, unsynced)
        for entry in self._finish(marking.owed, marking.rounds, failures.keys(), written.held):
            self.leave_to_thread(entry)

    def work_by(self, substitute: Substitute[WorkItem]) -> None:
        """Have `substitute` do the work from now on. Waits until nothing is under way."""
        self.queue.hand_over(substitute)

    def work_here_again(self, take_items: "Callable[[], list[WorkItem]]") -> None:
        """The substitute has ended; `take_items` gives what it has not done."""
        self.queue.take_back(take_items)

    def leave_to_thread(self, item: TransactionEntry | None) -> None:
        """Have the thread write markers: something may have to wait, or takes long."""
        self.queue.put_here(item)

    def write_markers(self, entries: Sequence[TransactionEntry]) -> None:
        """Write the markers of these transactions now, in this thread."""
        self._do(entries)

    def _take_owed(self) -> list[WantedMarker]:
        with self._lock:
            owed, self._owed = self._owed, []
        return owed

    def _append_markers(self, wanted: list[WantedMarker], *, wait: bool) -> WrittenMarkers:
        try:
            return self._markers.append(wanted, wait=wait)
        except Exception as error:  # a bug of ours: no transaction may stay prepared for ever
            logger.exception("transaction markers could not be written")
            failed = WrittenMarkers()
            failed.tried.update(marker.place for marker in wanted)
            failed.failures.update((marker.place, error) for marker in wanted)
            return failed

    def _finish(
        self,
        owed: list[WantedMarker],
        rounds: list[MarkerRound],
        failures: AbstractSet[TopicPartition],
        held: AbstractSet[TopicPartition],
    ) -> list[TransactionEntry]:
        with self._lock:
            self._owed += (marker for marker in owed if marker.place in failures)
        return self._table.tried(rounds, failures, held)

    def owe(self, markers: Iterable[WantedMarker]) -> None:
        """Have markers of recovery that could not be written tried again, as long as they fail.

        As version 2: such a marker never ends a transaction that its producer began meanwhile.
        """
        with self._lock:
            self._owed += (replace(m, version=EPOCH_BUMPING_VERSION) for m in markers)

    def hurry(self) -> None:
        self.queue.hurry()
        if self._owed:
            self.leave_to_thread(None)

    def run_here(self) -> bool:
        return self.id_queue.run_here() or self.queue.run_here()

    def stop(self, *, finishes: bool) -> None:
        self.id_queue.stop(finishes=finishes)
        self._may_mark = False  # markers that are left are written at the next opening
        self.queue.stop(finishes=finishes)
        self._markers.close()


def give_id(
    table: TransactionTable[Any], ask: Ask, new_producer_id: Callable[[], ProducerId]
) -> None:
    """Give a request a new producer id, and ask the table again. For a thread that may wait."""
    try:
        ask.fresh_id = new_producer_id()
    except Exception as error:
        logger.error("no producer id for %s: %s", ask.transactional_id, error)
        ask.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
    else:
        table.proceed([ask])
