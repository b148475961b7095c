"""Syncing: how what was written becomes durable, and how recovery learns where to start.

A sync brings frozen segments to the disk first, then names, then the active segment. So when the
durable mark moves, everything below it can be found again.

Only records and the names of their files count for that: if their sync fails, the log fails.
Indexes, snapshots and checkpoints are derived. If they cannot be written, the log goes on and
tries again; the recovery point stays where it is until they are on the disk.
"""

import errno
import time
from functools import partial
from typing import Final

from cordwood.log.partition.derived_state.derived_files import DerivedFiles
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.derived_state.producer_snapshots import sync_snapshot
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.log_state import NOTHING_UNSYNCED, LogState, UnsyncedFiles
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.partition.writing.write_ahead import WriteAhead
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.quantities import Offset
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.recovery import rebuild_indexes
from cordwood.storage.segment import Segment

_PASSING_ERRNOS: Final = FULL_DISK_ERRNOS | {errno.EMFILE, errno.ENFILE}
_SETTLE_PAUSES_S: Final = (0.01, 0.05, 0.25)


class LogSync:
    """Syncs one log. Any thread may call it; one sync is under way at a time.

    After a sync that failed nobody knows what is on the disk, so the log stops acknowledging.
    """

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        producers: LogProducers,
        rolling: Rolling,
        epochs: LogEpochs,
    ) -> None:
        self._parts = parts
        self._holder = holder
        self._producers = producers
        self._rolling = rolling
        self._epochs = epochs
        self.is_new = parts.settle is not None  # not settled yet
        self._derived = DerivedFiles(parts.name, parts.owner.health.note_failure)
        self._clock = parts.clock
        self._role = parts.role
        self._sync_times = parts.sync_times
        self._last_sync_s = parts.clock.monotonic()
        self._is_in_doubt = False  # whether the last sync ended, well or not
        self._is_time_index_unsynced = False
        self._ahead = WriteAhead(parts, holder)
        self._is_tail_untrimmed = False
        self.began_s: float | None = None  # when the sync began that is under way

    # --- asking for a sync -------------------------------------------------------------------

    def request(self) -> None:
        """Have everything appended so far synced soon, by the flusher. Returns at once."""
        self._parts.flusher.request(self)

    def request_after_roll(self) -> None:
        """Have a segment that was rolled synced, off the append path."""
        if self._rolling.is_sync_wanted:
            self._rolling.is_sync_wanted = False
            self._parts.flusher.request(self)

    def flush_if_due(self) -> None:
        """Honour `flush.ms`. Called by the housekeeping."""
        state = self._holder.state
        age_ms = (self._clock.monotonic() - self._last_sync_s) * 1000
        if state.durable < state.end and age_ms >= self._holder.config.flush_ms:
            self._parts.flusher.request(self)

    def trim_if_idle(self) -> None:
        """Cut off zeros that nobody needs. Called by the housekeeping."""
        active = self._holder.state.segments.active
        if active.writer.zeros.end <= active.size:
            return
        hold = LockHold(self._holder.sync_lock)
        try:
            if not hold.take(timeout_s=0):
                return  # it is not idle
            with self._holder.lock:
                state = self._holder.settled()
                if state.is_writable and state.durable == state.end:
                    since_sync_s = self._clock.monotonic() - self._last_sync_s
                    self._ahead.trim_if_idle(state, since_sync_s=since_sync_s)
        finally:
            insist(hold.release)

    def sync_pending(self) -> None:
        """Sync what was appended so far. Called by the flusher; never raises."""
        if self._holder.state.held_from is not None:
            return  # the publication syncs everything, and other logs need not wait for that
        with self._holder.sync_lock:
            self.run()

    # --- syncing -----------------------------------------------------------------------------

    def run(self) -> None:
        """Sync now; a failure stops the log. Holds the sync lock."""
        try:
            self._run()
        except OSError as error:
            self._parts.owner.health.note_failure(error)
            self._holder.fail(f"a sync failed: {error}")

    def _run(self) -> None:
        with self._holder.lock:
            state = self._holder.settled()
            if not state.is_writable:
                return
            began_s = self._clock.monotonic()
            self._ahead.before_sync(state, began_s)
        self.began_s = began_s
        try:
            unwritten = self._sync_files(state)
        finally:
            self.began_s = None
        with self._holder.lock:
            self._note_synced(state, began_s, unwritten)

    def _sync_files(self, state: LogState) -> UnsyncedFiles:
        """Bring the files to the disk; return the derived ones that could not be written."""
        if self._is_in_doubt:
            # An interrupt may have hidden that the last sync failed, and the disk says so once.
            for segment in (*state.unsynced.segments, state.segments.active):
                segment.distrusted.add_from(max(state.durable, segment.base_offset))
        self._is_in_doubt = True
        if self.is_new:
            self._settle_patiently()
        if state.unsynced != NOTHING_UNSYNCED:
            for segment in state.unsynced.segments:
                segment.sync_log()
            if state.unsynced.names is not None:
                state.unsynced.names.sync()
        state.segments.active.sync_log()
        self._is_in_doubt = False
        if state.unsynced == NOTHING_UNSYNCED:
            return NOTHING_UNSYNCED
        return self._write_derived(state.unsynced)

    def settle(self) -> None:
        """Make the small files and the directory of a new log durable. Holds the sync lock.

        Until then a power cut may take the whole log, which has acknowledged nothing. From then
        on its absence is a loss.
        """
        if not self.is_new or self._parts.settle is None:
            return
        try:
            self._epochs.sync()
            self._holder.sync_marks()
            self._parts.fs.sync_directory(self._parts.directory)
            self._parts.settle()
        except OSError as error:
            self._parts.owner.health.note_failure(error)
            raise
        self.is_new = False

    def _settle_patiently(self) -> None:
        """Settle a log that has records already; a moment without descriptors is no failure."""
        for pause_s in _SETTLE_PAUSES_S:
            try:
                return self.settle()
            except OSError as error:
                if error.errno not in _PASSING_ERRNOS:
                    raise
            time.sleep(pause_s)
        self.settle()

    def _write_derived(self, unsynced: UnsyncedFiles) -> UnsyncedFiles:
        """Seal indexes and sync snapshots; return those that could not be written."""

        def seal(segment: Segment) -> None:
            segment.seal_indexes()
            if segment.indexes.needs_rebuilding:
                rebuild_indexes(segment)

        fs, write = self._parts.fs, self._derived.write
        return UnsyncedFiles(
            tuple(s for s in unsynced.segments if not write("indexes", partial(seal, s))),
            tuple(
                path
                for path in unsynced.snapshots
                if not write("producer snapshots", partial(sync_snapshot, fs, path))
            ),
        )

    def _note_synced(
        self, synced: LogState, began_s: float, unwritten: UnsyncedFiles = NOTHING_UNSYNCED
    ) -> None:
        """The records in `synced` are on the disk, its derived files except `unwritten` too.

        Holds the lock.
        """
        holder, now_s = self._holder, self._clock.monotonic()
        state = holder.state
        end, unsynced = state.end, state.unsynced
        durable = min(synced.end, end)
        self._last_sync_s = now_s
        self._sync_times.observe(now_s - began_s)
        if unsynced != NOTHING_UNSYNCED:
            unsynced = unsynced.after_sync_of(synced.unsynced, unwritten=unwritten)
        holder.end_sync(
            self._role.high_watermark(state, holder.config, end=end, durable=durable),
            durable,
            unsynced,
        )

    def begin(self) -> "SyncUnderWay | None":
        """Begin a sync and leave the waiting to the caller: see `SyncUnderWay`.

        None when more than one file must be synced, or another sync is under way: then `request`
        is the way.
        """
        holder = self._holder
        hold = LockHold(holder.sync_lock)
        try:
            if not hold.take(timeout_s=0):
                return None
            with holder.lock:
                state = holder.settled()
                is_plain = (
                    not self.is_new
                    and state.unsynced == NOTHING_UNSYNCED
                    and holder.is_free
                    and not self._is_in_doubt
                )
                if is_plain:
                    began_s = self._clock.monotonic()
                    self._ahead.before_sync(state, began_s)
            if is_plain:
                sync = SyncUnderWay(self, state, began_s)
                self.began_s = began_s
                return sync
        except BaseException:
            insist(hold.release)
            raise
        hold.release()
        return None

    def finish(self, synced: LogState, began_s: float, error: OSError | None) -> None:
        """End what `begin` began. Called by `SyncUnderWay`; releases the sync lock."""
        self.began_s = None
        if error is not None:
            self._parts.owner.health.note_failure(error)
        holder = self._holder
        try:
            with holder.lock:
                state = holder.state
                if error is not None and state.failure is None:
                    holder.fail_locked(f"a sync failed: {error}")
                elif error is None and state.is_writable:
                    self._note_synced(synced, began_s)
                else:
                    holder.end_sync(state.high_watermark, state.durable, state.unsynced)
        finally:
            holder.sync_lock.release()

    # --- checkpoints -------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Move the recovery point up to what is durable; True when that is news.

        Indexes and producer states are synced with it, because recovery starts there. It stops
        before the first segment without them: one that was rolled during this call, or whose
        indexes cannot be written. The next checkpoint tries again.
        """
        with self._holder.sync_lock:
            before = self._holder.state
            if not before.is_writable or self.is_complete:
                return False
            self.run()
            state = self._holder.state
            if not state.is_writable or (state.unsynced.snapshots and not state.unsynced.segments):
                return False
            if not self._derived.write("the files of a checkpoint", self._checkpoint):
                return False
            return self._holder.state.recovery_point > before.recovery_point

    def _checkpoint(self) -> None:
        with self._holder.lock:
            state = self._holder.state
            if state.unsynced.segments:
                point = min(state.unsynced.segments[0].base_offset, state.durable)
                if point > state.recovery_point:
                    self._holder.commit(state._replace(recovery_point=point))
                return
            states = self._producers.states
            earlier = states.last_snapshot_offset
            snapshot = None
            if states.map_end_offset == state.durable and states.needs_snapshot:
                snapshot = self._producers.write_snapshot()
        try:
            state.segments.active.indexes.sync()
            if snapshot is not None:
                sync_snapshot(self._parts.fs, snapshot)
                bases = [segment.base_offset for segment in self._holder.state.segments]
                self._producers.remove_stray_snapshots({state.durable, *bases})
            self._parts.fs.sync_directory(self._parts.directory)
        except BaseException:
            states.last_snapshot_offset = earlier  # the next checkpoint writes it again
            raise
        with self._holder.lock:
            self._holder.commit(self._holder.state._replace(recovery_point=state.durable))

    def complete_time_index(self) -> None:
        """Name the largest timestamp: Kafka trusts that after a clean start. Holds both locks."""
        state = self._holder.settled()
        active = state.segments.active
        if state.failure is None and active.complete_time_index():
            self._is_time_index_unsynced = not self._derived.write("indexes", active.indexes.sync)

    def trim(self) -> None:
        """Let the last file end with its last batch, as Kafka expects. Holds both locks."""
        active = self._holder.settled().segments.active
        if self._holder.state.failure is None and active.writer.zeros.end > active.size:

            def trim() -> None:
                active.writer.trim()
                active.sync_log()

            self._is_tail_untrimmed = not self._derived.write("the end of the log file", trim)

    @property
    def is_complete(self) -> bool:
        """Whether records and derived files are on the disk, so that a restart re-reads nothing."""
        state = self._holder.state
        return (
            state.failure is None
            and state.recovery_point == state.durable == state.end
            and state.unsynced == NOTHING_UNSYNCED
            and not self._is_time_index_unsynced
            and not self._is_tail_untrimmed
            and not self._producers.states.needs_snapshot
            and not (self.is_new and state.end > 0)
        )

    def sync_marks(self) -> bool:
        """Make the published marks durable; True when that was needed. By the housekeeping.

        After a power cut they tell what was promised. The younger they are, the less has to be
        taken on trust.
        """
        if not self._holder.has_unsynced_marks:
            return False
        self._holder.sync_marks()
        return True


class SyncUnderWay:
    """A sync in three steps, so that only the waiting is done elsewhere.

    The caller of `LogSync.begin` lets any thread call `wait`, or lets the kernel sync
    `descriptor`, and then always calls `finish`: until then nobody else can sync the log.

    descriptor   what the kernel may sync by itself; None: `wait` is needed
    """

    __slots__ = ("_began_s", "_state", "_sync", "descriptor")

    def __init__(self, sync: LogSync, state: LogState, began_s: float) -> None:
        self._sync = sync
        self._state = state
        self._began_s = began_s
        self.descriptor = state.segments.active.sync_descriptor

    @property
    def end(self) -> Offset:
        """Records below it are durable when the sync is done."""
        return self._state.end

    def wait(self) -> OSError | None:
        """Wait for the disk; return what went wrong."""
        try:
            self._state.segments.active.sync_log()
        except OSError as error:
            return error
        return None

    def finish(self, error: OSError | None) -> None:
        """Move the durable mark, unless the sync failed, and let others sync."""
        self._sync.finish(self._state, self._began_s, error)
