"""Rolling: the active segment is frozen and a new one begins."""

import logging

from cordwood.errors import DiskFullError
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.state.log_parts import LogParts, segment_limits
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.roll_policy import (
    Incoming,
    RollFacts,
    draw_jitter_ms,
    due_for_timer_roll,
    has_room,
    roll_limits,
    roll_reason,
)
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS
from cordwood.storage.files import DirectoryHandle
from cordwood.storage.segment import Segment

logger = logging.getLogger(__name__)


class Rolling:
    """Decides when the active segment of one log is full, and replaces it."""

    def __init__(self, parts: LogParts, holder: StateHolder, producers: LogProducers) -> None:
        self._parts = parts
        self._holder = holder
        self._producers = producers
        self._set_jitter(draw_jitter_ms(parts.config, parts.random))
        self.is_sync_wanted = bool(holder.state.unsynced.segments)

    def _set_jitter(self, jitter_ms: int) -> None:
        config = self._holder.config
        self._jitter_ms = jitter_ms
        self._limits, self._limits_of = roll_limits(config, jitter_ms=jitter_ms), config

    def has_room_for(
        self,
        segment: Segment,
        size: int,
        max_timestamp: TimestampMs,
        next_offset: Offset,
        record_count: int,
    ) -> bool:
        """Whether the active `segment` certainly takes a batch; else ask `is_due_before`.

        Holds the lock.
        """
        if self._holder.config is not self._limits_of:
            self._set_jitter(self._jitter_ms)
        indexes = segment.indexes
        facts = indexes.facts
        return has_room(
            self._limits,
            facts.first_timestamp,
            max_timestamp,
            segment.extent.size + size,
            next_offset - segment.base_offset,
            facts.record_count + record_count,
            indexes.is_full,
        )

    def is_due_before(self, incoming: Incoming, now_ms: TimestampMs) -> bool:
        """Whether a new segment must begin before `incoming` is written. Holds the lock."""
        holder = self._holder
        reason = roll_reason(
            _roll_facts(holder.state.segments.active),
            incoming,
            holder.config,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
        )
        return reason is not None

    def roll_if_filled(self) -> bool:
        """Roll unless the active segment is empty. Takes the lock."""
        with self._holder.lock:
            self._holder.check_writable()
            if not self._holder.state.segments.active.size:
                return False
            self.roll(self._parts.clock.now_ms())
        return True

    def roll_if_due(self) -> bool:
        """Roll a segment that is old enough although nothing is appended. Takes the lock."""
        with self._holder.lock:
            if not self._holder.settled().is_writable:
                return False
            now_ms = self._parts.clock.now_ms()
            if not due_for_timer_roll(
                _roll_facts(self._holder.state.segments.active),
                self._holder.config,
                now_ms=now_ms,
                jitter_ms=self._jitter_ms,
            ):
                return False
            self.roll(now_ms)
        return True

    def roll(self, now_ms: TimestampMs) -> None:
        """Begin a new segment. Holds the lock.

        An interrupt waits until the new segment is the active one: its empty file must not be
        left behind, because the log would seem to end there.
        """
        state = self._holder.state
        if state.segments.active.base_offset == state.end:
            return
        try:
            self._begin_segment(now_ms)
        except OSError as error:
            self._parts.owner.health.note_failure(error)
            error.add_note(f"while starting a segment of {self._parts.name}")
            if error.errno in FULL_DISK_ERRNOS:
                raise DiskFullError(self._parts.name) from error
            raise
        except BaseException:
            self._holder.half_done = "a roll"
            insist(lambda: self._begin_segment(now_ms))
            raise
        self._save_producers()

    def _begin_segment(self, now_ms: TimestampMs) -> None:
        """The new files come first: if they cannot be created, nothing has changed."""
        state = self._holder.state
        old, end = state.segments.active, state.end
        if old.base_offset == end:
            self._holder.half_done = None
            return
        names = self.opened_names()
        old.writer.trim()  # before there is another: only the last file may have zeros at its end
        if len(state.segments) == 1 and state.durable <= old.base_offset:
            self._make_first_name_durable(names)
        new = self.new_segment(end, now_ms)
        old.freeze()
        self._set_jitter(draw_jitter_ms(self._holder.config, self._parts.random))
        self.is_sync_wanted = True
        unsynced = state.unsynced.plus(old)._replace(names=names)
        self._holder.commit(state._replace(segments=state.segments.plus(new), unsynced=unsynced))
        self._holder.half_done = None

    def _make_first_name_durable(self, names: DirectoryHandle) -> None:
        """If a power cut took the first file of a log and left the second, it would begin there."""
        try:
            names.sync()
        except OSError as error:  # the disk says so once; the next sync may succeed without effect
            self._holder.fail_locked(f"a sync failed: {error}")
            raise

    def _save_producers(self) -> None:
        """Write a snapshot of the producers where the active segment begins. Holds the lock.

        Derived: without it a restart replays a little more.
        """
        state = self._holder.state
        old, end = state.segments[len(state.segments) - 2], state.end
        self._producers.states.advance_to(end)
        try:
            # In this order: readers in other processes rely on it that the indexes hold every
            # transaction that was aborted before a snapshot.
            old.indexes.transaction.flush()
            snapshot = self._producers.write_snapshot()
        except OSError as error:
            logger.warning("%s: no producer snapshot at %d: %s", self._parts.name, end, error)
            return
        unsynced = state.unsynced._replace(snapshots=(*state.unsynced.snapshots, snapshot))
        self._holder.commit(state._replace(unsynced=unsynced))

    def opened_names(self) -> DirectoryHandle:
        """The directory, opened before its names change: see `UnsyncedFiles`."""
        opened = self._holder.state.unsynced.names
        return opened or self._parts.fs.open_directory(self._parts.directory)

    def new_segment(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        return Segment.create(
            self._parts.fs,
            self._parts.directory,
            base_offset,
            handles=self._parts.handles,
            limits=segment_limits(self._holder.config, allows_gaps=self._holder.allows_gaps),
            now_ms=now_ms,
        )


def _roll_facts(segment: Segment) -> RollFacts:
    facts = segment.indexes.facts
    return RollFacts(
        base_offset=segment.base_offset,
        size=segment.size,
        record_count=facts.record_count,
        first_batch_timestamp=facts.first_batch_timestamp,
        created_ms=segment.created_ms,
        is_index_full=segment.indexes.is_full,
    )
