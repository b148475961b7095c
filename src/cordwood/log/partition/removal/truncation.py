"""Truncation: taking away the end of a log, or all of it.

What vouches for the removed offsets is taken back first (recovery point, durable mark, high
watermark), then the bytes: a crash in between leaves a longer log, never one that claims what it
lost.
"""

from contextlib import suppress
from typing import Final

from cordwood.errors import CorruptSegmentError, OffsetOutOfRangeError
from cordwood.log.partition.derived_state.log_epochs import LogEpochs
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.state.log_parts import LogParts, segment_limits
from cordwood.log.partition.state.log_state import NOTHING_UNSYNCED, LogState
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.view.log_archive import LogArchive
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import FilePosition, LeaderEpoch, Offset
from cordwood.storage.recovery import walk_segment
from cordwood.storage.replacement.file_copy import unshare
from cordwood.storage.segment import Segment

_TRUNCATION: Final = "a truncation"


class Truncation:
    """Cuts off the end of one log."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        rolling: Rolling,
        producers: LogProducers,
        epochs: LogEpochs,
        archive: LogArchive,
    ) -> None:
        self._parts = parts
        self._holder = holder
        self._rolling = rolling
        self._producers = producers
        self._epochs = epochs
        self._archive = archive

    # --- by request --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on; a batch that holds it is removed whole.

        If that batch begins below the start, nothing readable is left and the log continues,
        empty, at its start. Below the local start nothing can be cut: archived segments stay.
        """
        self._holder.check_sole("truncate")
        cut = Offset(offset)
        start = self._holder.state.start
        if start <= cut and self._archive.holds(cut):
            self._archive.forget_from(self._boundary_at(cut))
        self.truncate_local_to(cut)

    def truncate_local_to(self, offset: Offset, *, following: LeaderEpoch | None = None) -> None:
        """As `truncate_to`, of the log's own directory alone.

        With `following`, only while the log follows the leader of that epoch.
        """
        holder = self._holder
        with holder.sync_lock, holder.lock:
            holder.check_writable()
            if following is not None:
                holder.check_follows_in(following)
            state = holder.state
            if offset < state.start:
                raise OffsetOutOfRangeError(offset, start=state.start, end=state.end)
            cut = self._boundary_at(offset)
            with holder.changing(_TRUNCATION):
                if cut < state.start:
                    self._empty(state.start)
                elif cut < state.segments.first_offset:
                    self._empty(cut)  # the files before the first one are missing
                else:
                    self._truncate_at(cut)
        self._parts.owner.save_recovery_points()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log continues, empty, at `offset`."""
        self._holder.check_sole("empty")
        self._archive.empty_at(Offset(offset))
        self.restart_local_at(Offset(offset))

    def restart_local_at(self, offset: Offset, *, following: LeaderEpoch | None = None) -> None:
        """As `truncate_fully_and_start_at`, of the log's own directory alone.

        With `following`, only while the log follows the leader of that epoch.
        """
        holder = self._holder
        with holder.sync_lock, holder.lock:
            holder.check_writable()
            if following is not None:
                holder.check_follows_in(following)
            with holder.changing(_TRUNCATION):
                self._empty(offset)
        self._parts.owner.save_log_starts()
        self._parts.owner.save_recovery_points()

    # --- by an append that failed ------------------------------------------------------------

    def take_back(self, offset: Offset) -> None:
        """Remove batches from `offset` on that nobody has seen: their append failed half-way.

        Holds the lock alone, so a sync may be busy with a segment that was rolled meanwhile. Such
        a segment is cut but stays frozen, and a new one begins behind it.
        """
        with suppress(OSError), self._holder.changing("undoing an append"):
            segments = self._holder.state.segments
            if max(segments.floor(offset), 0) == len(segments) - 1:
                self._cut(offset)
            else:
                self._cut_frozen(offset)
            self._producers.states.retreat_to(offset)

    def undo_to(self, offset: Offset) -> None:
        """Remove the batches of a publication, durably. Holds both locks; raises `OSError`."""
        with self._holder.changing(_TRUNCATION):
            self._truncate_at(offset)

    # --- how ---------------------------------------------------------------------------------

    def _truncate_at(self, cut: Offset) -> None:
        is_cut = cut < self._holder.state.end
        if is_cut:
            self._commit_lowered(cut, self._holder.state.lowered_to(cut))
            self._holder.sync_marks()
            self._parts.owner.save_recovery_points()
        self._epochs.truncate_from_end(cut)
        if is_cut:
            self._cut(cut)
            self._producers.reload()
            self._epochs.continue_at(cut)

    def _commit_lowered(self, cut: Offset, lowered: LogState) -> None:
        """Stop vouching for what is about to be removed: everything from `cut` on."""
        manifest = self._holder.manifest
        if manifest is not None and cut < manifest.end:
            self._holder.write_manifest(manifest.cut_at(cut))
        cleaned_before = self._holder.state.cleaned_up_to
        self._holder.commit(lowered)
        if lowered.cleaned_up_to != cleaned_before:
            self._parts.owner.save_cleaned()

    def _boundary_at(self, offset: Offset) -> Offset:
        """`offset`, or where the batch that holds it begins."""
        state = self._holder.state
        if offset >= state.end:
            return offset
        segment = state.segments[max(state.segments.floor(offset), 0)]
        position, start = _place_of(segment, offset)
        return offset if position is None else min(offset, start)

    def _cut(self, offset: Offset) -> None:
        """Remove later segments first, then the tail of the one that holds `offset`."""
        parts, state = self._parts, self._holder.state
        segments, unsynced = state.segments, state.unsynced
        index = max(segments.floor(offset), 0)
        self._remove(list(segments)[index + 1 :])
        unsynced = unsynced.without(list(segments)[index + 1 :])
        segment = segments[index]
        if not segment.is_active:
            if segment in unsynced.segments:
                segment.seal()
                unsynced = unsynced.without([segment])
            segment = self._reopen(segment)
        position, start = _place_of(segment, offset)
        end = max(offset, segment.next_offset)
        if position is not None:
            end = min(offset, start)
            segment.writer.truncate_to(position, end)
            _rewalk(segment)
        kept = segments.before(index).plus(segment)
        if segment.next_offset < end:
            # Damage, or a gap that compaction made, reaches up to the cut. These offsets were
            # given once and are not given again.
            segment.writer.trim()
            segment.freeze()
            unsynced = unsynced.plus(segment)
            kept = kept.plus(self._rolling.new_segment(end, parts.clock.now_ms()))
        segment.sync_log()
        parts.fs.sync_directory(parts.directory)
        self._holder.commit(
            state._replace(
                segments=kept,
                end=end,
                durable=min(state.durable, end),
                high_watermark=min(state.high_watermark, end),
                unsynced=unsynced,
            )
        )

    def _cut_frozen(self, offset: Offset) -> None:
        """As `_cut`, where `offset` is in a frozen segment that a sync may be busy with."""
        state = self._holder.state
        segments, unsynced = state.segments, state.unsynced
        names = self._rolling.opened_names()
        index = max(segments.floor(offset), 0)
        kept = index if segments[index].base_offset == offset else index + 1
        self._remove(list(segments)[kept:])
        unsynced = unsynced.without(list(segments)[kept:])
        if kept > index:
            segments[index].cut_frozen(offset)
            unsynced = unsynced.plus(segments[index])
        new = self._rolling.new_segment(offset, self._parts.clock.now_ms())
        self._holder.commit(
            state._replace(
                segments=segments.before(kept).plus(new),
                end=offset,
                unsynced=unsynced._replace(names=names),
            )
        )

    def _remove(self, segments: list[Segment]) -> None:
        """Last one first: an interruption leaves a longer log, not one with a gap."""
        for segment in reversed(segments):
            self._parts.owner.delete_later(segment.handles.mark_deleted(), 0)
            self._producers.remove_snapshot(segment.base_offset)

    def _reopen(self, segment: Segment) -> Segment:
        """Make a sealed segment the active one again."""
        again = Segment.open_sealed(
            self._parts.fs,
            self._parts.directory,
            segment.base_offset,
            size=segment.size,
            next_offset=segment.next_offset,
            handles=self._parts.handles,
            limits=segment_limits(self._holder.config, allows_gaps=self._holder.allows_gaps),
            is_last=True,
        )
        unshare(self._parts.fs, again.name)  # a copy of the store may share the file
        again.activate(now_ms=self._parts.clock.now_ms())
        _rewalk(again)
        return again

    def _empty(self, offset: Offset) -> None:
        """Replace all segments by a new one at `offset`."""
        parts, holder = self._parts, self._holder
        # All files are removed, also those below `offset`.
        self._commit_lowered(
            Offset(0),
            holder.state.lowered_to(offset)._replace(
                durable=Offset(0),
                recovery_point=Offset(0),
                high_watermark=holder.state.high_watermark,  # until the segments are replaced
            ),
        )
        holder.announce_start(offset)
        parts.owner.save_recovery_points()
        for segment in holder.state.segments:
            parts.owner.delete_later(segment.handles.mark_deleted(), 0)
        self._producers.remove_all_snapshots()
        new = self._rolling.new_segment(offset, parts.clock.now_ms())
        parts.fs.sync_directory(parts.directory)
        self._producers.states.reset(offset)
        self._epochs.restart_at(offset)
        holder.commit(
            holder.state._replace(
                segments=SegmentList([new]),
                start=offset,
                high_watermark=offset,
                end=offset,
                durable=offset,
                recovery_point=offset,
                unsynced=NOTHING_UNSYNCED,
            )
        )


def _place_of(segment: Segment, offset: Offset) -> tuple[FilePosition | None, Offset]:
    """Where the batch that holds `offset` begins, in bytes and in offsets; None past the end.

    A stretch that cannot be read is cut as a whole, like a batch.
    """
    reader = segment.reader()
    try:
        position = reader.locate(offset, segment.hint(offset))
    except CorruptSegmentError as error:
        return FilePosition(error.position), error.first_offset
    return position, reader.next_offset


def _rewalk(segment: Segment) -> None:
    walk_segment(segment, segment.next_offset, lambda _decoder, _first, _stop: None)
