"""Compacts one log: keeps the newest record of each key, with its offset and in its order.

    1  map         walk over the dirty part and record the newest offset of each key. If the map
                   is full, the run covers only the part walked so far
    2  rewrite     walk over all segments up to there, group by group, and write the remaining
                   records into `.cleaned` files; verify and sync them
    3  swap        each group in turn replaces its sources; see `segment_swap`
    4  checkpoint  record how far the log is clean

A run that stops anywhere leaves a log that is compacted up to some group, which is a valid log.
Memory is bounded by the map and a few megabytes.
"""

import logging
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from cordwood.errors import CorruptSegmentError, DiskFullError
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.file_names import FileKind
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.compaction.batch_filter import BatchFilter
from cordwood.log.compaction.compaction_walk import (
    BATCHES_PER_CHUNK,
    CHUNK_BYTES,
    CompactionWalk,
    RunSettings,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.removal.segment_replacement import CompactionSource
from cordwood.log.rules.compaction_plan import CompactionPlan, SegmentSummary, group_segments
from cordwood.quantities import INT64_MAX, FilePosition, Offset, TimestampMs
from cordwood.storage.replacement.segment_rewrite import SegmentRewrite
from cordwood.storage.segment import Segment
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


class CompactionOutcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    MAP_FULL = "done as far as the keys fit the map"
    OVERTAKEN = "given up: the log was cut, or segments deleted, meanwhile"
    STOPPED = "given up: the store is closing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The effect of one run. Bytes are those of log files."""

    topic: str
    partition: int
    outcome: CompactionOutcome
    first_dirty: Offset
    cleaned_up_to: Offset
    started_ms: TimestampMs
    duration_s: float = 0.0
    keys: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_dropped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_reclaimed: int = 0
    segments_before: int = 0
    segments_after: int = 0
    error: str | None = None


class CompactionStoppedError(Exception):
    """Raised by the `pace` function to end a run."""


class CompactionRun(CompactionWalk):
    """One run over one log. Other threads may read its figures meanwhile."""

    def __init__(
        self,
        log: PartitionLog,
        plan: CompactionPlan,
        settings: RunSettings,
        *,
        now_ms: TimestampMs,
    ) -> None:
        super().__init__(plan, settings, now_ms=now_ms)
        self.log = log
        self.bytes_written = 0
        self.bytes_reclaimed = 0
        self._segments_before = 0
        self._segments_after = 0
        self._end = plan.first_dirty

    @property
    def progress(self) -> float:
        """The share of bytes read so far, from 0 to 1."""
        return (
            min(self.bytes_read / self.plan.bytes_to_read, 1.0) if self.plan.bytes_to_read else 1.0
        )

    def run(self) -> CompactionResult:
        """Run once. If it raises, it leaves no file behind."""
        source = self.log.compaction.begin(self.plan.first_uncleanable)
        try:
            return self._run(source)
        except FileNotFoundError as error:  # retention removed a segment meanwhile
            return self.result(CompactionOutcome.OVERTAKEN, error=str(error))

    def _run(self, source: CompactionSource) -> CompactionResult:
        key_map = self._build_map(source)
        self.key_count = key_map.used
        self._end = Offset(max(min(key_map.latest + 1, self.plan.first_uncleanable), 0))
        upper = self._end if key_map.is_full else self.plan.first_uncleanable
        batch_filter = self._new_filter(source, key_map, upper)
        for group in self._groups(source, upper):
            if not self._compact_group(source, group, batch_filter):
                return self.result(CompactionOutcome.OVERTAKEN)
        self._end = upper
        if not self.log.compaction.finish(source, upper):
            return self.result(CompactionOutcome.OVERTAKEN)
        return self.result(
            CompactionOutcome.MAP_FULL if key_map.is_full else CompactionOutcome.DONE
        )

    def result(
        self, outcome: CompactionOutcome, *, error: str | None = None, duration_s: float = 0.0
    ) -> CompactionResult:
        """The figures so far, with this outcome."""
        is_clean = outcome in (CompactionOutcome.DONE, CompactionOutcome.MAP_FULL)
        return CompactionResult(
            topic=self.log.topic,
            partition=self.log.partition,
            outcome=outcome,
            first_dirty=self.plan.first_dirty,
            cleaned_up_to=self._end if is_clean else self.plan.first_dirty,
            started_ms=self.now_ms,
            duration_s=duration_s,
            keys=self.key_count,
            records_read=self._records_read,
            records_kept=self._records_kept,
            keyless_dropped=self._keyless,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
            bytes_reclaimed=self.bytes_reclaimed,
            segments_before=self._segments_before,
            segments_after=self._segments_after,
            error=error,
        )

    # --- rewriting -----------------------------------------------------------------------------

    def _groups(self, source: CompactionSource, upper: Offset) -> list[list[Segment]]:
        pairs = source.summaries(upper)
        by_base: dict[Offset, Segment] = {segment.base_offset: segment for segment, _ in pairs}
        groups: list[tuple[SegmentSummary, ...]] = group_segments(
            [summary for _, summary in pairs],
            segment_bytes_max=source.config.segment_bytes_effective,
            index_bytes_max=source.config.segment_index_bytes,
        )
        return [
            part
            for group in groups
            for part in _split([by_base[summary.base_offset] for summary in group], source.holes)
        ]

    def _compact_group(
        self, source: CompactionSource, group: Sequence[Segment], batch_filter: BatchFilter
    ) -> bool:
        """False if the log changed so that the result cannot be used."""
        size = sum(segment.size for segment in group)
        if source.fs.free_bytes(source.directory) < size:
            raise DiskFullError(source.name)
        writer = _GroupWriter(source, group[0].base_offset, self._settings.rewrite_bytes_max)
        try:
            is_changed = self._rewrite(group, batch_filter, writer)
            if not is_changed and len(group) == 1:
                self._segments_before += 1
                self._segments_after += 1
                writer.discard()
                return True
            writer.finish(modified_ms=group[-1].modified_ms())
            if not self.log.compaction.replace_segments(source, group, writer.rewrites):
                writer.discard()
                return False
        except BaseException:
            if self.log.state.failure is None:  # else recovery decides what becomes of the files
                writer.discard()
            raise
        self.bytes_written += writer.size
        self.bytes_reclaimed += size - writer.size
        self._segments_before += len(group)
        self._segments_after += len(writer.rewrites)
        return True

    def _rewrite(
        self, group: Sequence[Segment], batch_filter: BatchFilter, writer: "_GroupWriter"
    ) -> bool:
        """Write what stays of the group; True if anything changed."""
        counts = batch_filter.counts
        for i in range(len(counts)):
            counts[i] = 0
        decoder = BatchDecoder(batches_max=BATCHES_PER_CHUNK)
        for segment in group:
            reader = segment.reader()
            reader.decoder = decoder
            for first, stop in reader.chunks(
                FilePosition(0), segment.base_offset, chunk_bytes=CHUNK_BYTES
            ):
                self._pass(reader)
                kept, written = batch_filter.records_kept, writer.size
                batch_filter.take(decoder, first, stop, writer.write)
                writer.note(batch_filter.records_kept - kept, batch_filter.aborted)
                batch_filter.aborted.clear()
                self._settings.pace(writer.size - written)
        self._note_counts(batch_filter)
        return batch_filter.has_changed


def _split(group: list[Segment], holes: Sequence[Hole]) -> list[list[Segment]]:
    """The group in parts that have no missing segment between them."""
    parts = [group[:1]]
    for before, segment in pairwise(group):
        if any(before.base_offset < hole.first < segment.base_offset for hole in holes):
            parts.append([])
        parts[-1].append(segment)
    return parts


class _GroupWriter:
    """The rewritten segments of one group: one, unless it exceeds the size of a segment."""

    def __init__(self, source: CompactionSource, base_offset: Offset, bytes_max: int) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._record_count = 0
        self._aborted: list[AbortedTransaction] = []
        self.rewrites = [self._new_rewrite(base_offset)]

    def _new_rewrite(self, base_offset: Offset) -> SegmentRewrite:
        source = self._source
        return SegmentRewrite(source.fs, source.directory, base_offset, limits=source.limits)

    @property
    def size(self) -> int:
        return sum(rewrite.size for rewrite in self.rewrites)

    def write(self, batches: memoryview) -> None:
        if self.rewrites[-1].size + len(batches) <= self._bytes_max:
            self.rewrites[-1].append(batches)
            return
        at = 0
        while at < len(batches):
            header = decode_batch_header(batches, at)
            last = self.rewrites[-1]
            if last.size and last.size + header.size > self._bytes_max:
                last = self._new_rewrite(header.base_offset)
                self.rewrites.append(last)
            last.append(batches[at : at + header.size])
            at += header.size

    def note(self, records: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Count records written since the last call, and add these aborted transactions."""
        self._record_count += records
        self._aborted += aborted

    def finish(self, *, modified_ms: int) -> None:
        """Verify, index and sync the rewritten segments."""
        for rewrite in self.rewrites:
            rewrite.sync_log()
        found = 0
        ends = [*(rewrite.base_offset for rewrite in self.rewrites[1:]), INT64_MAX]
        for rewrite, end in zip(self.rewrites, ends, strict=True):
            for transaction in self._aborted:
                if rewrite.base_offset <= transaction.last_offset < end:
                    rewrite.add_aborted(transaction)
            found += rewrite.finish(modified_ms=modified_ms)
        if found != self._record_count:
            raise CorruptSegmentError(
                self.rewrites[0].path(FileKind.LOG),
                0,
                f"{self._record_count} records were written, {found} were read back",
                first_offset=self.rewrites[0].base_offset,
                next_offset=None,
            )

    def discard(self) -> None:
        for rewrite in self.rewrites:
            try:
                rewrite.discard()
            except OSError as error:
                logger.warning(
                    "%s: the next start removes a leftover: %s", self._source.name, error
                )
