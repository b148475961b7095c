"""Reading a log: by offset, as records or as Arrow, following its end, looking up times and keys.

The same code reads a log in the process that writes it and in any other. It takes no lock: it
works on a view of the segments and never goes past the high watermark of that view. Segments
may vanish under it, by retention, or be replaced, by compaction; then it takes a new view.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    InvalidTimestampError,
    LogClosedError,
    OffsetOutOfRangeError,
)
from cordwood.format.batch import RecordRun
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.record import Record
from cordwood.log.reading.file_range import FileRange, find_range
from cordwood.log.reading.key_lookup import KeyTail, history_of_key, newest_of_key
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.reading.time_lookup import TimeLookup, TimeMatch
from cordwood.log.rules.isolation import (
    READ_UNCOMMITTED,
    AbortedBatches,
    Isolation,
    is_committed_only,
)
from cordwood.quantities import MIB, NO_TIMESTAMP, FilePosition, Offset, TimestampMs
from cordwood.storage.segment import Segment
from cordwood.storage.segment_reader import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa

# Timestamps with a meaning of their own, as in Kafka's ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

_PARALLEL_RANGE_BYTES: Final = 16 * MIB


class LogView(NamedTuple):
    """One consistent view of a log; a new view replaces it, nothing edits it.

    Invariant: ``start <= high_watermark``. Offsets in [start, high_watermark) may be read.
    """

    segments: SegmentList
    start: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """A segment as people see it. Timestamps are None where no record has one."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    state: str  # active, sealed, compacted, archived
    created_ms: TimestampMs
    first_timestamp_ms: TimestampMs | None
    last_timestamp_ms: TimestampMs | None
    path: str


