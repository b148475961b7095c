"""What compaction needs of a log: what there is to compact, and putting the result in place.

A compaction works on sealed segments, which do not change, and takes no lock while it does.
What may change under it is the log: segments may be deleted from its beginning, or the end be
cut off. `replace_segments` looks whether that happened, under the locks that all who change
the list of segments take, and refuses if so.
"""

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.partition import segment_swap
from cordwood.log.partition.cuttable_log import CuttableLog
from cordwood.log.partition.durable_log import LogParts, segment_limits
from cordwood.log.partition.log_loader import LoadedLog
from cordwood.log.partition.producer_snapshots import remove_snapshot
from cordwood.log.partition.upkeep_outlook import summarize_log, summarize_segment
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.compaction_plan import (
    CompactionPlan,
    LogSummary,
    SegmentSummary,
    plan_compaction,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.segment import Segment, SegmentLimits
from cordwood.storage.segment_rewrite import SegmentRewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSource:
    """A log at the moment its compaction began.

    segments         all of them; those that are compacted are sealed
    cut_count        how often the log's end had been cut off by then
    last_offsets     of the newest data batch of each producer that is remembered
    marker_epochs    the epoch of each producer that left nothing but a transaction's end
    """

    name: str
    directory: str
    fs: FileSystem
    config: TopicConfig
    limits: SegmentLimits
    segments: SegmentList
    start_offset: Offset
    cut_count: int
    last_offsets: frozenset[int]
    marker_epochs: dict[int, int]

    def summaries(self, end_offset: Offset) -> list[tuple[Segment, SegmentSummary]]:
        """The sealed segments that begin below `end_offset`, with all that grouping asks."""
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
        """Those with records in [start, stop), in the order they began."""
        found = self.segments.aborted_transactions(start, stop)
        return sorted(found, key=lambda transaction: transaction.first_offset)


class CompactableLog(CuttableLog):
    """A log whose sealed segments can be replaced by compacted ones."""

    def __init__(self, parts: LogParts, loaded: LoadedLog) -> None:
        super().__init__(parts, loaded)
        self.compaction_lock = threading.Lock()  # held by the one compaction that is under way

    # --- what there is to do -----------------------------------------------------------------

    def plan_compaction(self, now_ms: TimestampMs, *, force: bool = False) -> CompactionPlan:
        """What compacting would mean now. Changes nothing."""
        return plan_compaction(self._compaction_summary(), self._config, now_ms=now_ms, force=force)

    def _compaction_summary(self) -> LogSummary:
        stable = self.last_stable_offset
        with self._lock:
            view = self._view
            bounds = [stable, self._durable, *(s.base_offset for s in self._unsealed)]
            end = self._end
        return summarize_log(
            view,
            self._config,
            fs=self._fs,
            topic=self.topic,
            partition=self.partition,
            end_offset=end,
            settled=min(bounds),
            checkpoint=self.cleaned_up_to,
        )

    def begin_compaction(self) -> CompactionSource:
        """Take the log as it is now. Holding `compaction_lock`.

        Everything that may be compacted is put below the recovery point first: behind it a
        missing offset would look like a batch that a crash tore off.
        """
        if self.checkpoint():
            self._owner.save_recovery_points()
        with self._lock:
            self._check_writable()
            now_ms = self._clock.now_ms()
            last_offsets, marker_epochs = self._producers.last_batches(now_ms)
            return CompactionSource(
                name=self.name,
                directory=self.directory,
                fs=self._fs,
                config=self._config,
                limits=segment_limits(self._config, allows_gaps=True),
                segments=self._view.segments,
                start_offset=self._view.start,
                cut_count=self._cut_count,
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

        False, and nothing has changed, when the log was cut or segments of it were deleted
        meanwhile: what the compaction took for superseded may then be the newest. Readers on
        their way through `old` go on undisturbed. Durable on return.
        """
        self._note_first_compaction(source)
        self._fs.sync_directory(self.directory)
        with self._sync_lock:
            with self._lock:
                at = self._place_of(old, source)
            if at is None:
                return False
            for segment in old:
                segment.retire()
            try:
                segment_swap.announce(self._fs, self.directory, new)
                doomed = segment_swap.replace(self._fs, self.directory, old, new)
            except OSError as error:
                self._fail(f"replacing segments failed half-way: {error}")
                raise
            with self._lock:
                segments = list(self._view.segments)
                opened = self._open_rewritten(new, self._view.segments.end_of(at + len(old) - 1))
                self._replace_view(
                    segments=SegmentList([*segments[:at], *opened, *segments[at + len(old) :]])
                )
            bases = {rewrite.base_offset for rewrite in new}
            for segment in old:
                if segment.base_offset not in bases:
                    with contextlib.suppress(OSError):  # derived; the next checkpoint tries again
                        remove_snapshot(self._fs, self.directory, segment.base_offset)
        self._owner.delete_later(doomed, self._config.file_delete_delay_ms)
        return True

    def _note_first_compaction(self, source: CompactionSource) -> None:
        """That offsets may be missing must be known before any is."""
        if self.cleaned_up_to is None:
            self.note_compacted(source.start_offset)
            self._owner.save_cleaned()

    def _place_of(self, old: Sequence[Segment], source: CompactionSource) -> int | None:
        """Where in the list `old` are now; None when they are not to be replaced any more."""
        if self._is_closed or self._failure is not None or self._cut_count != source.cut_count:
            return None
        segments = list(self._view.segments)
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
                self._fs,
                self.directory,
                rewrite.base_offset,
                size=rewrite.size,
                next_offset=Offset(next_offset),
                handles=self._handles,
                limits=segment_limits(self._config, allows_gaps=True),
            )
            for rewrite, next_offset in zip(new, ends, strict=True)
        ]

    def finish_compaction(self, source: CompactionSource, up_to: Offset) -> bool:
        """Note how far the log is clean; False when it was cut meanwhile. Durable on return."""
        with self._lock:
            if self._cut_count != source.cut_count or self._is_closed:
                return False
            self.note_compacted(up_to)
        self._owner.save_cleaned()
        return True
