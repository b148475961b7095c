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
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Generic, TypeVar

from cordwood.clock import Clock
from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.marker_writer import MarkerRound, markers_of
from cordwood.log.transactions.state_budget import StateBudget
from cordwood.log.transactions.transaction_entry import (
    WAITERS_MAX,
    Ask,
    Decide,
    Granted,
    Lease,
    Outcome,
    TransactionEntry,
)
from cordwood.log.transactions.transaction_journal import JournalEntry
from cordwood.log.transactions.transaction_machine import (
    Change,
    Decision,
    NeedsProducerId,
    Refusal,
    Refused,
    Unchanged,
    committed_alone,
    completed,
    decide_add,
    decide_fence,
    is_expired,
    is_timed_out,
    may_begin_alone,
    may_commit_alone,
    raised,
    with_new_id,
)
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
)
from cordwood.log.transactions.transaction_port import TransactionWork
from cordwood.quantities import NO_PRODUCER_EPOCH, Offset, ProducerId, TimestampMs
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

Work = TypeVar("Work", bound=TransactionWork)

_FENCED_LINE_S: Final = 10.0  # between two lines about fenced producers of one id
_RAISE_S: Final = 30.0  # an id that is being changed is raised within this time, or at a start


class TransactionTable(Generic[Work]):
    """Transactional ids: all of a store, or, in a cluster, those of one partition of the topic.

    Any thread may call it; nothing waits for the disk.

    coordinator_epoch  goes into every marker; it must not be lower than in any log
    log_epochs         what logs have of producers, if ids are missing that may come later
    misses_logs        whether a log was missing when ids were raised to what logs have
    """

    def __init__(
        self,
        clock: Clock,
        make_work: Callable[["TransactionTable[Work]"], Work],
        *,
        lock: "threading.Lock | None" = None,
        budget: StateBudget | None = None,
        coordinator_epoch: int = 0,
        is_replicated: bool = False,
    ) -> None:
        """Tables that have a `budget` together also have a `lock` together.

        If it `is_replicated`, every change is written before anyone acts on it, except the
        completion of a transaction: nobody can make good from the logs what is lost.
        """
        self.coordinator_epoch = coordinator_epoch
        self.log_epochs: Mapping[ProducerId, int] = {}
        self.misses_logs = False
        self._clock = clock
        self._lock = lock or threading.Lock()
        self._entries: dict[str, TransactionEntry] = {}
        self.budget = budget or StateBudget(clock)
        self._is_replicated = is_replicated
        self._closed: Refused | None = None
        # Ids whose record was put off, and what has to be durable before it is written.
        self._late: dict[str, tuple[PartitionLog, Offset] | None] = {}
        self._working = threading.Lock()
        self.work = make_work(self)

    @property
    def still(self) -> AbstractContextManager[object]:
        """While it is held, nothing is decided, and nobody gets a lease."""
        return self._lock

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

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

    def grant_now(self, transactional_id: str, decide: Decide) -> Granted | None:
        """Allow an append and give it a lease, if nothing has to be waited for or refused.

        None: nothing was done, and a request finds out.
        """
        with self._lock:
            entry = self._entries.get(transactional_id)
            if entry is None or entry.pending is not None or self._closed is not None:
                return None
            decision = decide(entry.metadata, self._clock.now_ms(), None)
            if isinstance(decision, Change):
                if (
                    decision.is_durable
                    or self._is_replicated
                    or not self.budget.allows(entry.metadata, decision.new)
                ):
                    return None
                self.install(entry, decision.new)
                self.write(decision.new)
                identity = decision.new.identity_after_end
            elif isinstance(decision, Unchanged):
                identity = decision.identity
            else:
                return None
            return Granted(identity=identity, lease=self._lease(entry))

    def _step(self, ask: Ask) -> Outcome | None:
        """The answer, or None if it comes later. Holds the lock."""
        if self._closed is not None:
            return self._closed
        entry = self._entries.get(ask.transactional_id)
        if entry is not None and entry.pending is not None:
            return self._park(entry, ask)
        metadata = None if entry is None else entry.metadata
        decision = ask.decide(metadata, self._clock.now_ms(), ask.fresh_id)
        if entry is not None and entry.needs_new_id:
            decision = with_new_id(decision, ask.fresh_id)
        if isinstance(decision, NeedsProducerId):
            self.work.give_id(ask)
            return None
        if isinstance(decision, Refused):
            if decision.reason is Refusal.PRODUCER_FENCED and entry is not None:
                self._tell_fenced(entry)
            is_concurrent = decision.reason is Refusal.CONCURRENT_TRANSACTIONS
            if is_concurrent and entry is not None and not ask.is_brief:
                return self._park(entry, ask)
            return decision
        if isinstance(decision, Change) and not self.budget.allows(metadata, decision.new):
            return Refused(Refusal.TOO_MANY_IDS)
        if entry is None:
            entry = self._entries[ask.transactional_id] = TransactionEntry()
        if isinstance(decision, Unchanged):
            return self._grant(entry, ask, decision.identity)
        if decision.is_durable or self._is_replicated:
            entry.pending = decision.new
            entry.asker = ask
            self.write(decision.new, partial(self._written, entry, ask, decision))
            return None
        self.install(entry, decision.new)
        self.write(decision.new)
        return self._grant(entry, ask, decision.new.identity_after_end)

    def _grant(self, entry: TransactionEntry, ask: Ask, identity: ProducerIdentity) -> Granted:
        lease = self._lease(entry) if ask.takes_lease else None
        return Granted(identity=identity, lease=lease)

    def _lease(self, entry: TransactionEntry) -> Lease:
        lease = Lease(entry, self._release)
        entry.leases.append(lease)
        return lease

    def _park(self, entry: TransactionEntry, ask: Ask) -> Refused | None:
        if len(entry.waiters) >= WAITERS_MAX:
            return Refused(Refusal.CONCURRENT_TRANSACTIONS)
        entry.waiters.append(ask)
        if entry.has_failed:
            self._retry_markers(entry)
        return None

    def _retry_markers(self, entry: TransactionEntry) -> None:
        entry.has_failed = False
        self.work.mark(entry)

    def write(
        self, new: TransactionMetadata, written: Callable[[Refusal | None], None] | None = None
    ) -> None:
        self._late.pop(new.transactional_id, None)  # only the newest counts
        self.work.write(
            JournalEntry(
                transactional_id=new.transactional_id,
                value=new,
                at_ms=new.last_update_ms,
                written=written,
                lost=partial(self._lost, new) if written is None else None,
            ),
            # What nobody needs is written with the next record, or by `retry`. A client of version
            # 1 was told that its partitions are added; one of version 2 adds them by its records.
            is_urgent=written is not None
            or (new.state is TransactionState.ONGOING and not new.bumps_epochs),
        )

    def _lost(self, new: TransactionMetadata) -> None:
        """A record that nobody waits for could not be written: the next tick tries again.

        For a lone transaction it is the only one that has the epoch.
        """
        with self._lock:
            entry = self._entries.get(new.transactional_id)
            if entry is not None and entry.metadata is new and not self._is_replicated:
                self._late.setdefault(new.transactional_id, None)

    def _written(
        self, entry: TransactionEntry, ask: Ask, decision: Change, reason: Refusal | None
    ) -> None:
        """A decision is durable, or could not be written."""
        outcome: Outcome | None = None
        with self._lock:
            assert entry.pending is decision.new, entry.pending
            is_awaited = entry.asker is ask  # else it was answered: see `retry`
            entry.pending = entry.asker = None
            if self._closed is not None and self._is_replicated:
                outcome = self._closed  # the next coordinator decides, by what was replicated
            elif reason is not None:
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
                if self._closed is not None and decision.is_fence:
                    outcome = self._closed  # no markers any more
                elif decision.is_fence and not ask.is_fencing:
                    outcome = self._park(entry, ask) if is_awaited else None
                elif ask.is_thorough and decision.new.is_prepared and self._closed is None:
                    # Decided once and for all: others may have the id before it is asked again.
                    ask.decide = partial(_decide_settled, decision.new)
                    outcome = self._park(entry, ask) if is_awaited else None
                else:
                    outcome = self._grant(entry, ask, decision.new.identity_after_end)
            waiters = self._settled(entry)
        if outcome is not None and is_awaited:
            ask.done(outcome)
        if waiters or not self.work.has_threads:
            self.proceed(waiters)

    def install(self, entry: TransactionEntry, new: TransactionMetadata) -> None:
        """The only place that replaces what is known of an id. Holds the lock."""
        self.budget.replace(entry.metadata, new)
        if entry.metadata is not None and entry.metadata.producer_id != new.producer_id:
            entry.needs_new_id = False
        entry.metadata = new
        entry.unmarked = new.partitions if new.is_prepared else frozenset()
        if new.is_prepared and not entry.leases:
            self.work.mark(entry)

    def _settled(self, entry: TransactionEntry) -> list[Ask]:
        """The requests that need not wait any more. Holds the lock."""
        if entry.pending is not None:
            return []
        if entry.metadata is not None and entry.metadata.is_prepared:
            return []
        waiters = list(entry.waiters)
        entry.waiters.clear()
        return waiters

    def _release(self, lease: Lease) -> None:
        entry = lease.entry
        with self._lock:
            if lease in entry.leases:
                entry.leases.remove(lease)
            if not entry.leases and entry.metadata is not None and entry.metadata.is_prepared:
                self.work.mark(entry)
        self.work_here()

    # --- transactions that their marker decides ------------------------------------------------

    def begin_alone(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        leases: list[Lease],
    ) -> bool:
        """Begin a transaction in its first partition, and add a lease for the append to `leases`.

        False: nothing was done, and a request finds out. Nothing is written: if the transaction is
        still open at the next tick, its record is. See `lone_commit`.
        """
        with self._lock:
            entry = self._entries.get(transactional_id)
            metadata = None if entry is None else self._open_metadata(entry)
            if entry is None or metadata is None or not may_begin_alone(metadata):
                return False
            decision = decide_add(
                metadata,
                producer,
                {place},
                client_version=EPOCH_BUMPING_VERSION,
                now_ms=self._clock.now_ms(),
            )
            if (
                not isinstance(decision, Change)
                or decision.is_durable
                or not self.budget.allows(metadata, decision.new)
            ):
                return False
            self.install(entry, decision.new)
            self._late[transactional_id] = None
            self._lend(entry, leases)
            return True

    def lease_end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        leases: list[Lease],
    ) -> tuple[TransactionEntry, TransactionMetadata] | None:
        """Allow a commit by a marker in `place`, and add a lease for that marker to `leases`.

        None: nothing was done, and the general way is the one.
        """
        with self._lock:
            entry = self._entries.get(transactional_id)
            metadata = None if entry is None else self._open_metadata(entry)
            if entry is None or metadata is None or entry.leases:
                return None
            if not may_commit_alone(metadata, producer, place):
                return None
            self._lend(entry, leases)
            return entry, metadata

    def committed_alone(
        self,
        entry: TransactionEntry,
        metadata: TransactionMetadata,
        log: PartitionLog,
        end: Offset,
    ) -> ProducerIdentity | None:
        """The marker that `lease_end` allowed is in its log, below `end`.

        Returns what the producer uses next; None if another producer asked for the id meanwhile.
        """
        with self._lock:
            if entry.metadata is not metadata or entry.pending is not None:
                return None
            new = committed_alone(metadata, now_ms=self._clock.now_ms())
            self.install(entry, new)
            self._late[metadata.transactional_id] = (log, end)
            return new.identity

    def _lend(self, entry: TransactionEntry, leases: list[Lease]) -> None:
        """Give a lease. Its holder has it before it counts: an interrupt loses none."""
        lease = Lease(entry, self._release)
        leases.append(lease)
        entry.leases.append(lease)

    def _open_metadata(self, entry: TransactionEntry) -> TransactionMetadata | None:
        """What counts for an id; None if something has to be waited for. Holds the lock."""
        if entry.pending is not None or self._closed is not None or self._is_replicated:
            return None
        return entry.metadata

    def _write_late(self) -> None:
        """Write the records that were put off. Holds the lock.

        That a lone transaction is complete must not be on the disk before its log is: the record
        would commit what a power cut leaves of the records.
        """
        for transactional_id, awaited in list(self._late.items()):
            entry = self._entries.get(transactional_id)
            if entry is None or entry.metadata is None or entry.pending is not None:
                continue
            if awaited is None or awaited[0].promises.is_kept(awaited[1]):
                self.write(entry.metadata)

    def raise_epochs(self, epochs: Mapping[ProducerId, int], *, is_live: bool) -> None:
        """Logs have these epochs: no id may be below. See `transaction_machine.raised`.

        If it `is_live`, producers may be at work: a transaction that is open in a lower epoch is
        aborted first. A prepared one is completed first in any case.
        """
        asks: list[Ask] = []
        with self._lock:
            for transactional_id, entry in self._entries.items():
                if entry.metadata is None:
                    continue
                after = entry.metadata.identity_after_end
                epoch = epochs.get(after.producer_id, NO_PRODUCER_EPOCH)
                if epoch <= after.epoch:
                    continue
                entry.floor = replace(after, epoch=epoch)
                if is_live:
                    asks.append(
                        Ask(
                            transactional_id=transactional_id,
                            decide=partial(_decide_raise, entry.floor),
                            done=_ignore,
                            deadline_s=self._clock.monotonic() + _RAISE_S,
                            is_fencing=True,
                        )
                    )
                elif self._raise(entry):
                    entry.loaded = entry.floor
        self.proceed(asks)

    def _raise(self, entry: TransactionEntry) -> bool:
        """Raise an id to its floor; whether that was needed and possible. Holds the lock."""
        metadata, floor = entry.metadata, entry.floor
        if metadata is None or floor is None or floor.producer_id != metadata.producer_id:
            return False
        new = raised(metadata, floor.epoch, now_ms=self._clock.now_ms())
        if new is None:
            return False
        self.install(entry, new)
        self.write(new)
        return True

    def loaded_epochs(self) -> dict[ProducerId, int]:
        """The epoch of each producer when it was loaded."""
        with self._lock:
            return {
                entry.loaded.producer_id: entry.loaded.epoch
                for entry in self._entries.values()
                if entry.loaded is not None
            }

    # --- markers -----------------------------------------------------------------------------

    def unmarked(self, entries: Iterable[TransactionEntry]) -> list[MarkerRound]:
        """The markers that are to be written, of those whose transaction is prepared."""
        rounds: list[MarkerRound] = []
        with self._lock:
            for entry in entries:
                metadata = entry.metadata
                if metadata is not None and metadata.is_prepared and self._may_mark:
                    entry.has_failed = False
                    wanted = markers_of(metadata, entry.unmarked, self.coordinator_epoch)
                    rounds.append(MarkerRound(entry=entry, metadata=metadata, wanted=wanted))
        return rounds

    @property
    def _may_mark(self) -> bool:
        """Not after another broker has become the coordinator."""
        return self._closed is None or not self._is_replicated

    def tried(
        self,
        rounds: Iterable[MarkerRound],
        failures: AbstractSet[TopicPartition],
        held: AbstractSet[TopicPartition] = frozenset(),
    ) -> list[TransactionEntry]:
        """All markers were tried; those in `failures` are tried again later.

        Returns the transactions that need nothing but markers for logs that are `held`: the caller
        has them written by whoever may wait.
        """
        waiters: list[Ask] = []
        waiting: list[TransactionEntry] = []
        given_up: list[Ask] = []
        with self._lock:
            for each in rounds:
                entry = each.entry
                if entry.metadata is not each.metadata:
                    continue  # queued twice
                entry.unmarked &= failures | held
                if entry.unmarked and entry.unmarked.isdisjoint(failures):
                    waiting.append(entry)
                    continue
                if entry.unmarked:
                    entry.has_failed = True
                    given_up += (ask for ask in entry.waiters if ask.gives_up)
                    entry.waiters = deque(ask for ask in entry.waiters if not ask.gives_up)
                    continue
                waiters += self._complete(entry, each.metadata)
        for ask in given_up:
            ask.done(Refused(Refusal.CONCURRENT_TRANSACTIONS))
        if waiters or not self.work.has_threads:
            self.proceed(waiters)
        return waiting

    def marked(self, each: MarkerRound, places: AbstractSet[TopicPartition]) -> None:
        """Some partitions have their markers. The transaction is complete after the last one."""
        entry = each.entry
        with self._lock:
            if entry.metadata is not each.metadata or not self._may_mark:
                return
            entry.unmarked -= places
            if entry.unmarked:
                return
            waiters = self._complete(entry, each.metadata)
        self.proceed(waiters)

    def _complete(self, entry: TransactionEntry, metadata: TransactionMetadata) -> list[Ask]:
        """All partitions have their markers; the requests that waited for it. Holds the lock."""
        new = completed(metadata, now_ms=self._clock.now_ms())
        self.install(entry, new)
        self.write(new)
        if entry.floor is not None:
            self._raise(entry)
        return self._settled(entry)

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
        """Write what was left to be written, and refuse requests that have waited too long."""
        with self._lock:
            self._write_late()
        self.work.hurry()
        now_s = self._clock.monotonic()
        late: list[Ask] = []
        stuck: list[Ask] = []
        with self._lock:
            for entry in self._entries.values():
                if entry.has_failed:
                    self._retry_markers(entry)
                if entry.waiters and entry.waiters[0].deadline_s <= now_s:
                    expired = [ask for ask in entry.waiters if ask.deadline_s <= now_s]
                    for ask in expired:
                        entry.waiters.remove(ask)
                    late += expired
                asker = entry.asker
                if self._is_replicated and asker is not None and asker.deadline_s <= now_s:
                    entry.asker = None
                    stuck.append(asker)
        for ask in late:
            ask.done(Refused(Refusal.CONCURRENT_TRANSACTIONS))
        for ask in stuck:  # what it asked for is pending: too few replicas are in sync
            ask.done(Refused(Refusal.COORDINATOR_NOT_AVAILABLE))
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
                self.budget.replace(self._entries.pop(transactional_id).metadata, None)
                self._late.pop(transactional_id, None)
                self.work.write(
                    JournalEntry(transactional_id=transactional_id, value=None, at_ms=now_ms),
                    is_urgent=True,
                )
        self.work_here()
        return len(expired)

    # --- life --------------------------------------------------------------------------------

    def load(self, found: Iterable[TransactionMetadata]) -> list[TransactionEntry]:
        """Take over what the topic has. Called once, before all requests; returns the entries."""
        with self._lock:
            for metadata in found:
                entry = self._entries[metadata.transactional_id] = TransactionEntry(metadata)
                self.budget.replace(None, metadata)
                entry.unmarked = metadata.partitions if metadata.is_prepared else frozenset()
                entry.loaded = metadata.identity_after_end
                entry.needs_new_id = self.misses_logs
            return list(self._entries.values())

    def load_late(self, found: Iterable[TransactionMetadata]) -> int:
        """Take over ids of a part of the topic that could not be read before; return how many."""
        count = 0
        with self._lock:
            for metadata in found:
                if metadata.transactional_id not in self._entries:
                    entry = self._entries[metadata.transactional_id] = TransactionEntry()
                    entry.loaded = metadata.identity_after_end
                    entry.needs_new_id = self.misses_logs
                    self.install(entry, metadata)
                    count += 1
        self.work_here()
        return count

    def continue_in(
        self, transactional_id: str, place: TopicPartition, epoch: int, now_ms: TimestampMs
    ) -> bool:
        """Make a partition that has its records part of a transaction; False if it moved on."""
        with self._lock:
            entry = self._entries.get(transactional_id)
            metadata = None if entry is None else entry.metadata
            if entry is None or metadata is None or entry.pending is not None:
                return False
            decision = decide_add(
                metadata,
                replace(metadata.identity, epoch=epoch),
                {place},
                client_version=metadata.client_version,
                now_ms=now_ms,
            )
            if isinstance(decision, Refused):
                return False
            if isinstance(decision, Change):
                self.install(entry, decision.new)
                self.write(decision.new)
        self.work_here()
        return True

    def close(self, *, finishes: bool, reason: Refusal = Refusal.COORDINATOR_NOT_AVAILABLE) -> None:
        """Refuse requests with `reason`, write what is decided, end the work. Safe to repeat."""
        with self._lock:
            was_open, self._closed = self._closed is None, self._closed or Refused(reason)
            waiting = [ask for entry in self._entries.values() for ask in entry.waiters]
            for entry in self._entries.values():
                entry.waiters.clear()
            if was_open and self._is_replicated:  # others use the same budget
                for entry in self._entries.values():
                    self.budget.replace(entry.metadata, None)
            if finishes:
                self._write_late()
        for ask in waiting:
            ask.done(Refused(reason))
        if finishes:
            self.work_here()
        self.work.stop(finishes=finishes)

    def work_here(self) -> None:
        """Without threads: do all that waits, in this thread, unless another one is at it."""
        if self.work.has_threads:
            return
        while self._working.acquire(blocking=False):
            try:
                is_idle = not self.work.run_here()
            finally:
                self._working.release()
            if is_idle:
                return


