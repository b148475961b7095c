"""The files of a log as a process sees them that does not own the log.

Nothing is ever written. The writer publishes how far reading may go in the mapped
`high-watermark` file. If there is no such file, as in a directory that Kafka wrote, the log ends
with its last sound batch.
"""

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    LogClosedError,
    TopicDeletedError,
)
from cordwood.format.file_names import PARTITION_METADATA
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole, SegmentManifest
from cordwood.log.beside.last_file import LastFile, open_last
from cordwood.log.beside.polling import Polling
from cordwood.log.beside.transaction_tail import FollowedTransactions, TransactionTail
from cordwood.log.partition.log_loader import read_epochs
from cordwood.log.partition.view.segment_gaps import SegmentGaps, hole_damages
from cordwood.log.reading.archived_segments import ArchiveJoin
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.log_start import known_start
from cordwood.log.reading.missing_segments import (
    gaps_end,
    missing_front,
    missing_segments,
)
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import INT32_MAX, INT64_MAX, KIB, Offset, TimestampMs
from cordwood.storage.files import FileSystem, read_whole
from cordwood.storage.recovery import Damage
from cordwood.storage.replacement.segment_files import (
    FoundSegment,
    find_segments,
    newest_base,
    segment_end,
    walk_to_end,
)
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile, LogMarks
from cordwood.storage.small_files.segment_manifest_file import read_manifest

# How long a reader may believe that its topic still exists.
_CURRENT_S: Final = 1.0

# How often a question is asked again because the owner deleted or replaced files meanwhile.
LOOKS_MAX: Final = 20

# Each look reads the mapped mark, or the size of the last file.
_POLLING: Final = Polling(pause_s_min=0.001, pause_s_max=0.05, growth=1.5, refreshes=False)


