"""Taking away from a log: its end, by truncation, or its beginning, by deletion.

What vouches for the offsets that go is taken back first (recovery point, durable mark), then
the bytes: a crash in between leaves a longer log, never one that claims what it lost.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.errors import CorruptSegmentError, DiskFullError, OffsetOutOfRangeError
from cordwood.format.file_names import DELETED
from cordwood.log.partition.durable_log import FULL_DISK_ERRNOS, DurableLog, segment_limits
from cordwood.log.partition.producer_snapshots import (
    load_newest,
    remove_snapshot,
    replay,
    snapshot_path,
)
from cordwood.log.partition.upkeep_outlook import plan_retention_of
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.retention import RetentionPlan, Verdict
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.checkpoint_file import write_epoch_checkpoint
from cordwood.storage.file_copy import unshare
from cordwood.storage.recovery import find_files, walk_segment
from cordwood.storage.segment import Segment

logger = logging.getLogger(__name__)


class CuttableLog(DurableLog):
    """A log that can be cut at both ends."""

    _is_start_unsaved = False  # it moved in memory, and writing that down failed

    def truncate_to(self, offset: int) -> None:
        """Throw away everything from `offset` on; the batch that holds it goes whole.

        When that batch reaches below the start, nothing readable is left and the log goes on,
        empty, at its start. Below the local start there is nothing to cut: the archive's
        segments stay as they are.
        """
        self._cut_archive(Offset(offset))
        self._truncate_local(Offset(offset))

    def _truncate_local(self, offset: Offset) -> None:
        with self._sync_lock, self._lock:
            self._check_writable()
            start = self._view.start
            if offset < start:
                raise OffsetOutOfRangeError(offset, start=start, end=self._end)
            cut = self._boundary_at(offset)
            with self._cutting():
                if cut < start:
                    self._empty(start)
                else:
                    self._truncate_at(cut)
        self._owner.save_recovery_points()

    @contextmanager
    def _cutting(self) -> Iterator[None]:
        """Files and what is known of them change together, or the log stops until reopened."""
        try:
            yield
        except OSError as error:
            self._fail(f"a truncation failed half-way: {error}")
            raise

    def _truncate_at(self, cut: Offset) -> None:
        if cut < self._end:
            self._note_cut(cut)
            self._lower_marks(cut)
        if self._epochs.truncate_from_end(cut):
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
        if cut < self._end:
            self._cut(cut)
            self._reload_producers()

    def _boundary_at(self, offset: Offset) -> Offset:
        """`offset`, or where the batch that holds it starts."""
        if offset >= self._end:
            return offset
        segments = self._view.segments
        segment = segments[max(segments.floor(offset), 0)]
        position, start = _place_of(segment, offset)
        return offset if position is None else min(offset, start)

    def _lower_marks(self, offset: Offset) -> None:
        point = min(self._recovery_point, self._view.segments.active.base_offset, offset)
        index = self._view.segments.floor(Offset(point))
        self._recovery_point = min(point, self._view.segments[max(index, 0)].base_offset)
        self._durable = min(self._durable, offset)
        high_watermark = min(self._view.high_watermark, offset)
        self._view = LogView(
            segments=self._view.segments, start=self._view.start, high_watermark=high_watermark
        )
        self._marks.publish(high_watermark=high_watermark, durable=self._durable)
        self._marks.sync()
        self._owner.save_recovery_points()

    def _cut(self, offset: Offset) -> None:
        """Holds the lock. Later segments go first, then the tail of the one that holds `offset`."""
        segments = self._view.segments
        index = max(segments.floor(offset), 0)
        for segment in list(segments)[index + 1 :]:
            self._unsealed = [s for s in self._unsealed if s is not segment]
            self._owner.delete_later(segment.mark_deleted(), 0)
            remove_snapshot(self._fs, self.directory, segment.base_offset)
        segment = segments[index]
        if not segment.is_active:
            segment = self._reopen(segment)
        position, start = _place_of(segment, offset)
        end = segment.next_offset
        if position is not None:
            end = min(offset, start)
            segment.truncate_to(position, end)
            self._rewalk(segment)
        kept = segments.before(index).plus(segment)
        if segment.next_offset < end:
            # Damage reaches up to the cut. Its offsets were given once and are not given again.
            segment.freeze()
            self._unsealed.append(segment)
            kept = kept.plus(self._new_segment(end, self._clock.now_ms()))
        segment.sync_log()
        self._fs.sync_directory(self.directory)
        self._end = end
        self._durable = min(self._durable, self._end)
        self._view = LogView(
            segments=kept,
            start=self._view.start,
            high_watermark=Offset(min(self._view.high_watermark, self._end)),
        )
        self._marks.publish(high_watermark=self._view.high_watermark, durable=self._durable)

    def _reopen(self, segment: Segment) -> Segment:
        """A sealed segment becomes the active one again."""
        again = Segment.open_sealed(
            self._fs,
            self.directory,
            segment.base_offset,
            size=segment.size,
            next_offset=segment.next_offset,
            handles=self._handles,
            limits=segment_limits(self._config, allows_gaps=self.allows_gaps),
            is_last=True,
        )
        if segment in self._unsealed:
            segment.seal()
            self._unsealed.remove(segment)
        unshare(self._fs, again.name)  # a copy of the store may have the same file
        again.activate(now_ms=self._clock.now_ms())
        self._rewalk(again)
        return again

    def _rewalk(self, segment: Segment) -> None:
        walk_segment(segment, segment.next_offset, lambda _decoder, _first, _stop: None)

    def _reload_producers(self) -> None:
        snapshots = find_files(self._fs, self.directory).snapshots
        self._producers = load_newest(
            self._fs,
            self.directory,
            snapshots,
            log_start=self._view.start,
            log_end=self._end,
            now_ms=self._clock.now_ms(),
        )
        replay(self._producers, self._view.segments, self._end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Throw everything away; the log goes on, empty, at `offset`."""
        if self._archive is not None:
            self._archive.source.keep(Offset(offset), Offset(offset))
        with self._sync_lock, self._lock:
            self._check_writable()
            with self._cutting():
                self._empty(Offset(offset))
        self._owner.save_log_starts()
        self._owner.save_recovery_points()

    def _empty(self, offset: Offset) -> None:
        """Holds both locks. No segments but a new one at `offset`."""
        self._note_cut(offset)
        old = self._view.segments
        self._recovery_point = self._durable = Offset(0)
        self._marks.publish(high_watermark=offset, log_start=offset, durable=Offset(0))
        self._marks.sync()
        self._owner.save_recovery_points()
        for segment in old:
            self._owner.delete_later(segment.mark_deleted(), 0)
        for snapshot in find_files(self._fs, self.directory).snapshots:
            remove_snapshot(self._fs, self.directory, snapshot)
        self._unsealed = []
        new = self._new_segment(offset, self._clock.now_ms())
        self._fs.sync_directory(self.directory)
        self._end = self._durable = self._recovery_point = offset
        self._view = LogView(segments=SegmentList([new]), start=offset, high_watermark=offset)
        self._producers.reset(offset)
        self._epochs.clear()
        write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
        self._marks.publish(durable=offset)

    def _take_back(self, offset: Offset) -> None:
        """Undo the batches of an append that failed half-way; none of them was seen.

        Holds `_lock` alone, so the flusher may be busy with a segment that was rolled meanwhile:
        such a segment is cut but stays sealed, and a new one goes on behind it.
        """
        try:
            self._uncut(offset)
            self._producers.retreat_to(offset)
        except OSError as error:
            self._fail(f"an append failed half-way and could not be undone: {error}")

    def _uncut(self, offset: Offset) -> None:
        segments = self._view.segments
        index = max(segments.floor(offset), 0)
        if index == len(segments) - 1:
            self._cut(offset)
            return
        kept = index if segments[index].base_offset == offset else index + 1
        for segment in list(segments)[kept:]:
            self._unsealed = [other for other in self._unsealed if other is not segment]
            self._owner.delete_later(segment.mark_deleted(), 0)
            remove_snapshot(self._fs, self.directory, segment.base_offset)
        if kept > index:
            cut = segments[index]
            cut.cut_frozen(offset)
            if cut not in self._unsealed:
                self._unsealed.append(cut)
        new = self._new_segment(offset, self._clock.now_ms())
        self._end = offset
        self._is_directory_dirty = True
        self._replace_view(segments=segments.before(kept).plus(new))

    def _cut_archive(self, offset: Offset) -> None:
        """Before offsets from `offset` on are given again, the archive must have forgotten them."""
        if self._archive is None:
            return
        state = self._archive.source.state()
        if self._view.start <= offset < state.end:
            self._archive.source.keep(state.start, self._boundary_at(offset))

    def delete_before(self, offset: int) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return: what was deleted does not come back. The
        archive, where there is one, forgets them first.
        """
        if self._archive is not None:
            state, view = self._archive.source.state(), self.view()
            if state.segments and state.start < offset <= view.high_watermark:
                self._archive.source.keep(Offset(offset), state.end)
        self.drop_local_before(offset)
        return self.view().start

    def drop_local_before(self, offset: int) -> Offset:
        """As `delete_before`, of the log's own directory alone; returns the new local start."""
        with self._sync_lock:
            with self._lock:
                self._check_writable()
                view = self._view
                if not 0 <= offset <= view.high_watermark:
                    raise OffsetOutOfRangeError(
                        Offset(offset), start=view.start, end=view.high_watermark
                    )
                if offset <= view.start and not self._is_start_unsaved:
                    return view.start
                self._is_start_unsaved = True
                if offset > view.start:
                    self._replace_view(start=Offset(offset))
                    self._marks.publish(log_start=Offset(offset))
                self._write_down_start()
            self.drop_deleted_segments()
        return self._view.start

    def _write_down_start(self) -> None:
        """Make the start durable. The mapped mark needs no room: it does so on a full disk too."""
        try:
            self._epochs.truncate_from_start(self._view.start)
            write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            self._owner.save_log_starts()
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            self._marks.sync()
        self._is_start_unsaved = False

    def drop_deleted_segments(self) -> int:
        """Remove segments that lie wholly below the start; return their bytes."""
        with self._lock:
            segments, start = self._view.segments, self._view.start
            count = 0
            while count + 1 < len(segments) and segments[count + 1].base_offset <= start:
                count += 1
            if not count:
                return 0
            gone = list(segments)[:count]
            self._unsealed = [s for s in self._unsealed if s not in gone]
            self._replace_view(segments=segments.behind(count))
            self._producers.move_log_start(start)
            for segment in gone:
                paths = segment.mark_deleted()
                snapshot = snapshot_path(self.directory, segment.base_offset)
                if self._fs.exists(snapshot):
                    self._fs.rename(snapshot, snapshot + DELETED)
                    paths.append(snapshot + DELETED)
                self._owner.delete_later(paths, self._config.file_delete_delay_ms)
            # Until the names are gone for good, only the checkpoint keeps them deleted.
            self._fs.sync_directory(self.directory)
            return sum(segment.size for segment in gone)

    # --- retention ---------------------------------------------------------------------------

    def plan_retention(self, now_ms: TimestampMs) -> RetentionPlan:
        """What retention would do now, segment by segment, with its reasons. Changes nothing."""
        return plan_retention_of(
            self.view(),
            self._config,
            topic=self.topic,
            partition=self.partition,
            now_ms=now_ms,
            archived_up_to=self.archived_up_to,
            largest=lambda segment: segment.largest_timestamp[0],
        )

    def apply_retention(self, now_ms: TimestampMs) -> RetentionPlan:
        """Do what `plan_retention` says at `now_ms`; return the plan. Durable on return.

        Safe to repeat, and to interrupt anywhere: the start is on the disk before a file goes,
        and the next run, or the next start, removes what lies below it.
        """
        plan = self.plan_retention(now_ms)
        start = plan.start_offset
        if plan.must_roll and not self._roll_for_deletion(plan):
            start = plan.segments[-1].base_offset
        if start > self.view().start or self._is_start_unsaved:
            self.delete_before(start)
        if any(segment.verdict is Verdict.DROP_LOCAL for segment in plan.segments):
            self.drop_local_before(plan.local_start_offset)
        with self._sync_lock:
            self.drop_deleted_segments()
        return plan

    def _roll_for_deletion(self, plan: RetentionPlan) -> bool:
        """Seal the active segment that `plan` gives up; False when it must wait.

        It does when records came since the plan was made, and on a full disk, where the older
        segments have to go first.
        """
        with self._lock:
            self._check_writable()
            if self._end != plan.start_offset or self._view.high_watermark != self._end:
                return False
            try:
                self._roll(self._clock.now_ms())
            except DiskFullError:
                return False
        return True


def _place_of(segment: Segment, offset: Offset) -> tuple[FilePosition | None, Offset]:
    """Where the batch that holds `offset` starts, in bytes and in offsets; None past the end.

    A stretch that cannot be read is cut as a whole, like a batch.
    """
    reader = segment.reader()
    try:
        position = reader.locate(offset, segment.hint(offset))
    except CorruptSegmentError as error:
        return FilePosition(error.position), error.first_offset
    return position, reader.next_offset