def _decide_settled(
    ended: TransactionMetadata,
    current: TransactionMetadata | None,
    _now_ms: TimestampMs,
    _fresh_id: ProducerId | None,
) -> Decision:
    """For whoever ended a transaction and waits for its markers."""
    if current is ended:
        return Refused(Refusal.CONCURRENT_TRANSACTIONS)
    return Unchanged(ended.identity_after_end)


def _decide_raise(
    floor: ProducerIdentity,
    current: TransactionMetadata | None,
    now_ms: TimestampMs,
    fresh_id: ProducerId | None,
) -> Decision:
    """For an id whose epoch is below what a log has."""
    if current is None or current.producer_id != floor.producer_id:
        return Refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    new = raised(current, floor.epoch, now_ms=now_ms)
    if new is None:
        return Unchanged(current.identity)  # a prepared one is raised when it is complete
    if current.state is TransactionState.ONGOING:
        return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)
    return Change(new=new, is_durable=False)


def _ignore(_outcome: Outcome) -> None:
    """Nobody waits."""


def _shown(entry: TransactionEntry) -> TransactionMetadata | None:
    metadata = entry.metadata
    if metadata is None or metadata.state is TransactionState.DEAD:
        return None
    if metadata.is_prepared and entry.unmarked != metadata.partitions:
        return replace(metadata, partitions=entry.unmarked)
    return metadata
