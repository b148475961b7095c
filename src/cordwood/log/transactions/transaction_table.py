"""The transactional ids, and how a decision about one of them is carried out.

A request is decided under the lock. If its change must be durable first, it is pending, and other
requests about the same id wait. They also wait while a transaction is being completed, where Kafka
tells its clients to try again.

Appends hold a lease: a prepared transaction gets no marker before they are in the log. So no
record can slip in behind the marker of its transaction.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from cordwood.clock import Clock
from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.transactions.marker_writer import MarkerWriter, WantedMarker, markers_of
from cordwood.log.transactions.transaction_entry import (
    WAITERS_MAX,
    Ask,
    Granted,
    Lease,
    Outcome,
    TransactionEntry,
)
from cordwood.log.transactions.transaction_journal import JournalEntry, TransactionJournal
from cordwood.log.transactions.transaction_machine import (
    Change,
    NeedsProducerId,
    Refusal,
    Refused,
    Unchanged,
    completed,
    is_expired,
    is_timed_out,
)
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
)
from cordwood.log.transactions.work_queue import WorkQueue
from cordwood.quantities import ProducerId
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

IDS_MAX: Final = 500_000  # each takes about 1 KB, and any client may create one
_FENCED_LINE_S: Final = 10.0  # between two lines about fenced producers of one id


class TransactionTable:
    """All transactional ids of a store. Any thread may call it; nothing waits for the disk.

    coordinator_epoch  goes into every marker; it must not be lower than in any log
    """

    def __init__(
        self,
        *,
        journal: TransactionJournal,
        markers: MarkerWriter,
        new_producer_id: Callable[[], ProducerId],
        clock: Clock,
        has_threads: bool,
    ) -> None:
        self.coordinator_epoch = 0
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, TransactionEntry] = {}
        self._owed: list[WantedMarker] = []  # of transactions that no id has
        self._is_closed = False
        self._working = threading.Lock()
        self._journal_queue = WorkQueue(
            "cordwood-transaction-log", journal.write, has_thread=has_threads
        )
        self._marker_queue: WorkQueue[TransactionEntry] = WorkQueue(
            "cordwood-markers", self.write_markers, has_thread=has_threads
        )
        self._id_queue: WorkQueue[Ask] = WorkQueue(
            "cordwood-transaction-ids", self._give_ids, has_thread=has_threads
        )

    # --- looking -----------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id. A prepared transaction has only the partitions without a marker."""
        with self._lock:
            entry = self._entries.get(transactional_id)
            return None if entry is None else _shown(entry)

    def all(self) -> list[TransactionMetadata]:
        """The state of all ids, in order."""
        with self._lock:
            shown = [_shown(entry) for entry in self._entries.values()]
        return sorted(
            (metadata for metadata in shown if metadata is not None),
            key=lambda metadata: metadata.transactional_id,
        )

    # --- carrying out ------------------------------------------------------------------------

    def proceed(self, asks: Iterable[Ask]) -> None:
        """Decide about requests, one after the other, and answer those that need not wait."""
        for ask in asks:
            with self._lock:
                outcome = self._step(ask)
            if outcome is not None:
                ask.done(outcome)
        self.work_here()

    def _step(self, ask: Ask) -> Outcome | None:
        """The answer, or None if it comes later. Holds the lock."""
        if self._is_closed:
            return Refused(Refusal.COORDINATOR_NOT_AVAILABLE)
        entry = self._entries.get(ask.transactional_id)
        if entry is not None and entry.pending is not None:
            return self._park(entry, ask)
        metadata = None if entry is None else entry.metadata
        decision = ask.decide(metadata, self._clock.now_ms(), ask.fresh_id)
        if isinstance(decision, NeedsProducerId):
            self._id_queue.put(ask)
            return None
        if isinstance(decision, Refused):
            if decision.reason is Refusal.PRODUCER_FENCED and entry is not None:
                self._tell_fenced(entry)
            if decision.reason is Refusal.CONCURRENT_TRANSACTIONS and entry is not None:
                return self._park(entry, ask)
            return decision
        if entry is None:
            if len(self._entries) >= IDS_MAX:
                logger.warning("%d transactional ids is the limit", IDS_MAX)
                return Refused(Refusal.COORDINATOR_NOT_AVAILABLE)
            entry = self._entries[ask.transactional_id] = TransactionEntry()
        if isinstance(decision, Unchanged):
            return self._grant(entry, ask, decision.identity)
        if decision.is_durable:
            entry.pending = decision.new
            self.write(decision.new, partial(self._written, entry, ask, decision))
            return None
        self.install(entry, decision.new)
        self.write(decision.new)
        return self._grant(entry, ask, decision.new.identity_after_end)

    def _grant(self, entry: TransactionEntry, ask: Ask, identity: ProducerIdentity) -> Granted:
        if not ask.takes_lease:
            return Granted(identity=identity)
        entry.leases += 1
        return Granted(identity=identity, lease=Lease(lambda: self._release(entry)))

    def _park(self, entry: TransactionEntry, ask: Ask) -> Refused | None:
        if len(entry.waiters) >= WAITERS_MAX:
            return Refused(Refusal.CONCURRENT_TRANSACTIONS)
        entry.waiters.append(ask)
        if entry.has_failed:
            self._retry_markers(entry)
        return None

    def _retry_markers(self, entry: TransactionEntry) -> None:
        entry.has_failed = False
        self._marker_queue.put(entry)

    def write(
        self, new: TransactionMetadata, written: Callable[[Refusal | None], None] | None = None
    ) -> None:
        self._journal_queue.put(
            JournalEntry(
                transactional_id=new.transactional_id,
                value=new,
                at_ms=new.last_update_ms,
                written=written,
            )
        )

    def _written(
        self, entry: TransactionEntry, ask: Ask, decision: Change, reason: Refusal | None
    ) -> None:
        """A decision is durable, or could not be written."""
        outcome: Outcome | None = None
        with self._lock:
            assert entry.pending is decision.new, entry.pending
            entry.pending = None
            if reason is not None:
                outcome = Refused(reason)
                if entry.metadata is None:
                    del self._entries[ask.transactional_id]
            else:
                self.install(entry, decision.new)
                if decision.is_fence:
                    logger.info(
                        "transactional id %s: transaction of producer %d, epoch %d, aborted; %s",
                        ask.transactional_id,
                        decision.new.producer_id,
                        decision.new.epoch - 1,
                        "it timed out" if ask.is_fencing else "another producer has its id",
                    )
                if self._is_closed and decision.is_fence:
                    outcome = Refused(Refusal.COORDINATOR_NOT_AVAILABLE)  # no markers any more
                elif decision.is_fence and not ask.is_fencing:
                    outcome = self._park(entry, ask)
                else:
                    outcome = self._grant(entry, ask, decision.new.identity_after_end)
            waiters = self._settled(entry)
        if outcome is not None:
            ask.done(outcome)
        self.proceed(waiters)

    def install(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        """The only place that replaces what is known of an id. Holds the lock."""
        entry.metadata = new
        entry.unmarked = new.partitions if new.is_prepared else frozenset()
        if new.is_prepared and not entry.leases:
            self._marker_queue.put(entry)

    def _settled(self, entry: TransactionEntry) -> list[Ask]:
        """The requests that need not wait any more. Holds the lock."""
        if entry.pending is not None:
            return []
        if entry.metadata is not None and entry.metadata.is_prepared:
            return []
        waiters = list(entry.waiters)
        entry.waiters.clear()
        return waiters

    def _release(self, entry: TransactionEntry) -> None:
        with self._lock:
            entry.leases -= 1
            assert entry.leases >= 0
            if not entry.leases and entry.metadata is not None and entry.metadata.is_prepared:
                self._marker_queue.put(entry)
        self.work_here()

    def _give_ids(self, asks: list[Ask]) -> None:
        """In a thread of its own: reserving ids touches the disk."""
        for ask in asks:
            try:
                ask.fresh_id = self._new_producer_id()
            except Exception as error:
                logger.error("no producer id for %s: %s", ask.transactional_id, error)
                ask.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
                continue
            self.proceed([ask])

    # --- markers -----------------------------------------------------------------------------

    def write_markers(self, entries: list[TransactionEntry]) -> None:
        wanted: list[WantedMarker] = []
        prepared: list[tuple[TransactionEntry, TransactionMetadata]] = []
        with self._lock:
            owed, self._owed = self._owed, []
            wanted += owed
            for entry in entries:
                metadata = entry.metadata
                if metadata is not None and metadata.is_prepared:
                    entry.has_failed = False
                    prepared.append((entry, metadata))
                    wanted += markers_of(metadata, entry.unmarked, self.coordinator_epoch)
        failures = self._try_markers(wanted)
        waiters: list[Ask] = []
        given_up: list[Ask] = []
        with self._lock:
            self._owed += (marker for marker in owed if marker.place in failures)
            for entry, metadata in prepared:
                if entry.metadata is not metadata:
                    continue  # queued twice
                entry.unmarked &= failures
                if entry.unmarked:
                    entry.has_failed = True
                    given_up += (ask for ask in entry.waiters if ask.gives_up)
                    entry.waiters = deque(ask for ask in entry.waiters if not ask.gives_up)
                    continue
                new = completed(metadata, now_ms=self._clock.now_ms())
                self.install(entry, new)
                self.write(new)
                waiters += self._settled(entry)
        for ask in given_up:
            ask.done(Refused(Refusal.CONCURRENT_TRANSACTIONS))
        self.proceed(waiters)

    def owe(self, markers: Iterable[WantedMarker]) -> None:
        """Have markers of recovery that could not be written tried again, as long as they fail.

        As version 2: such a marker never ends a transaction that its producer began meanwhile.
        """
        with self._lock:
            self._owed += (replace(m, version=EPOCH_BUMPING_VERSION) for m in markers)

    def _try_markers(self, wanted: list[WantedMarker]) -> set[TopicPartition]:
        """Write markers; the partitions that failed."""
        try:
            return set(self._markers.write(wanted))
        except Exception:  # a bug of ours: the transactions must not stay prepared for ever
            logger.exception("transaction markers could not be written")
            return {marker.place for marker in wanted}

    def _tell_fenced(self, entry: TransactionEntry) -> None:
        now_s = self._clock.monotonic()
        metadata = entry.metadata
        if metadata is not None and now_s >= entry.next_line_s:
            entry.next_line_s = now_s + _FENCED_LINE_S
            logger.info(
                "transactional id %s: refused a producer; a newer one has epoch %d",
                metadata.transactional_id,
                metadata.epoch,
            )

    # --- time --------------------------------------------------------------------------------

    def retry(self) -> None:
        """Write markers that failed before, and refuse requests that have waited too long."""
        now_s = self._clock.monotonic()
        late: list[Ask] = []
        with self._lock:
            if self._owed:
                self._marker_queue.put(TransactionEntry())  # no id of its own
            for entry in self._entries.values():
                if entry.has_failed:
                    self._retry_markers(entry)
                if entry.waiters and entry.waiters[0].deadline_s <= now_s:
                    expired = [ask for ask in entry.waiters if ask.deadline_s <= now_s]
                    for ask in expired:
                        entry.waiters.remove(ask)
                    late += expired
        for ask in late:
            ask.done(Refused(Refusal.CONCURRENT_TRANSACTIONS))
        self.work_here()

    def timed_out(self) -> list[str]:
        """The ids whose transaction is open for longer than its producer said."""
        now_ms = self._clock.now_ms()
        with self._lock:
            return [
                transactional_id
                for transactional_id, entry in self._entries.items()
                if entry.metadata is not None
                and entry.pending is None
                and is_timed_out(entry.metadata, now_ms=now_ms)
            ]

    def forget_expired(self, expiration_ms: int) -> int:
        """Forget ids that were not used for so long; return how many."""
        now_ms = self._clock.now_ms()
        with self._lock:
            expired = [
                transactional_id
                for transactional_id, entry in self._entries.items()
                if entry.is_idle
                and entry.metadata is not None
                and is_expired(entry.metadata, now_ms=now_ms, expiration_ms=expiration_ms)
            ]
            for transactional_id in expired:
                del self._entries[transactional_id]
                self._journal_queue.put(
                    JournalEntry(transactional_id=transactional_id, value=None, at_ms=now_ms)
                )
        self.work_here()
        return len(expired)

    # --- life --------------------------------------------------------------------------------

    def load(self, found: Iterable[TransactionMetadata]) -> list[TransactionEntry]:
        """Take over what the topic has. Called once, before all requests; returns the entries."""
        with self._lock:
            for metadata in found:
                entry = self._entries[metadata.transactional_id] = TransactionEntry(metadata)
                entry.unmarked = metadata.partitions if metadata.is_prepared else frozenset()
            return list(self._entries.values())

    def close(self, *, finishes: bool) -> None:
        """Refuse new requests, write what is decided, end the threads. Safe to repeat."""
        with self._lock:
            self._is_closed = True
            waiting = [ask for entry in self._entries.values() for ask in entry.waiters]
            for entry in self._entries.values():
                entry.waiters.clear()
        for ask in waiting:
            ask.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
        self._id_queue.stop(finishes=finishes)
        # Markers that are left are written at the next opening.
        self._marker_queue.stop(finishes=False)
        self._journal_queue.stop(finishes=finishes)

    def work_here(self) -> None:
        """Without threads: do all that waits, in this thread, unless another one is at it."""
        while self._working.acquire(blocking=False):
            try:
                is_idle = not (
                    self._id_queue.run_here()
                    or self._journal_queue.run_here()
                    or self._marker_queue.run_here()
                )
            finally:
                self._working.release()
            if is_idle:
                return


def _shown(entry: TransactionEntry) -> TransactionMetadata | None:
    metadata = entry.metadata
    if metadata is None or metadata.state is TransactionState.DEAD:
        return None
    if metadata.is_prepared and entry.unmarked != metadata.partitions:
        return replace(metadata, partitions=entry.unmarked)
    return metadata
