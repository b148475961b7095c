"""Segments that were rewritten elsewhere, checked and put in the place of the log's own.

A job outside plans on the sealed segments it finds, and stages what is to replace them. By the
time it asks, the log may have gone on: what the job planned on must still be there, as it was.
What it staged is held to everything that can be seen from the bytes: whole batches with right
checksums, in order, within the range they replace, and with the last batch of every producer
that the log remembers. Which records were left out is the job's to answer for.
"""

import os
from collections.abc import Sequence
from typing import Final

from cordwood.errors import FormatError, LogError
from cordwood.format import kernel_tables as tables
from cordwood.log.inbox.store_change import DONE, SKIPPED, ChangeAnswer, SwapSegments
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.segment_replacement import CompactionSource
from cordwood.log.publishing.publication_ledger import Place
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import INT32_MAX, MIB, FilePosition
from cordwood.storage.files import FileSystem
from cordwood.storage.segment import Segment
from cordwood.storage.segment_reader import SegmentReader
from cordwood.storage.segment_rewrite import SegmentRewrite

_LOCK_WAIT_S: Final = 10.0  # for a compaction of our own to end
_CHUNK_BYTES: Final = 1 * MIB


class StagedSwap:
    """One such request, for one log. Runs once."""

    def __init__(
        self,
        fs: FileSystem,
        log: PartitionLog,
        place: Place,
        change: SwapSegments,
        paths: Sequence[str],
    ) -> None:
        self._fs = fs
        self._log = log
        self._place = place
        self._change = change
        self._paths = paths

    def run(self) -> ChangeAnswer:
        """Do it, or raise what is wrong with it and leave the log as it is."""
        self._check_request()
        if not self._log.compaction.lock.acquire(timeout=_LOCK_WAIT_S):
            raise LogError(f"{self._log.name} is being compacted: ask again later")
        try:
            return self._run()
        finally:
            self._log.compaction.lock.release()

    def _check_request(self) -> None:
        change = self._change
        if change.topic_id != self._place.topic_id:
            raise LogError(f"topic {change.topic} was made anew since this was planned")
        if not self._log.config.is_compacted:
            raise LogError(f"topic {change.topic} is not compacted: its records all stay")
        if not change.planned_on or not change.files:
            raise FormatError("a swap of no segments")
        if change.files[0].base_offset != change.planned_on[0].base_offset:
            raise FormatError("the first segment must begin where those it replaces do")
        bases = [file.base_offset for file in change.files]
        if sorted(set(bases)) != bases or bases[-1] >= change.planned_on[-1].next_offset:
            raise FormatError(f"segments at {bases} are not in order within what they replace")
        start, stop = bases[0], change.planned_on[-1].next_offset
        for transaction in change.aborted:
            if not start <= transaction.last_offset < stop:
                raise FormatError(f"{transaction} ends outside of what is replaced")

    def _run(self) -> ChangeAnswer:
        source = self._log.compaction.begin()
        old = self._planned_on(source.segments)
        if old is None:
            if self._is_in_place(source.segments):
                self._finish(source)
                return ChangeAnswer(outcome=SKIPPED)
            raise LogError(f"{self._log.name} has changed since this was planned: plan again")
        if self._log.last_stable_offset < self._change.planned_on[-1].next_offset:
            raise LogError(f"{self._log.name} may yet undo records of these segments")
        self._verify(source)
        rewrites = self._adopt(source, modified_ms=old[-1].modified_ms())
        try:
            is_replaced = self._log.compaction.replace_segments(source, old, rewrites)
        except BaseException:
            if self._log.state.failure is None:  # else recovery decides over the files
                _discard(rewrites)
            raise
        if not is_replaced:
            _discard(rewrites)
            raise LogError(f"{self._log.name} has changed since this was planned: plan again")
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
        """The segments that were planned on; None when the log has others now."""
        planned = self._change.planned_on
        first = segments.floor(planned[0].base_offset)
        if first < 0 or first + len(planned) >= len(segments):  # the active one is not sealed
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
        """Whether this very swap was made before, by an owner that did not live to say so."""
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
                f"the last batches of producers, which end at {sorted(missing)[:10]}, must stay"
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
