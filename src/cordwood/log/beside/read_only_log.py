"""A log read by a process that does not own it: beside a live writer, or of a dead one.

Nothing is ever written. How far reading may go is what the writer publishes in the mapped
`high-watermark` file; where there is none, as in a directory that Kafka wrote, it is the end of
the sound batches.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.errors import CorruptSegmentError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.beside.followed_log import FollowedLog
from cordwood.log.beside.producer_listing import read_producers
from cordwood.log.beside.transaction_tail import TransactionTail, begin_tail, extend_tail
from cordwood.log.partition.log_loader import read_epochs
from cordwood.log.partition.upkeep_outlook import plan_retention_of, summarize_log
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchiveJoin
from cordwood.log.reading.log_reader import LogView
from cordwood.log.reading.log_start import known_start
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.compaction_plan import CompactionPlan, plan_compaction
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.high_watermark_file import HighWatermarkFile, LogMarks
from cordwood.storage.recovery import find_files
from cordwood.storage.segment import Segment, SegmentLimits
from cordwood.storage.segment_times import find_largest

if TYPE_CHECKING:
    from cordwood.log.compaction.compaction_forecast import CompactionForecast

Plan = TypeVar("Plan")

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
        self._transactions: TransactionTail | None = None

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

    @property
    def archived_up_to(self) -> Offset | None:
        """Everything below has a copy in the archive; None without one."""
        return None if self._archive is None else self._archive.source.state().end

    # --- transactions ------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        tail = self._tail()
        return max(tail.last_stable_offset, self._local_view().start)

    def _aborted(self, start: int, stop: int) -> list[AbortedTransaction]:
        known = {(t.producer_id, t.first_offset): t for t in super()._aborted(start, stop)}
        for transaction in self._tail().overlapping(start, stop):
            known.setdefault((transaction.producer_id, transaction.first_offset), transaction)
        return list(known.values())

    def _tail(self) -> TransactionTail:
        """The transactions at the end of the log, up to the high watermark."""
        try:
            return self._followed_tail(self._local_view())
        except FileNotFoundError:
            self._refresh()  # deleted or replaced meanwhile
            return self._followed_tail(self._local_view())

    def _followed_tail(self, view: LogView) -> TransactionTail:
        tail = self._transactions
        if tail is None or not view.segments.first_offset <= tail.offset <= view.high_watermark:
            tail = begin_tail(self._fs, self.directory, view.segments)
        if tail.offset < view.high_watermark:
            tail = extend_tail(tail, view.segments, view.high_watermark, self._bound)
        self._transactions = tail
        return tail

    # --- what its owner would do -------------------------------------------------------------

    def plan_retention(self, config: TopicConfig, now_ms: TimestampMs) -> RetentionPlan:
        """What retention would do now, as the owner of the log plans it."""

        def plan() -> RetentionPlan:
            view = self.view()
            return plan_retention_of(
                view,
                config,
                topic=self.topic,
                partition=self.partition,
                now_ms=now_ms,
                archived_up_to=self.archived_up_to,
                largest=lambda segment: self._largest_of(view, segment),
            )

        return self._while_files_go(plan)

    def plan_compaction(
        self,
        config: TopicConfig,
        now_ms: TimestampMs,
        *,
        cleaned_up_to: Offset | None,
        force: bool = False,
    ) -> CompactionPlan:
        """What compaction would do now, as the owner plans it: with `force` it rolls first.

        `cleaned_up_to` is the cleaner's checkpoint. What a crash of the machine would still
        undo is taken as settled: the owner syncs it before it compacts.
        """

        def plan() -> CompactionPlan:
            view = self._local_view()
            summary = summarize_log(
                view,
                config,
                fs=self._fs,
                topic=self.topic,
                partition=self.partition,
                end_offset=view.high_watermark,
                settled=self.last_stable_offset,
                checkpoint=cleaned_up_to,
                is_rolled=force,
            )
            return plan_compaction(summary, config, now_ms=now_ms, force=force)

        return self._while_files_go(plan)

    def forecast_compaction(
        self,
        config: TopicConfig,
        plan: CompactionPlan,
        now_ms: TimestampMs,
        *,
        pace: Callable[[int], None],
    ) -> "CompactionForecast":
        """What following `plan` would leave of the log. Reads all of it; `pace` hears of bytes."""
        # What a compaction needs takes a while to load, and few readers ask for this.
        from cordwood.log.compaction.compaction_forecast import forecast_compaction
        from cordwood.log.partition.segment_replacement import CompactionSource

        def forecast() -> "CompactionForecast":
            view = self._local_view()
            producers = read_producers(self._fs, self.directory, view, now_ms)
            last_offsets, marker_epochs = producers.last_batches(now_ms)
            source = CompactionSource(
                name=self.name,
                directory=self.directory,
                fs=self._fs,
                config=config,
                limits=self._limits,
                segments=view.segments,
                start_offset=view.start,
                cut_count=0,
                last_offsets=last_offsets,
                marker_epochs=marker_epochs,
            )
            return forecast_compaction(source, plan, now_ms=now_ms, pace=pace)

        return self._while_files_go(forecast)

    def _largest_of(self, view: LogView, segment: Segment) -> TimestampMs:
        """The newest time of a segment. The last one grows: what was found before says little."""
        if segment is view.segments.active:
            return find_largest(segment)[0]
        return segment.largest_timestamp[0]

    def _while_files_go(self, plan: Callable[[], Plan]) -> Plan:
        """`plan`, made again where the owner took a file away under it."""
        for _ in range(_SWAP_LOOKS):
            try:
                return plan()
            except FileNotFoundError:
                self._refresh()
        return plan()

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
