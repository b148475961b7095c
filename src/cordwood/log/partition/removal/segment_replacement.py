"""Replacing segments: what compaction needs to know of a log, and how its result gets in.

A compaction works on sealed segments, which do not change, and takes no lock meanwhile. The log
may change under it: segments may be deleted from its beginning, or its end may be cut off.
`replace_segments` checks for that, under the locks that every change of the list of segments
takes, and then refuses.
"""

import contextlib
import errno
import threading
from collections.abc import Sequence

from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole, SegmentManifest
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.removal import segment_swap
from cordwood.log.partition.removal.upkeep_outlook import summarize_log, summarize_segment
from cordwood.log.partition.state.log_parts import LogParts, segment_limits
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.log_sync import LogSync
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.compaction_plan import CompactionPlan, SegmentSummary, plan_compaction
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.replacement.segment_rewrite import SegmentRewrite
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSource:
    """A log at the moment its compaction began.

    segments         all segments; only sealed ones are compacted
    cut_count        how often the end of the log had been cut off
    last_offsets     last offset of the newest data batch of each remembered producer
    marker_epochs    the epoch of each producer that left nothing but the end of a transaction
    holes            segments that are missing; merging their neighbours would hide it
    """

    name: str
    directory: str
    fs: FileSystem
    config: TopicConfig
    limits: SegmentLimits
    segments: SegmentList[Segment]
    start_offset: Offset
    cut_count: int
    last_offsets: frozenset[int]
    marker_epochs: dict[int, int]
    holes: Sequence[Hole] = ()

    def summaries(self, end_offset: Offset) -> list[tuple[Segment, SegmentSummary]]:
        """The sealed segments that begin below `end_offset`, with what grouping them needs."""
        return [
            (
                segment,
                summarize_segment(
                    self.fs, segment, self.segments.end_of(index), self.config, with_indexes=True
                ),
            )
            for index, segment in enumerate(self.segments)
            if segment.base_offset < end_offset and segment is not self.segments.active
        ]

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, stop), in the order they began."""
        found = self.segments.aborted_transactions(start, stop)
        return sorted(found, key=lambda transaction: transaction.first_offset)


class SegmentReplacement:
    """Replaces sealed segments of one log by compacted ones.

    `lock` is held by the one compaction that is under way.
    """

    def __init__(
        self, parts: LogParts, holder: StateHolder, producers: LogProducers, syncing: LogSync
    ) -> None:
        self.name = parts.name
        self.topic = parts.topic
        self.partition = parts.partition
        self.directory = parts.directory
        self.lock = threading.Lock()
        self._parts = parts
        self._holder = holder
        self._producers = producers
        self._syncing = syncing

    # --- what is to be done ------------------------------------------------------------------

    def plan(self, now_ms: TimestampMs, *, force: bool = False) -> CompactionPlan:
        """What compacting would do now. Changes nothing."""
        stable = self._producers.last_stable_offset
        state, config = self._holder.state, self._holder.config
        unsealed = [segment.base_offset for segment in state.unsynced.segments]
        summary = summarize_log(
            LogView(state.segments, state.start, state.high_watermark),
            config,
            fs=self._parts.fs,
            topic=self.topic,
            partition=self.partition,
            end_offset=state.end,
            settled=min(stable, state.durable, *unsealed),
            checkpoint=state.cleaned_up_to,
        )
        return plan_compaction(summary, config, now_ms=now_ms, force=force)

    def begin(self, up_to: Offset) -> CompactionSource:
        """Take the log as it is now, to compact segments below `up_to`. Holds `lock`.

        They are put below the recovery point first: behind it a missing offset would look like
        a batch that a crash tore off.
        """
        holder = self._holder
        self._syncing.checkpoint()
        recovery_point = holder.state.recovery_point
        self._parts.owner.save_unsaved_recovery_points()
        with holder.lock:
            holder.check_writable()
            state = holder.state
            if recovery_point < min(up_to, state.segments.active.base_offset):
                raise OSError(errno.EAGAIN, "its indexes could not be written", self.directory)
            now_ms = self._parts.clock.now_ms()
            last_offsets, marker_epochs = self._producers.states.last_batches(now_ms)
            return CompactionSource(
                name=self.name,
                directory=self.directory,
                fs=self._parts.fs,
                config=holder.config,
                limits=segment_limits(holder.config, allows_gaps=True),
                segments=state.segments,
                start_offset=state.start,
                cut_count=state.cut_count,
                holes=holder.holes,
                last_offsets=last_offsets,
                marker_epochs=marker_epochs,
            )

    # --- what is done ------------------------------------------------------------------------

    def replace_segments(
        self,
        source: CompactionSource,
        old: Sequence[Segment],
        new: Sequence[SegmentRewrite],
    ) -> bool:
        """Put finished rewrites in the place of `old`, consecutive sealed segments of `source`.

        False, and nothing has changed, if the log was cut or some of its segments were deleted
        meanwhile: what the compaction took for superseded may then be the newest. Readers of
        `old` continue undisturbed. Durable on return.
        """
        parts, holder = self._parts, self._holder
        is_first = holder.state.cleaned_up_to is None
        if is_first:
            # It must be known that offsets may be missing before any is.
            self.note_compacted(source.start_offset)
            parts.owner.save_cleaned()
        with holder.sync_lock:
            with holder.lock:
                at = self._place_of(old, source)
            if at is None:
                return False
            # This syncs the directory too: the names of the rewrites are durable before step 2.
            holder.write_manifest(self._manifest_of(at, old, new, is_first=is_first))
            for segment in old:
                segment.handles.retire()
            try:
                segment_swap.announce(parts.fs, self.directory, new)
                doomed = segment_swap.replace(parts.fs, self.directory, old, new)
                with holder.lock:
                    state = holder.state
                    segments = list(state.segments)
                    opened = self._open_rewritten(new, state.segments.end_of(at + len(old) - 1))
                    replaced = SegmentList([*segments[:at], *opened, *segments[at + len(old) :]])
                    holder.commit(state._replace(segments=replaced))
            except BaseException as error:
                reason = f"replacing segments failed half-way: {error!r}"
                insist(lambda: holder.fail(reason))
                raise
            bases = {rewrite.base_offset for rewrite in new}
            for segment in old:
                if segment.base_offset not in bases:
                    with contextlib.suppress(OSError):  # derived; the next checkpoint tries again
                        self._producers.remove_snapshot(segment.base_offset)
        parts.owner.delete_later(doomed, holder.config.file_delete_delay_ms)
        return True

    @property
    def manifest(self) -> SegmentManifest | None:
        """The segments below the compacted end, as it is on the disk; None: never compacted."""
        return self._holder.manifest

    def _manifest_of(
        self,
        at: int,
        old: Sequence[Segment],
        new: Sequence[SegmentRewrite],
        *,
        is_first: bool,
    ) -> SegmentManifest:
        """The segments that the log must have before and after `old` are replaced by `new`."""
        known = self._holder.manifest
        segments = self._holder.state.segments
        replaced = tuple(segment.base_offset for segment in old)
        end = segments.end_of(at + len(old) - 1)
        if known is not None:
            end = max(end, min(known.end, segments.active.base_offset))
        elif not is_first:
            end = segments.active.base_offset  # compacted before: by Kafka, or in an archive
        bases = {segment.base_offset for segment in segments if segment.base_offset < end}
        lost = {hole.first for hole in self._holder.holes}  # they stay lost
        return SegmentManifest(
            generation=1 if known is None else known.generation + 1,
            end=end,
            segments=tuple(sorted((bases | lost) - set(replaced))),
            replaced=replaced,
            replacing=tuple(rewrite.base_offset for rewrite in new),
        )

    def _place_of(self, old: Sequence[Segment], source: CompactionSource) -> int | None:
        """Where in the list `old` are now; None if they must not be replaced any more."""
        state = self._holder.state
        if not state.is_writable or state.cut_count != source.cut_count:
            return None
        segments = list(state.segments)
        at = next((i for i, segment in enumerate(segments) if segment is old[0]), None)
        if at is None or at + len(old) >= len(segments):
            return None
        found = segments[at : at + len(old)]
        is_same = all(a is b for a, b in zip(found, old, strict=True))
        return at if is_same else None

    def _open_rewritten(self, new: Sequence[SegmentRewrite], end: Offset) -> list[Segment]:
        ends = [*(rewrite.base_offset for rewrite in new[1:]), end]
        return [
            Segment.open_sealed(
                self._parts.fs,
                self.directory,
                rewrite.base_offset,
                size=rewrite.size,
                next_offset=Offset(next_offset),
                handles=self._parts.handles,
                limits=segment_limits(self._holder.config, allows_gaps=True),
            )
            for rewrite, next_offset in zip(new, ends, strict=True)
        ]

    def finish(self, source: CompactionSource, up_to: Offset) -> bool:
        """Note how far the log is clean; False if it was cut meanwhile. Durable on return."""
        holder = self._holder
        with holder.lock:
            state = holder.state
            if state.cut_count != source.cut_count or state.is_closed:
                return False
            holder.commit(state._replace(cleaned_up_to=up_to))
        self._parts.owner.save_cleaned()
        return True

    def note_compacted(self, up_to: Offset) -> None:
        """The log was compacted at some time: missing offsets are no damage."""
        with self._holder.lock:
            self._holder.commit(self._holder.state._replace(cleaned_up_to=up_to))
