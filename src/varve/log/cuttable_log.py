"""Taking away from a log: its end, by truncation, or its beginning, by deletion.

What vouches for the offsets that go is taken back first (recovery point, durable mark), then
the bytes: a crash in between leaves a longer log, never one that claims what it lost.
"""

import logging

from varve.errors import OffsetOutOfRangeError
from varve.format.file_names import DELETED
from varve.log.durable_log import DurableLog, segment_limits
from varve.log.log_reader import LogView
from varve.log.producer_snapshots import load_newest, remove_snapshot, replay, snapshot_path
from varve.log.segment_list import SegmentList
from varve.quantities import Offset
from varve.storage.checkpoint_file import write_epoch_checkpoint
from varve.storage.recovery import find_files, walk_segment
from varve.storage.segment import Segment

logger = logging.getLogger(__name__)


class CuttableLog(DurableLog):
    """A log that can be cut at both ends."""

    def truncate_to(self, offset: int) -> None:
        """Throw away everything from `offset` on; the batch that holds it goes whole.

        When that batch reaches below the start, nothing readable is left and the log goes on,
        empty, at its start.
        """
        with self._sync_lock, self._lock:
            self._check_writable()
            start = self._view.start
            if offset < start:
                raise OffsetOutOfRangeError(Offset(offset), start=start, end=self._end)
            cut = self._boundary_at(Offset(offset))
            if cut < start:
                self._empty(start)
            else:
                if cut < self._end:
                    self._lower_marks(cut)
                if self._epochs.truncate_from_end(cut):
                    write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
                if cut < self._end:
                    self._cut(cut)
                    self._reload_producers()
        self._owner.save_recovery_points()

    def _boundary_at(self, offset: Offset) -> Offset:
        """`offset`, or where the batch that holds it starts."""
        if offset >= self._end:
            return offset
        segments = self._view.segments
        segment = segments[max(segments.floor(offset), 0)]
        reader = segment.reader()
        if reader.locate(offset, segment.hint(offset)) is None:
            return offset
        return min(offset, reader.next_offset)

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
        reader = segment.reader()
        position = reader.locate(offset, segment.hint(offset))
        if position is not None:
            segment.truncate_to(position, min(offset, reader.next_offset))
            self._rewalk(segment)
        segment.sync_log()
        self._fs.sync_directory(self.directory)
        self._end = segment.next_offset
        self._durable = min(self._durable, self._end)
        self._view = LogView(
            segments=segments.before(index).plus(segment),
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
        with self._sync_lock, self._lock:
            self._check_writable()
            self._empty(Offset(offset))
        self._owner.save_log_starts()
        self._owner.save_recovery_points()

    def _empty(self, offset: Offset) -> None:
        """Holds both locks. No segments but a new one at `offset`."""
        old = self._view.segments
        self._recovery_point = self._durable = Offset(0)
        self._marks.publish(high_watermark=offset, log_start=offset, durable=Offset(0))
        self._marks.sync()
        self._owner.save_recovery_points()
        for segment in old:
            self._owner.delete_later(segment.mark_deleted(), 0)
            remove_snapshot(self._fs, self.directory, segment.base_offset)
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

    def delete_before(self, offset: int) -> Offset:
        """Make offsets below `offset` unreadable and remove segments that hold nothing else.

        Returns the new start. Durable on return: what was deleted does not come back.
        """
        with self._sync_lock:
            with self._lock:
                self._check_writable()
                view = self._view
                if not 0 <= offset <= view.high_watermark:
                    raise OffsetOutOfRangeError(
                        Offset(offset), start=view.start, end=view.high_watermark
                    )
                if offset <= view.start:
                    return view.start
                self._replace_view(start=Offset(offset))
                self._marks.publish(log_start=Offset(offset))
                if self._epochs.truncate_from_start(Offset(offset)):
                    write_epoch_checkpoint(self._fs, self.directory, self._epochs.entries)
            self._owner.save_log_starts()
            self.drop_deleted_segments()
        return self._view.start

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