class FollowedFiles:
    """The directory of one partition as a `LogSource`. Any thread may use it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        name: str,
        *,
        handles: HandleCache,
        log_start: Offset | None,
        allows_gaps: bool,
        was_compacted: bool,
        is_new: bool = False,
    ) -> None:
        """`was_compacted`: offsets may be missing, whether or not there is a segment manifest.

        A log that `is_new` has acknowledged nothing durably: without marks it is empty.
        """
        self.fs = fs
        self.directory = directory
        self.name = name
        self.allows_gaps = allows_gaps
        self.is_closed = False
        self.compacted_up_to: Offset | None = None  # only the owner's checkpoint says
        self.archive: ArchiveJoin | None = None
        self.limits = SegmentLimits(
            index_bytes_max=0, index_interval_bytes=0, is_dense=not allows_gaps
        )
        self._is_new = is_new
        self._handles = handles
        self._identity = self._read_identity()
        self._current_until_s = time.monotonic() + _CURRENT_S
        self._marks = HighWatermarkFile(fs, directory, writable=False)
        # Kafka shortens the indexes of its active segment in place; a map would then be fatal.
        self._is_ours = _published(self._marks.read()) is not None
        self._was_compacted = was_compacted
        self._start_checkpoint = log_start
        self._manifest: SegmentManifest | None = None
        self._holes: list[Hole] = []
        self._segments = self._list()
        self._log_start = known_start(
            directory,
            first_base=self._segments.first_offset,
            mark=self._marks.read().log_start,
            checkpoint=log_start,
            epochs=read_epochs(fs, directory),
        )
        self._gaps = SegmentGaps(self, self.local_view)
        self._sound_end: tuple[tuple[int, int], Offset] | None = None
        self._transactions = FollowedTransactions(fs, directory, self.readable_bytes)

    # --- the view ----------------------------------------------------------------------------

    def view(self) -> LogView:
        local = self.local_view()
        return local if self.archive is None else self.archive.over(local)

    def local_view(self) -> LogView[Segment]:
        """The part of the log that lies in its own directory."""
        if self.is_closed:
            raise LogClosedError(self.name)
        if time.monotonic() >= self._current_until_s:
            self.check_current()
        marks = self._marks.read()
        high_watermark = _published(marks)
        if high_watermark is None and self._is_new:
            high_watermark = self._segments.first_offset
        elif high_watermark is None:
            high_watermark = self._end_of_sound_batches()
        elif high_watermark > self._segments.active.base_offset:
            self._refresh_if_rolled(high_watermark)
        first = self._segments.first_offset
        known = max(first, marks.log_start or 0, self._log_start)
        start = Offset(min(known, max(high_watermark, first)))
        front = missing_front(self.holes, first)
        if front is not None:
            start = front.first
        return LogView(
            segments=self._segments,
            start=start,
            high_watermark=Offset(max(high_watermark, start)),
        )

    @property
    def archived_up_to(self) -> Offset | None:
        """Every record below has a copy in the archive; None if there is no archive."""
        return None if self.archive is None else self.archive.source.state().end

    @property
    def local_start_offset(self) -> Offset:
        return self.local_view().start

    @property
    def high_watermark(self) -> Offset:
        return self.local_view().high_watermark

    @property
    def end_offset(self) -> Offset:
        return self.local_view().high_watermark

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        if _POLLING.wait_beyond(self, offset, timeout_s):
            return True
        if not self.is_closed:
            self.check_current()  # nothing new may mean that the topic is gone
        return False

    # --- the topic ---------------------------------------------------------------------------

    def check_current(self) -> None:
        """Raise `TopicDeletedError` if the directory is gone or belongs to another topic by now.

        The marks and files that are open stay readable, so nothing else would show it.
        """
        now = self._read_identity()
        is_other = now != self._identity and now is not None and self._identity is not None
        if is_other or (now is None and not self.fs.exists(self.directory)):
            raise TopicDeletedError(self.name.rpartition("-")[0])
        self._current_until_s = time.monotonic() + _CURRENT_S

    def _read_identity(self) -> bytes | None:
        """The file that holds the id of the topic; None if there is none."""
        try:
            path = os.path.join(self.directory, PARTITION_METADATA)
            return read_whole(self.fs, path, limit=KIB)
        except (FileNotFoundError, FormatError):
            return None

    # --- segments ----------------------------------------------------------------------------

    @property
    def gaps_below(self) -> Offset:
        return gaps_end(self._manifest, was_compacted=self._was_compacted)

    @property
    def holes(self) -> Sequence[Hole]:
        """Missing segments; an archive may have those before the first one."""
        if self.archive is None:
            return self._holes
        return [hole for hole in self._holes if hole.next > self._segments.first_offset]

    def find_damages(self) -> list[Damage]:
        """Missing segments, and sealed segments that end too early."""
        self.refresh()
        return self._gaps.find(
            lambda: hole_damages(self.holes, list(self._segments), self.directory)
        )

    def replacements(self, *, look: bool) -> int:
        manifest = read_manifest(self.fs, self.directory) if look else self._manifest
        return -1 if manifest is None else manifest.generation

    def readable_bytes(self, segment: ReadableSegment) -> int:
        return segment.size if segment.is_archived else segment.file().size()

    def largest_timestamp(self, segment: ReadableSegment) -> tuple[TimestampMs, Offset]:
        """The last segment may hold anything: its index lags behind what was appended."""
        if segment is self._segments.active:
            return TimestampMs(INT64_MAX), segment.base_offset
        return segment.largest_timestamp

    def key_memory(self, view: LogView) -> int | None:
        """If the segment before the last one has a key index, the topic indexes keys."""
        if len(view.segments) == 1:
            return None
        sealed = view.segments[len(view.segments) - 2]
        return 0 if sealed.indexes.key.is_usable(sealed.size) else None

    # --- transactions ------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        return max(self._tail().last_stable_offset, self.local_view().start)

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        indexed = self._indexed_aborts(start, stop)
        known = {(t.producer_id, t.first_offset): t for t in indexed}
        for transaction in self._tail().overlapping(start, stop):
            known.setdefault((transaction.producer_id, transaction.first_offset), transaction)
        return list(known.values())

    def _indexed_aborts(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        """The aborted transactions in the indexes of the segments that will be read.

        The index of a replacement lacks transactions whose records were removed. It must not be
        used for the replaced log file, which this process may hold open.
        """
        for _ in range(LOOKS_MAX):
            view = self.view()
            try:
                found = view.segments.aborted_transactions(start, stop)
                if not self._has_replaced_index(view, start, stop):
                    return found
            except FileNotFoundError:
                pass
            self.refresh()
        return self.view().segments.aborted_transactions(start, stop)

    def _has_replaced_index(self, view: LogView, start: Offset, stop: Offset) -> bool:
        sealed = list(view.segments)[max(view.segments.floor(start), 0) : -1]
        return any(
            segment.indexes.transaction.count and self.fs.size(segment.name) != segment.size
            for segment in sealed
            if not segment.is_archived and segment.base_offset < stop
        )

    def _tail(self) -> TransactionTail:
        """The transactions at the end of the log, up to the high watermark."""
        try:
            return self._transactions.up_to(self.local_view())
        except FileNotFoundError:
            self.refresh()  # a file was deleted or replaced meanwhile
            return self._transactions.up_to(self.local_view())

    # --- the files ---------------------------------------------------------------------------

    def refresh(self) -> None:
        self.check_current()
        self._segments = self._list()
        if self.archive is not None:
            self.archive.source.refresh()

    def close(self) -> None:
        self.is_closed = True
        self._marks.close()
        for segment in self._segments:
            segment.close()

    def _list(self) -> SegmentList[Segment]:
        found = self._find_segments()
        if not found:
            raise FileNotFoundError(f"no segments in {self.directory}")
        segments = [
            Segment.open_sealed(
                self.fs,
                self.directory,
                segment.base_offset,
                size=segment.size,
                next_offset=following.base_offset,
                handles=self._handles,
                limits=self.limits,
                mapped=self._is_ours,
                has_transactions=segment.has_transactions,
                swapped=segment.swapped,
            )
            for segment, following in pairwise(found)
        ]
        last = open_last(
            self.fs,
            self.directory,
            found[-1].base_offset,
            file_size=found[-1].size,
            handles=self._handles,
            limits=self.limits,
            mapped=self._is_ours,
            has_transactions=found[-1].has_transactions,
            swapped=found[-1].swapped,
        )
        return SegmentList([*segments, last])

    def _find_segments(self) -> list[FoundSegment]:
        """The segments and the manifest that belongs to them, and what is missing."""
        manifest = read_manifest(self.fs, self.directory)
        for _ in range(LOOKS_MAX):
            found = find_segments(self.fs, self.directory)
            before, manifest = manifest, read_manifest(self.fs, self.directory)
            if before == manifest:
                break
        by_base = {segment.base_offset: segment for segment in found}
        bases = list(by_base)
        # Read after the files: the owner moves the mark before it removes a file.
        mark = self._marks.read().log_start
        holes = missing_segments(
            bases,
            manifest=manifest,
            mark=mark,
            checkpoint=self._start_checkpoint,
            end_of=lambda base: segment_end(self.fs, self.directory, by_base[base]),
        )
        self._manifest, self._holes = manifest, holes
        return found

    def _refresh_if_rolled(self, high_watermark: Offset) -> None:
        """Take in new segments and the growth of the last one's index."""
        size = self._active_size()
        segment = self._segments.active
        last = _last_file(segment)
        if size == last.file_size and high_watermark <= last.next_offset:
            return
        if newest_base(self.fs, self.directory) != segment.base_offset:
            self.refresh()
            size = self._active_size()
            segment = self._segments.active
            last = _last_file(segment)
        last.file_size = size
        last.next_offset = Offset(max(high_watermark, segment.base_offset))
        segment.handles.release()

    def _active_size(self) -> int:
        """The size of the last file. Lists the files again if it was rolled and replaced."""
        for _ in range(LOOKS_MAX):
            try:
                return self._segments.active.file().size()
            except FileNotFoundError:
                self.refresh()
        return self._segments.active.file().size()

    def _end_of_sound_batches(self) -> Offset:
        """Where the sound batches of the last segment end.

        Computed again only if the file changes; always, if batches may take the place of zeros.
        """
        if newest_base(self.fs, self.directory) != self._segments.active.base_offset:
            self.refresh()
        segment = self._segments.active
        last = _last_file(segment)
        size = segment.file().size()
        key = (segment.base_offset, size)
        if self._sound_end is None or self._sound_end[0] != key or last.has_zeros:
            self._sound_end = (key, _sound_end(segment, size))
            last.file_size, last.next_offset = size, self._sound_end[1]
        return self._sound_end[1]


def _last_file(segment: Segment) -> LastFile:
    last = segment.extent
    assert isinstance(last, LastFile), segment.name
    return last


def _published(marks: LogMarks) -> Offset | None:
    """How far the writer lets readers go; None for a log that Cordwood did not write.

    A writer that ended between the two stores of its high watermark left a durable mark, which
    is never past it.
    """
    return marks.durable if marks.high_watermark is None else marks.high_watermark


def _sound_end(segment: Segment, size: int) -> Offset:
    """Where the sound batches end. The walk starts at the last batch that the index knows."""
    try:
        hint = segment.hint(Offset(segment.base_offset + INT32_MAX))
        return walk_to_end(segment.reader(size=size), hint)
    except CorruptSegmentError as error:
        return error.first_offset