class LogReader(ABC):
    """The reading half of a log."""

    topic: str
    partition: int
    _key_tail: KeyTail | None = None

    # --- what the two kinds of log provide ---------------------------------------------------

    @abstractmethod
    def view(self) -> LogView:
        """The log as it is now."""

    @abstractmethod
    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        """Block until the high watermark is past `offset`; False at the timeout or when closed."""

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

    @property
    @abstractmethod
    def last_stable_offset(self) -> Offset:
        """First offset that an open transaction may still undo; the high watermark without one."""

    @property
    @abstractmethod
    def allows_gaps(self) -> bool:
        """Whether missing offsets are compaction's doing rather than damage."""

    @abstractmethod
    def _bound(self, segment: Segment) -> int:
        """Bytes of `segment` that may be looked at."""

    @abstractmethod
    def _refresh(self) -> None:
        """A file of the last view is gone: look again, if someone else changes the files."""

    # --- boundaries --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.view().start

    @property
    def high_watermark(self) -> Offset:
        """The first offset that cannot be read yet."""
        return self.view().high_watermark

    @property
    def size_bytes(self) -> int:
        return self.view().segments.size

    def segments(self) -> list[SegmentInfo]:
        """Every segment, oldest first."""
        segments = self.view().segments
        return [self._info(segments, index) for index in range(len(segments))]

    def _state(self, segment: Segment, end: Offset, *, is_active: bool) -> str:
        """Where in its life a segment is; `end` is where the next one begins."""
        if segment.is_archived:
            return "archived"
        return "active" if is_active else "sealed"

    def _info(self, segments: SegmentList, index: int) -> SegmentInfo:
        segment = segments[index]
        is_active = index == len(segments) - 1
        last, _ = segment.largest_timestamp
        return SegmentInfo(
            base_offset=segment.base_offset,
            next_offset=segments.end_of(index),
            size_bytes=self._bound(segment),
            state=self._state(segment, segments.end_of(index), is_active=is_active),
            created_ms=segment.created_ms if segment.created_ms >= 0 else segment.modified_ms(),
            first_timestamp_ms=segment.first_timestamp(),
            last_timestamp_ms=None if last == NO_TIMESTAMP else last,
            path=segment.name,
        )

    # --- records -----------------------------------------------------------------------------

    def read(
        self,
        start: int | None = None,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Records from `start` (default: the first) up to `stop` or what can be read now.

        Raises `OffsetOutOfRangeError` at once when `start` is not in [start_offset,
        high_watermark]. Gaps that compaction left are skipped. With `isolation`
        "read_committed" it ends before the first transaction that is not decided, and leaves
        out those that were aborted.
        """
        first, end, hidden = self._isolated(start, stop, isolation)
        if max_records is None:
            # No frame of ours between a record and its reader: a third of the time per record.
            return chain.from_iterable(run.records() for run in self._runs(first, end, hidden))
        return self._first_records(self._runs(first, end, hidden), max_records)

    def _first_records(self, runs: Iterator[RecordRun], left: int) -> Iterator[Record]:
        for run in runs:
            if len(run) >= left:
                run.end = run.start + left
                yield from run.records()
                return
            yield from run.records()
            left -= len(run)

    def follow(
        self,
        start: int | None = None,
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Records from `start` (default: the end) on, waiting for new ones as long as it takes.

        Ends when the log is closed, or after `idle_timeout_ms` without a new record. Replay and
        tail are the same call: what is there already comes first. On `isolation` see `read`: a
        transaction's records come when it is committed.
        """
        only_committed = is_committed_only(isolation)
        first, _ = self._range(self.view().high_watermark if start is None else start, None)
        timeout_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
        return self._follow(first, timeout_s, only_committed=only_committed)

    def _follow(
        self, offset: Offset, timeout_s: float | None, *, only_committed: bool
    ) -> Iterator[Record]:
        while not self.is_closed:
            high_watermark = self.view().high_watermark
            end = self.last_stable_offset if only_committed else high_watermark
            if end > offset:
                hidden = self._hidden(offset, end) if only_committed else None
                for run in self._runs(offset, end, hidden):
                    yield from run.records()
                offset = end
            # An undecided transaction holds the end back until its marker moves the watermark.
            elif not self.wait_beyond(max(offset, high_watermark), timeout_s):
                return

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator["pa.RecordBatch"]:
        """The same records as Arrow record batches, in offset order.

        `columns` leaves out what is not needed. With `threads` above 1, several parts of the
        range are read at once and handed out in order. On `isolation` see `read`.
        """
        from cordwood.format.arrow_columns import COLUMN_NAMES, arrow_schema  # imports pyarrow

        first, end, hidden = self._isolated(start, stop, isolation)
        names = tuple(COLUMN_NAMES if columns is None else columns)
        arrow_schema(names)  # refuses unknown names before anything is read
        if threads <= 1:
            return self._batches(first, end, names, hidden)
        return self._parallel_batches(first, end, names, hidden, threads)

    def _batches(
        self,
        start: Offset,
        stop: Offset,
        columns: tuple[str, ...],
        hidden: AbortedBatches | None,
    ) -> Iterator["pa.RecordBatch"]:
        from cordwood.format.arrow_columns import ArrowColumns

        collected = ArrowColumns(columns)
        for run in self._runs(start, stop, hidden):
            yield from collected.add(run)
        yield from collected.take()

    def _parallel_batches(
        self,
        start: Offset,
        stop: Offset,
        columns: tuple[str, ...],
        hidden: AbortedBatches | None,
        threads: int,
    ) -> Iterator["pa.RecordBatch"]:
        ranges = iter(self.split(start, stop, target_bytes=_PARALLEL_RANGE_BYTES))
        pending: list[Future[list[pa.RecordBatch]]] = []
        with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-scan") as pool:

            def submit() -> None:
                part = next(ranges, None)
                if part is not None:
                    pending.append(pool.submit(lambda: list(self._batches(*part, columns, hidden))))

            for _ in range(threads + 1):
                submit()
            while pending:
                batches = pending.pop(0).result()
                submit()
                yield from batches

    def runs(
        self, start: int, stop: int, *, isolation: Isolation = READ_UNCOMMITTED
    ) -> Iterator[RecordRun]:
        """The same records as they were parsed, for whoever makes columns of their own.

        Each run is valid until the next is asked for. Raises as `read` does.
        """
        return self._runs(*self._isolated(start, stop, isolation))

    def split(
        self, start: Offset, stop: Offset, *, target_bytes: int
    ) -> list[tuple[Offset, Offset]]:
        """Cut [start, stop) into consecutive ranges of about `target_bytes` of log each.

        Cuts fall on segment boundaries and index entries, so each part starts with one seek.
        """
        segments = self.view().segments
        cuts: list[Offset] = [start]
        for index in range(max(segments.floor(start), 0), len(segments)):
            segment = segments[index]
            if segment.base_offset >= stop:
                break
            candidates = [segment.base_offset, *_cuts_within(segment, target_bytes)]
            for offset in candidates:
                if cuts[-1] < offset < stop:
                    cuts.append(offset)
        return list(zip(cuts, [*cuts[1:], stop], strict=True)) if start < stop else []

    # --- zero copy ---------------------------------------------------------------------------

    def read_range(
        self,
        offset: int,
        *,
        max_bytes: int,
        min_one_batch: bool = True,
        stop: int | None = None,
    ) -> FileRange | None:
        """Where the batches from `offset` on lie in a file: for sendfile. None at the end.

        The first batch may begin before `offset`; the last may be cut short by `max_bytes`,
        but with `min_one_batch` the first one is whole, however large. None of them begins at
        `stop` or later. Raises `OffsetOutOfRangeError` below the start and past the high
        watermark.
        """
        first, end = self._range(offset, stop)
        return find_range(
            self.view(),
            first,
            end,
            bound=self._bound,
            allows_gaps=self.allows_gaps,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
        )

    def aborted_transactions(self, start: int, stop: int) -> list[tuple[int, Offset]]:
        """Producer id and first offset of each aborted transaction with records in the range."""
        return [(t.producer_id, t.first_offset) for t in self._aborted(start, stop)]

    def _aborted(self, start: int, stop: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in the range, as the segments' indexes know."""
        return self.view().segments.aborted_transactions(Offset(start), Offset(stop))

    # --- times and keys ----------------------------------------------------------------------

    def offset_for_time(self, timestamp_ms: int) -> Offset | None:
        """The first offset whose record has that timestamp or a later one; None past the end.

        -1, -2 and -3 stand for the end, the start, and the record with the largest timestamp.
        """
        if timestamp_ms == LATEST:
            return self.view().high_watermark
        if timestamp_ms == EARLIEST:
            return self.view().start
        match = self.find_time(timestamp_ms)
        return None if match is None else match.offset

    def find_time(self, timestamp_ms: int) -> TimeMatch | None:
        """As `offset_for_time`, for a timestamp or MAX_TIMESTAMP, with the record's own time."""
        lookup = TimeLookup(self.view(), bound=self._bound, largest=self._largest)
        if timestamp_ms == MAX_TIMESTAMP:
            return lookup.largest()
        if timestamp_ms < 0:
            raise InvalidTimestampError(
                f"timestamp {timestamp_ms} has no meaning; use -1, -2, -3 or 0 and up"
            )
        return lookup.first_at(TimestampMs(timestamp_ms))

    def _largest(self, segment: Segment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def find(self, key: bytes) -> Record | None:
        """The newest record with that key; None when there is none. A tombstone counts.

        Looks through segments from the newest to the oldest, by their key indexes where the
        topic has `key.index=true`.
        """
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"key must be bytes, not {type(key).__name__}")
        return newest_of_key(self, bytes(key))

    def history(self, key: bytes) -> Iterator[Record]:
        """Every record with that key, oldest first, by the same ways as `find`."""
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"key must be bytes, not {type(key).__name__}")
        if self.is_closed:
            raise LogClosedError(self.name)
        return history_of_key(self, bytes(key))

    def batches_of(self, view: LogView, index: int, key: bytes) -> list[FilePosition] | None:
        """Where in one segment of `view` batches lie that may hold `key`; None: nobody knows."""
        segment = view.segments[index]
        if index < len(view.segments) - 1:
            return segment.batches_of(key, size=segment.size)
        if not self._remembers_keys(view):
            return None
        if self._key_tail is None:
            self._key_tail = KeyTail()
        size, stop = self._bound(segment), view.high_watermark
        return self._key_tail.batches_of(key, segment, size=size, stop=stop)

    def _remembers_keys(self, view: LogView) -> bool:
        """Whether the keys of the last segment are worth remembering."""
        return False

    def look_again(self, view: LogView) -> bool:
        """A file of `view` is gone: whether that is because the log went on since."""
        self._refresh()
        return self.view().segments is not view.segments

    # --- the walk ----------------------------------------------------------------------------

    def _range(self, start: int | None, stop: int | None) -> tuple[Offset, Offset]:
        if self.is_closed:
            raise LogClosedError(self.name)
        view = self.view()
        first = view.start if start is None else Offset(operator.index(start))
        if not view.start <= first <= view.high_watermark:
            raise OffsetOutOfRangeError(first, start=view.start, end=view.high_watermark)
        end = view.high_watermark if stop is None else min(Offset(stop), view.high_watermark)
        return first, Offset(max(first, end))

    def _isolated(
        self, start: int | None, stop: int | None, isolation: Isolation
    ) -> tuple[Offset, Offset, AbortedBatches | None]:
        """What is to be read of [start, stop), and the batches that are not to be shown."""
        if not is_committed_only(isolation):
            return *self._range(start, stop), None
        # Stable first: what is stable by now is decided in the indexes that are asked then.
        stable = self.last_stable_offset
        first, end = self._range(start, stop)
        end = max(first, min(end, stable))
        return first, end, self._hidden(first, end)

    def _hidden(self, start: Offset, stop: Offset) -> AbortedBatches | None:
        return AbortedBatches(self._aborted(start, stop) if start < stop else ()) or None

    def _runs(
        self, start: Offset, stop: Offset, hidden: AbortedBatches | None = None
    ) -> Iterator[RecordRun]:
        """Parsed records with offsets in [start, stop), over as many segments as it takes."""
        offset = start
        reader: SegmentReader | None = None
        while offset < stop:
            view = self.view()
            if offset < view.start:
                raise OffsetOutOfRangeError(offset, start=view.start, end=view.high_watermark)
            index = max(view.segments.floor(offset), 0)
            segment = view.segments[index]
            try:
                fresh = segment.reader(size=self._bound(segment))
            except FileNotFoundError:
                self._refresh()
                if self.view().segments is view.segments:
                    raise
                continue
            if reader is not None:
                fresh.take_buffers_of(reader)
            reader = fresh
            is_last = index == len(view.segments) - 1
            end = stop if is_last else min(stop, view.segments[index + 1].base_offset)
            try:
                yield from self._reader_runs(reader, segment, offset, stop, hidden)
            except CorruptSegmentError as error:
                if self._was_replaced(view):
                    offset = max(offset, reader.next_offset)
                    continue
                raise _with_next(error, None if is_last else end) from None
            self._check_gap(segment, reader, end)
            offset = end

    def segment_runs(self, segment: Segment, start: Offset, stop: Offset) -> Iterator[RecordRun]:
        reader = segment.reader(size=self._bound(segment))
        return self._reader_runs(reader, segment, start, stop)

    def _was_replaced(self, view: LogView) -> bool:
        """What does not fit `view` may fit the log: sealed segments were replaced meanwhile."""
        self._refresh()
        return _sealed_shape(self.view()) != _sealed_shape(view)

    def _reader_runs(
        self,
        reader: SegmentReader,
        segment: Segment,
        start: Offset,
        stop: Offset,
        hidden: AbortedBatches | None = None,
    ) -> Iterator[RecordRun]:
        position = reader.locate(start, segment.hint(start))
        if position is None:
            return
        decoder = reader.decoder
        for first, end in reader.chunks(
            position, reader.next_offset, start_offset=start, stop_offset=stop
        ):
            shown = [(first, end)] if hidden is None else hidden.left_over(decoder, first, end)
            try:
                for part in shown:
                    yield from decoder.runs(*part, start_offset=start, stop_offset=stop)
            except FormatError as error:
                # The checksum was right, so the batch was written like this: name the place.
                error.add_note(f"in {segment.name}, behind byte {reader.chunk_position}")
                raise

    def _check_gap(self, segment: Segment, reader: SegmentReader, end: Offset) -> None:
        """Offsets that no batch holds are damage, unless compaction may have removed them."""
        if reader.next_offset < end and not self.allows_gaps:
            raise CorruptSegmentError(
                segment.name,
                reader.position,
                "the file ends before the records that should follow",
                first_offset=reader.next_offset,
                next_offset=end,
            )


def _sealed_shape(view: LogView) -> list[tuple[Offset, int]]:
    return [(segment.base_offset, segment.size) for segment in list(view.segments)[:-1]]


def _with_next(error: CorruptSegmentError, following: Offset | None) -> CorruptSegmentError:
    """The same error, naming where reading goes on when that is in the next segment."""
    if error.next_offset is not None or following is None:
        return error
    return CorruptSegmentError(
        error.name,
        error.position,
        error.reason,
        first_offset=error.first_offset,
        next_offset=following,
    )


def _cuts_within(segment: Segment, target_bytes: int) -> Iterator[Offset]:
    """Offsets that begin a stretch of about `target_bytes` each, as the index knows them."""
    wanted = target_bytes
    while wanted + target_bytes // 2 < segment.size:
        last_offset = segment.offset_index.upper_bound(FilePosition(wanted), 0)
        if last_offset is None:
            return
        yield Offset(last_offset + 1)
        wanted += target_bytes
