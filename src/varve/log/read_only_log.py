"""A log read by a process that does not own it: beside a live writer, or of a dead one.

Nothing is ever written. How far reading may go is what the writer publishes in the mapped
`high-watermark` file; where there is none, as in a directory that Kafka wrote, it is the end of
the sound batches.
"""

import time
from typing import Final

from varve.errors import CorruptSegmentError
from varve.log.archived_segments import ArchivedSegments, ArchiveJoin
from varve.log.followed_log import FollowedLog
from varve.log.known_start import known_start
from varve.log.log_loader import read_epochs
from varve.log.log_reader import LogView
from varve.log.segment_list import SegmentList
from varve.quantities import INT32_MAX, INT64_MAX, Offset, TimestampMs
from varve.storage.files import FileSystem
from varve.storage.handle_cache import HandleCache
from varve.storage.high_watermark_file import HighWatermarkFile, LogMarks
from varve.storage.recovery import find_files
from varve.storage.segment import Segment, SegmentLimits

_SWAP_LOOKS: Final = 20  # then its owner is gone, and the next one finishes it
_SWAP_PAUSE_S: Final = 0.005


class ReadOnlyLog(FollowedLog):
    """One partition, read from its files. Any thread may use it."""

    _PAUSE_S_MIN = 0.001  # each look reads the mapped mark, or the size of the last file
    _PAUSE_S_MAX = 0.05
    _PAUSE_GROWTH = 1.5

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic: str,
        partition: int,
        *,
        handles: HandleCache,
        log_start: Offset | None,
        allows_gaps: bool,
    ) -> None:
        super().__init__(topic, partition, allows_gaps=allows_gaps)
        self.directory = directory
        self._fs = fs
        self._handles = handles
        self._limits = SegmentLimits(
            index_bytes_max=0, index_interval_bytes=0, is_dense=not allows_gaps
        )
        self._marks = HighWatermarkFile(fs, directory, writable=False)
        self._archive: ArchiveJoin | None = None
        # Kafka shortens the indexes of its active segment in place; a map would then be fatal.
        self._is_ours = _published(self._marks.read()) is not None
        self._segments = self._list()
        self._log_start = known_start(
            directory,
            first_base=self._segments.first_offset,
            mark=self._marks.read().log_start,
            checkpoint=log_start,
            epochs=read_epochs(fs, directory),
        )
        self._sound_end: tuple[tuple[int, int], Offset] | None = None

    # --- what readers need -------------------------------------------------------------------

    def attach_archive(self, source: ArchivedSegments | None) -> None:
        """Read what `source` holds as the beginning of this log."""
        self._archive = None if source is None else ArchiveJoin(source)

    def view(self) -> LogView:
        local = self._local_view()
        return local if self._archive is None else self._archive.over(local)

    @property
    def local_start_offset(self) -> Offset:
        """The first offset held in the log's own directory."""
        return self._local_view().start

    def _local_view(self) -> LogView:
        marks = self._marks.read()
        high_watermark = _published(marks)
        if high_watermark is None:
            high_watermark = self._end_of_sound_batches()
        elif high_watermark > self._segments.active.base_offset:
            self._refresh_if_rolled(high_watermark)
        first = self._segments.first_offset
        known = max(first, marks.log_start or 0, self._log_start)
        start = Offset(min(known, max(high_watermark, first)))
        return LogView(
            segments=self._segments,
            start=start,
            high_watermark=Offset(max(high_watermark, start)),
        )

    def _bound(self, segment: Segment) -> int:
        return segment.size if segment.is_archived else segment.file().size()

    def _largest(self, segment: Segment) -> tuple[TimestampMs, Offset]:
        """Of the last segment only its writer knows: the index lags behind what was appended."""
        if segment is self._segments.active:
            return TimestampMs(INT64_MAX), segment.base_offset
        return segment.largest_timestamp

    def _remembers_keys(self, view: LogView) -> bool:
        """Where the segment before the last has a key index, the topic is one that keeps them."""
        if len(view.segments) == 1:
            return False
        sealed = view.segments[len(view.segments) - 2]
        return sealed.key_index.is_usable(sealed.size)

    def _look_again(self) -> None:
        """Nothing to do: each view looks at the published mark, or at the files."""

    def close(self) -> None:
        self._is_closed = True
        self._marks.close()
        for segment in self._segments:
            segment.close()

    # --- the files ---------------------------------------------------------------------------

    def _list(self) -> SegmentList:
        files = find_files(self._fs, self.directory)
        for _ in range(_SWAP_LOOKS):
            if not files.is_changing:
                break
            time.sleep(_SWAP_PAUSE_S)  # a compaction of the owner puts its result in place
            files = find_files(self._fs, self.directory)
        found = files.segments
        if not found:
            raise FileNotFoundError(f"no segments in {self.directory}")
        ends = [*(segment.base_offset for segment in found[1:]), None]
        segments = [
            Segment.open_sealed(
                self._fs,
                self.directory,
                segment.base_offset,
                size=segment.size,
                next_offset=segment.base_offset if end is None else end,
                handles=self._handles,
                limits=self._limits,
                is_last=end is None,
                mapped=self._is_ours,
            )
            for segment, end in zip(found, ends, strict=True)
        ]
        return SegmentList(segments)

    def _refresh(self) -> None:
        self._segments = self._list()
        if self._archive is not None:
            self._archive.source.refresh()

    def _refresh_if_rolled(self, high_watermark: Offset) -> None:
        """Take in segments that were added since, and the growth of the last one's index."""
        last = self._segments.active
        try:
            size = last.file().size()
        except FileNotFoundError:
            self._refresh()  # rolled since, and deleted
            last = self._segments.active
            size = last.file().size()
        if size == last.size and high_watermark <= last.next_offset:
            return
        fresh = find_files(self._fs, self.directory).segments
        if fresh and fresh[-1].base_offset != last.base_offset:
            self._refresh()
            last = self._segments.active
        last.size = size if last is self._segments.active else last.size
        last.next_offset = high_watermark
        last.release()

    def _end_of_sound_batches(self) -> Offset:
        """Where the last segment stops being sound. Looked for again only when it changes."""
        found = find_files(self._fs, self.directory).segments
        if found and found[-1].base_offset != self._segments.active.base_offset:
            self._refresh()
        last = self._segments.active
        size = last.file().size()
        key = (last.base_offset, size)
        if self._sound_end is None or self._sound_end[0] != key:
            self._sound_end = (key, _sound_end(last, size))
            last.size, last.next_offset = size, self._sound_end[1]
        return self._sound_end[1]


def _published(marks: LogMarks) -> Offset | None:
    """How far the writer lets readers go; None for a log that is not ours.

    A writer that ended between the two stores of its high watermark left a durable mark, which
    is never past it.
    """
    return marks.durable if marks.high_watermark is None else marks.high_watermark


def _sound_end(segment: Segment, size: int) -> Offset:
    """Where the sound batches end: walked from the last one the index knows."""
    reader = segment.reader(size=size)
    last_offset, _ = hint = segment.hint(Offset(segment.base_offset + INT32_MAX))
    try:
        position = reader.locate(last_offset, hint)
        if position is not None:
            for _ in reader.chunks(position, reader.next_offset):
                pass
    except CorruptSegmentError as error:
        return error.first_offset
    return reader.next_offset
