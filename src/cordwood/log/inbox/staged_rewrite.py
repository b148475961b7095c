"""Replaces segments of a log by segments that another process rewrote.

A compaction job reads sealed segments and stages their replacements. The log may change before
the job's request arrives, so the segments must still be as they were when the job planned. The
staged files are checked as far as their bytes allow: whole batches with right checksums, in
order, within the replaced range, including the last batch of every known producer. The job
alone is responsible for which records it left out.
"""

import os
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, LogError
from cordwood.format import kernel_tables as tables
from cordwood.log.inbox.store_change import DONE, SKIPPED, ChangeAnswer, SwapSegments
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.removal.segment_replacement import CompactionSource
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.quantities import INT32_MAX, MIB, FilePosition
from cordwood.storage.files import FileSystem
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.replacement.segment_rewrite import SegmentRewrite
from cordwood.storage.segment import Segment

_LOCK_WAIT_S: Final = 10.0  # for the cleaner to finish with this log
_CHUNK_BYTES: Final = 1 * MIB


class StagedRewrite:
    """One request for one log. Runs once."""

    def __init__(
        self,
        fs: FileSystem,
        log: PartitionLog,
        topic_id: UUID,
        change: SwapSegments,
        paths: Sequence[str],
    ) -> None:
        self._fs = fs
        self._log = log
        self._topic_id = topic_id
        self._change = change
        self._paths = paths

    def run(self) -> ChangeAnswer:
        """Replace the segments. If it raises, the log is unchanged."""
        self._check_request()
        hold = LockHold(self._log.compaction.lock)
        try:
            if not hold.take(timeout_s=_LOCK_WAIT_S):
                raise LogError(f"{self._log.name} is being compacted; try again later")
            return self._run()
        finally:
            insist(hold.release)

    def _check_request(self) -> None:
        change = self._change
        if change.topic_id != self._topic_id:
            raise LogError(
                f"topic {change.topic} was deleted and created again since this was planned"
            )
        if not self._log.config.is_compacted:
            raise LogError(
                f"topic {change.topic} is not compacted; set cleanup.policy=compact first"
            )
        if not change.planned_on or not change.files:
            raise FormatError("the request replaces no segments")
        if change.files[0].base_offset != change.planned_on[0].base_offset:
            raise FormatError("the first segment must begin where the replaced ones begin")
        bases = [file.base_offset for file in change.files]
        if sorted(set(bases)) != bases or bases[-1] >= change.planned_on[-1].next_offset:
            raise FormatError(f"segments at {bases} are not in order within the replaced range")
        start, stop = bases[0], change.planned_on[-1].next_offset
        for transaction in change.aborted:
            if not start <= transaction.last_offset < stop:
                raise FormatError(f"{transaction} ends outside the replaced range")

    def _run(self) -> ChangeAnswer:
        source = self._log.compaction.begin(self._change.planned_on[-1].next_offset)
        old = self._planned_on(source.segments)
        if old is None:
            if self._is_in_place(source.segments):
                self._finish(source)
                return ChangeAnswer(outcome=SKIPPED)
            raise LogError(f"{self._log.name} has changed since this was planned; plan again")
        if self._log.last_stable_offset < self._change.planned_on[-1].next_offset:
            raise LogError(
                f"{self._log.name} has open transactions in these segments; try again later"
            )
        self._verify(source)
        rewrites = self._adopt(source, modified_ms=old[-1].modified_ms())
        try:
            is_replaced = self._log.compaction.replace_segments(source, old, rewrites)
        except BaseException:
            if self._log.state.failure is None:  # else recovery decides what becomes of the files
                _discard(rewrites)
            raise
        if not is_replaced:
            _discard(rewrites)
            raise LogError(f"{self._log.name} has changed since this was planned; plan again")
        self._finish(source)
        return ChangeAnswer(
            outcome=DONE,
            facts={
                "bytes_before": sum(place.size for place in self._change.planned_on),
                "bytes_after": sum(file.size for file in self._change.files),
            },
        )

    def _finish(self, source: CompactionSource) -> None:
        up_to = self._change.cleaned_up_to
        if up_to is not None and up_to > (self._log.state.cleaned_up_to or 0):
            end = source.segments.active.base_offset
            self._log.compaction.finish(source, min(up_to, end))

    # --- what the log has --------------------------------------------------------------------

    def _planned_on(self, segments: SegmentList[Segment]) -> list[Segment] | None:
        """The segments the job planned on; None if the log has others now."""
        planned = self._change.planned_on
        first = segments.floor(planned[0].base_offset)
        if first < 0 or first + len(planned) >= len(segments):  # the active segment is not sealed
            return None
        found = [segments[first + number] for number in range(len(planned))]
        for number, (segment, place) in enumerate(zip(found, planned, strict=True)):
            if (segment.base_offset, segments.end_of(first + number), segment.size) != (
                place.base_offset,
                place.next_offset,
                place.size,
            ):
                return None
        return found

    def _is_in_place(self, segments: SegmentList) -> bool:
        """Whether an earlier owner made this replacement and died before it answered."""
        wanted = {(file.base_offset, file.size) for file in self._change.files}
        start = self._change.planned_on[0].base_offset
        stop = self._change.planned_on[-1].next_offset
        there = {(s.base_offset, s.size) for s in segments if start <= s.base_offset < stop}
        return wanted == there

    # --- what was staged ---------------------------------------------------------------------

    def _verify(self, source: CompactionSource) -> None:
        start = self._change.planned_on[0].base_offset
        stop = self._change.planned_on[-1].next_offset
        missing = {offset for offset in source.last_offsets if start <= offset < stop}
        ends = [*(file.base_offset for file in self._change.files[1:]), stop]
        for path, staged, end in zip(self._paths, self._change.files, ends, strict=True):
            file = self._fs.open_read(path)
            try:
                size = file.size()
                if size != staged.size or size > INT32_MAX:
                    raise FormatError(f"{os.path.basename(path)} has {size} bytes")
                reader = SegmentReader(file, staged.base_offset, size, offset_limit=end)
                for first, last in reader.chunks(
                    FilePosition(0), staged.base_offset, chunk_bytes=_CHUNK_BYTES
                ):
                    row = tables.BATCH_ROW
                    rows = reader.decoder.rows
                    nexts = rows[first * row + tables.B_NEXT_OFFSET : last * row : row]
                    missing.difference_update(following - 1 for following in nexts)
                if reader.position != size:
                    raise FormatError(
                        f"{os.path.basename(path)} is sound up to byte {reader.position} of {size}",
                        position=reader.position,
                    )
            finally:
                file.close()
        if missing:
            raise LogError(
                f"the last batch of each producer must stay; missing: {sorted(missing)[:10]}"
            )

    def _adopt(self, source: CompactionSource, *, modified_ms: int) -> list[SegmentRewrite]:
        rewrites: list[SegmentRewrite] = []
        try:
            for path, staged in zip(self._paths, self._change.files, strict=True):
                rewrites.append(
                    SegmentRewrite(
                        self._fs,
                        source.directory,
                        staged.base_offset,
                        limits=source.limits,
                        adopted=path,
                    )
                )
            bases = [rewrite.base_offset for rewrite in rewrites]
            for transaction in self._change.aborted:
                at = max(i for i, base in enumerate(bases) if base <= transaction.last_offset)
                rewrites[at].add_aborted(transaction)
            for rewrite in rewrites:
                rewrite.sync_log()
                rewrite.finish(modified_ms=modified_ms)
        except BaseException:
            _discard(rewrites)
            raise
        return rewrites


def _discard(rewrites: Sequence[SegmentRewrite]) -> None:
    for rewrite in rewrites:
        rewrite.discard()
