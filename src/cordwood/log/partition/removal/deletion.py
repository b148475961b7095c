"""Deletion: taking away the beginning of a log.

The new start is durable before a file is removed: what was deleted does not come back.
"""

from cordwood.errors import OffsetOutOfRangeError
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.view.log_archive import LogArchive
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS


class Deletion:
    """Removes the oldest records of one log."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        producers: LogProducers,
        epochs: LogEpochs,
        archive: LogArchive,
        syncing: LogSync,
    ) -> None:
        self._parts = parts
        self._holder = holder
        self._producers = producers
        self._epochs = epochs
        self._archive = archive
        self._syncing = syncing
        self.is_start_unsaved = False  # it moved in memory, and saving it failed

    def delete_before(self, offset: int, *, led_in: LeaderEpoch | None = None) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return. The archive, if there is one, forgets them first.
        With `led_in` it raises `NotLeaderError` unless this replica leads in that epoch.
        """
        if led_in is not None:
            with self._holder.lock:
                self._holder.check_led_in(led_in)
        self._archive.forget_before(Offset(offset))
        self.drop_local_before(offset, led_in=led_in)
        return self._archive.view().start

    def drop_local_before(
        self,
        offset: int,
        *,
        following: LeaderEpoch | None = None,
        led_in: LeaderEpoch | None = None,
    ) -> Offset:
        """As `delete_before`, of the log's own directory alone; returns the new local start.

        A follower of the leader of epoch `following` may drop up to its end: the leader has
        committed and deleted everything before `offset`. The high watermark moves with the start,
        so what lies before it, which the leader may never have had, is not read by anybody.
        """
        holder = self._holder
        with holder.sync_lock:
            if self._syncing.is_new:
                self._settle()
            with holder.lock:
                holder.check_writable()
                state = holder.state
                limit = state.high_watermark
                if led_in is not None:
                    holder.check_led_in(led_in)
                if following is not None:
                    holder.check_follows_in(following)
                    limit = state.end
                if not 0 <= offset <= limit:
                    raise OffsetOutOfRangeError(Offset(offset), start=state.start, end=limit)
                if offset <= state.start and not self.is_start_unsaved:
                    return state.start
                self.is_start_unsaved = True
                if offset > state.start:
                    reached = max(state.high_watermark, Offset(offset))
                    holder.commit(state._replace(start=Offset(offset), high_watermark=reached))
                self._save_start()
            self._drop_segments()
        return holder.state.start

    def _settle(self) -> None:
        """Settle a log that was never synced: until then its checkpointed start is not believed.

        On a full disk the deletion goes on, because it makes room.
        """
        if not self._holder.state.is_writable:
            return
        try:
            self._syncing.settle()
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise

    def _save_start(self) -> None:
        """Make the start durable. On a full disk the mapped mark does, which needs no room."""
        try:
            self._epochs.truncate_from_start(self._holder.state.start)
            self._parts.owner.save_log_starts()
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            self._holder.sync_marks()
        self.is_start_unsaved = False

    def drop_deleted_segments(self) -> None:
        """Remove segments that lie wholly below the start. Takes both locks."""
        with self._holder.sync_lock:
            self._drop_segments()

    def _drop_segments(self) -> None:
        parts, holder = self._parts, self._holder
        with holder.lock:
            state = holder.state
            segments = state.segments
            count = 0
            while count + 1 < len(segments) and segments[count + 1].base_offset <= state.start:
                count += 1
            if not count:
                return
            gone = list(segments)[:count]
            holder.commit(
                state._replace(
                    segments=segments.behind(count), unsynced=state.unsynced.without(gone)
                )
            )
            self._producers.states.move_log_start(state.start)
            for segment in gone:
                paths = segment.handles.mark_deleted()
                paths += self._producers.mark_snapshot_deleted(segment.base_offset)
                parts.owner.delete_later(paths, holder.config.file_delete_delay_ms)
            # Until the new names are durable, only the checkpoint says that they are deleted.
            parts.fs.sync_directory(parts.directory)
