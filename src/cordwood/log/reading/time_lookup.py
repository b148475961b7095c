"""Finding records by time: the first one at or after a time, and the one with the largest.

The time index of a segment gives an offset near the record; the batches from there on are
searched.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

from cordwood.errors import FormatError, InvalidTimestampError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.log.reading.log_source import (
    LogSource,
    has_changed,
    is_overtaken,
    is_replaced,
    replacements_before,
)
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.storage.segment_parts.segment_times import is_true_entry
from cordwood.value_class import dataclass

# Timestamps with a meaning of their own, as in Kafka's ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMatch:
    """A record found by time."""

    offset: Offset
    timestamp_ms: TimestampMs


def offset_for_time(source: LogSource, timestamp_ms: int) -> Offset | None:
    """The first offset whose record has that timestamp or a later one; None past the end.

    `LATEST` and `EARLIEST` stand for the high watermark and the start; else see `find_time`.
    """
    if timestamp_ms == LATEST:
        return source.view().high_watermark
    if timestamp_ms == EARLIEST:
        return source.view().start
    match = find_time(source, timestamp_ms)
    return None if match is None else match.offset


def find_time(source: LogSource, timestamp_ms: int) -> TimeMatch | None:
    """The first record with that timestamp or a later one; None past the end.

    `MAX_TIMESTAMP` stands for the largest timestamp in the log. If a file is deleted or replaced
    meanwhile, the search starts again.
    """
    if timestamp_ms < 0 and timestamp_ms != MAX_TIMESTAMP:
        raise InvalidTimestampError(
            f"timestamp {timestamp_ms} has no meaning; use -1, -2, -3 or 0 and up"
        )
    for rounds in count():
        before = replacements_before(source, rounds=rounds)
        search = _TimeSearch(source)
        try:
            if timestamp_ms == MAX_TIMESTAMP:
                match = search.largest()
            else:
                match = search.first_at(TimestampMs(timestamp_ms))
            if match is not None:
                return match
            if not is_overtaken(source, before, search.view.high_watermark):
                return None
        except FileNotFoundError:
            if not has_changed(source, search.view):
                raise
    raise AssertionError


class _TimeSearch:
    """Searches one view of a log."""

    def __init__(self, source: LogSource) -> None:
        self.view = source.view()
        self._source = source
        self._readable_bytes = source.readable_bytes
        self._largest_of = source.largest_timestamp

    def _relevant(self) -> Iterator[ReadableSegment]:
        """The segments with readable records. `FileNotFoundError` if one was replaced."""
        view = self.view
        for index, segment in enumerate(view.segments):
            if view.segments.end_of(index) <= view.start:
                continue
            if is_replaced(self._source, view, index):
                raise FileNotFoundError(f"{segment.name} was replaced")
            yield segment

    def first_at(self, target: TimestampMs) -> TimeMatch | None:
        """The first record at `target` or later."""
        for segment in self._relevant():
            if self._largest_of(segment)[0] < target:
                continue
            match = self._first_within(segment, target)
            if match is not None:
                return match
        return None

    def _first_within(self, segment: ReadableSegment, target: TimestampMs) -> TimeMatch | None:
        try:
            entry = segment.indexes.time.lookup(TimestampMs(target - 1))
            near = entry[1] if is_true_entry(segment, entry) else segment.base_offset
        except (FormatError, OSError):
            near = segment.base_offset
        start = max(near, segment.base_offset, self.view.start)
        for run in self._timed_runs(segment, start, target):
            row = record_table.first_row_at_time(run.table, run.start, run.end, target)
            if row < run.end:
                return _match(run, row)
        return None

    def _timed_runs(
        self, segment: ReadableSegment, start: Offset, target: TimestampMs
    ) -> Iterator[RecordRun]:
        """The records of each batch that may hold one at `target` or later.

        Control records have timestamps too: they count here, as they do in Kafka.
        """
        stop = self.view.high_watermark
        if start >= stop:
            return  # what lies there may be half-written, or zeros
        reader = segment.reader(size=self._readable_bytes(segment))
        position = reader.locate(start, segment.hint(start))
        if position is None:
            return
        decoder = reader.decoder
        for first, end in reader.chunks(
            position, reader.next_offset, start_offset=start, stop_offset=stop
        ):
            for index in range(first, end):
                if decoder.field(index, tables.B_MAX_TIMESTAMP) >= target:
                    run = decoder.parse(index)
                    run.start = record_table.first_row_at(run.table, run.start, run.end, start)
                    run.end = record_table.first_row_at(run.table, run.start, run.end, stop)
                    yield run

    def largest(self) -> TimeMatch | None:
        """The first record with the largest timestamp."""
        best: TimeMatch | None = None
        for segment in self._relevant():
            if best is not None and self._largest_of(segment)[0] <= best.timestamp_ms:
                continue
            match = self._max_within(segment, best)
            best = match if match is not None else best
        return best

    def _max_within(self, segment: ReadableSegment, best: TimeMatch | None) -> TimeMatch | None:
        largest = NO_TIMESTAMP if best is None else best.timestamp_ms
        found: TimeMatch | None = None
        timestamp, last_offset = self._largest_of(segment)
        # The batch that holds the largest timestamp ends with `last_offset`.
        start = (
            self.view.start
            if timestamp == NO_TIMESTAMP
            else max(self.view.start, segment.base_offset)
        )
        for run in self._timed_runs(segment, start, TimestampMs(largest + 1)):
            row = record_table.first_row_at_time(run.table, run.start, run.end, largest + 1)
            while row < run.end:
                found = _match(run, row)
                largest = found.timestamp_ms
                row = record_table.first_row_at_time(run.table, row + 1, run.end, largest + 1)
            if largest >= timestamp and found is not None and found.offset <= last_offset:
                break
        return found


def _match(run: RecordRun, row: int) -> TimeMatch:
    at = row * tables.RECORD_ROW
    return TimeMatch(
        offset=Offset(run.table[at + tables.R_OFFSET]),
        timestamp_ms=TimestampMs(run.table[at + tables.R_TIMESTAMP]),
    )
