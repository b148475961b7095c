"""Records by their time: the first at or after one, and the one with the largest.

The time index of a segment leads near the place, the batches from there on say where it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordwood.errors import FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.log.reading.file_range import Bound
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.segment import Segment
from cordwood.storage.segment_times import is_true_entry

if TYPE_CHECKING:
    from cordwood.log.reading.log_reader import LogView

Largest = Callable[[Segment], tuple[TimestampMs, Offset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMatch:
    """A record found by time."""

    offset: Offset
    timestamp_ms: TimestampMs


class TimeLookup:
    """In one view of a log. `largest` tells a segment's largest timestamp, and who has it."""

    def __init__(self, view: "LogView", *, bound: Bound, largest: Largest) -> None:
        self._view = view
        self._bound = bound
        self._largest_of = largest

    def first_at(self, target: TimestampMs) -> TimeMatch | None:
        """The first record at `target` or later."""
        view = self._view
        for index, segment in enumerate(view.segments):
            if view.segments.end_of(index) <= view.start:
                continue
            if self._largest_of(segment)[0] < target:
                continue
            match = self._first_within(segment, target)
            if match is not None:
                return match
        return None

    def _first_within(self, segment: Segment, target: TimestampMs) -> TimeMatch | None:
        try:
            entry = segment.time_index.lookup(TimestampMs(target - 1))
            near = entry[1] if is_true_entry(segment, entry) else segment.base_offset
        except (FormatError, OSError):
            near = segment.base_offset
        start = max(near, segment.base_offset, self._view.start)
        for run in self._timed_runs(segment, start, target):
            row = record_table.first_row_at_time(run.table, run.start, run.end, target)
            if row < run.end:
                return _match(run, row)
        return None

    def _timed_runs(
        self, segment: Segment, start: Offset, target: TimestampMs
    ) -> Iterator[RecordRun]:
        """The records of each batch that may hold one at `target` or later.

        Control records have a place in time too: they count here, as they do in Kafka.
        """
        reader = segment.reader(size=self._bound(segment))
        position = reader.locate(start, segment.hint(start))
        if position is None:
            return
        decoder, stop = reader.decoder, self._view.high_watermark
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
        for index, segment in enumerate(self._view.segments):
            if self._view.segments.end_of(index) <= self._view.start:
                continue
            if best is not None and self._largest_of(segment)[0] <= best.timestamp_ms:
                continue
            match = self._max_within(segment, best)
            best = match if match is not None else best
        return best

    def _max_within(self, segment: Segment, best: TimeMatch | None) -> TimeMatch | None:
        largest = NO_TIMESTAMP if best is None else best.timestamp_ms
        found: TimeMatch | None = None
        timestamp, last_offset = self._largest_of(segment)
        # The batch that holds the largest timestamp ends with `last_offset`.
        start = (
            self._view.start
            if timestamp == NO_TIMESTAMP
            else max(self._view.start, segment.base_offset)
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
