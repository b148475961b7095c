"""The producers that a log knows, and the snapshot files that keep them."""

from collections.abc import Collection

from cordwood.format.file_names import DELETED
from cordwood.format.small_files.producer_snapshot import ProducerSnapshotEntry
from cordwood.log.partition.derived_state.producer_snapshots import (
    find_older,
    load_newest,
    remove_snapshot,
    replay,
    snapshot_path,
    write_snapshot,
)
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.rules.producer_state import BatchFacts, ProducerStates, VerificationGuard
from cordwood.quantities import Offset, ProducerId, TimestampMs
from cordwood.storage.replacement.segment_files import find_snapshots


class LogProducers:
    """Owns the producer states of one log. Everything down to `reload` needs the log's lock."""

    def __init__(self, parts: LogParts, holder: StateHolder, states: ProducerStates) -> None:
        self.states = states
        self._holder = holder
        self._fs = parts.fs
        self._directory = parts.directory
        self._steady_clock = parts.steady_clock

    def write_snapshot(self) -> str:
        """Save the states; return the path. Not durable."""
        return write_snapshot(self._fs, self._directory, self.states, sync=False)

    def remove_snapshot(self, offset: Offset) -> None:
        remove_snapshot(self._fs, self._directory, offset)

    def remove_all_snapshots(self) -> None:
        for offset in find_snapshots(self._fs, self._directory):
            self.remove_snapshot(offset)

    def remove_stray_snapshots(self, kept: Collection[Offset]) -> None:
        """Remove every snapshot but those at `kept`."""
        for offset in find_snapshots(self._fs, self._directory):
            if offset not in kept:
                self.remove_snapshot(offset)

    def mark_snapshot_deleted(self, offset: Offset) -> list[str]:
        """Rename the snapshot at `offset` for deletion; return its new path, if it exists."""
        path = snapshot_path(self._directory, offset)
        if not self._fs.exists(path):
            return []
        self._fs.rename(path, path + DELETED)
        return [path + DELETED]

    def reload(self) -> None:
        """Load the states again from snapshots and batches, after a truncation.

        They are replaced at the end: nobody sees states that are loaded half.
        """
        state = self._holder.state
        states = load_newest(
            self._fs,
            self._directory,
            find_snapshots(self._fs, self._directory),
            log_start=state.start,
            log_end=state.end,
            now_ms=self._steady_clock.now_ms(),
        )
        replay(states, state.segments, state.end)
        self.states = states

    def recall(self, batch: BatchFacts) -> bool:
        """Look in the log for batches before those that a snapshot kept. Needs the lock.

        A snapshot has the last batch of each producer. A client may send again the five batches
        before its last answer, also after a restart. False: there is nothing to look for.
        """
        before = self.states.forgotten_before(batch)
        if before is None or before <= self._holder.state.start:
            return False
        older = find_older(self._holder.state.segments, batch.producer_id, before=before)
        self.states.recall(batch.producer_id, older)
        return True

    @property
    def last_stable_offset(self) -> Offset:
        """First offset that an open transaction may still undo; the high watermark without one."""
        # Before the look at the transactions: one that began below it is known by then.
        high_watermark = self._holder.state.high_watermark
        if not self.states.has_undecided:
            return high_watermark
        with self._holder.lock:
            state = self._holder.state
            unstable = self.states.first_unstable_offset(state.high_watermark)
        if unstable is None:
            return state.high_watermark
        return Offset(max(min(unstable, state.high_watermark), state.start))

    def is_in_transaction(self, producer_id: ProducerId, epoch: int) -> bool:
        """Whether the producer has an open transaction here, which it began in this epoch."""
        with self._holder.lock:
            return self.states.is_in_transaction(producer_id, epoch)

    def await_sequence(self, producer_id: ProducerId, epoch: int, sequence: int) -> None:
        """A first batch asks the coordinator: see `ProducerStates.await_sequence`."""
        with self._holder.lock:
            self.states.await_sequence(producer_id, epoch, sequence)

    def guard(
        self, producer_id: ProducerId, epoch: int, *, bumps_epochs: bool
    ) -> VerificationGuard:
        """Before a coordinator elsewhere is asked: see `VerificationGuard`."""
        with self._holder.lock:
            return self.states.guard(producer_id, epoch, bumps_epochs=bumps_epochs)

    def open_transactions(self) -> list[ProducerSnapshotEntry]:
        """The producers that have an open transaction, in the order of their first offsets."""
        with self._holder.lock:
            return self.states.open_transactions()

    def listed(self) -> list[ProducerSnapshotEntry]:
        """All producers that the log remembers."""
        with self._holder.lock:
            return self.states.to_snapshot()

    def largest_id(self, *, below: int) -> ProducerId:
        """The largest remembered producer id below `below`; NO_PRODUCER_ID without any."""
        with self._holder.lock:
            return self.states.largest_producer_id(below=below)

    def expire(self, now_ms: TimestampMs) -> int:
        """Forget producers that have been silent for long; return how many."""
        with self._holder.lock:
            return self.states.expire(now_ms)
