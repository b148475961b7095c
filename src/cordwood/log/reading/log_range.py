"""A part of a log: what `log[10:20]` gives. It reads when it is iterated."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cordwood.format.record import Record
from cordwood.log.reading.arrow_scan import scan_range
from cordwood.log.reading.log_source import LogSource, open_view
from cordwood.log.reading.record_walk import plan_read, planned_records
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.quantities import Offset

if TYPE_CHECKING:
    import pyarrow as pa

# Records from the end are read in steps: few at first, because most callers want one or ten.
_FIRST_STEP: Final = 16
_STEP_MAX: Final = 4096


class LogRange:
    """The records with offsets in [start, stop). Any thread may use it.

    It can be read any number of times. Records that retention deletes meanwhile raise
    `OffsetOutOfRangeError`, as in every other read.
    """

    def __init__(self, source: LogSource, start: Offset, stop: Offset) -> None:
        self._source = source
        self.start = start
        self.stop = stop

    def __repr__(self) -> str:
        return f"LogRange({self._source.name!r}, offsets [{self.start}, {self.stop}))"

    def __bool__(self) -> bool:
        return self.start < self.stop

    def __len__(self) -> int:
        """The number of offsets. Compaction may have left fewer records."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[Record]:
        if self.start >= self.stop:
            return iter(())
        plan = plan_read(self._source, self.start, self.stop, READ_UNCOMMITTED)
        return planned_records(self._source, plan)

    def __reversed__(self) -> Iterator[Record]:
        return newest_first(self._source, self.start, self.stop)

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> "pa.Table":
        """The records as an Arrow table, in memory."""
        return arrow_reader(self._source, self.start, self.stop, columns).read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The records for any library that takes Arrow: pandas, Polars, DuckDB."""
        return arrow_stream(
            arrow_reader(self._source, self.start, self.stop, None), requested_schema
        )


def range_of(source: LogSource, wanted: slice) -> LogRange:
    """The offsets of a slice, as far as they can be read. Negative ones count from the end."""
    if wanted.step not in (None, 1):
        raise ValueError("a slice of a log has no step; use reversed() for newest first")
    view = open_view(source)
    start = _bound(wanted.start, view.start, view.high_watermark, default=view.start)
    stop = _bound(wanted.stop, view.start, view.high_watermark, default=view.high_watermark)
    return LogRange(source, start, max(start, stop))


def _bound(value: int | None, low: Offset, high: Offset, *, default: Offset) -> Offset:
    if value is None:
        return default
    return Offset(min(max(value if value >= 0 else high + value, low), high))


def newest_first(source: LogSource, start: Offset, stop: Offset) -> Iterator[Record]:
    """The records with offsets in [start, stop), from the last to the first."""
    step = _FIRST_STEP
    while stop > start:
        first = Offset(max(start, stop - step))
        yield from reversed(list(LogRange(source, first, stop)))
        stop, step = first, min(step * 4, _STEP_MAX)


def newest(source: LogSource, number: int) -> Record:
    """The record that is the `number`th from the end. Raises `IndexError`."""
    view = open_view(source)
    found = newest_first(source, view.start, view.high_watermark)
    record = next(islice(found, number - 1, None), None)
    if record is None:
        raise IndexError(f"{source.name} has fewer than {number} records")
    return record


def arrow_stream(reader: Any, requested_schema: object | None) -> object:
    """The stream of an Arrow reader, in the form that libraries exchange."""
    return reader.__arrow_c_stream__(requested_schema)


def arrow_reader(
    source: LogSource,
    start: int | None,
    stop: int | None,
    columns: Sequence[str] | None,
    *,
    threads: int = 1,
    isolation: Isolation = READ_UNCOMMITTED,
) -> "pa.RecordBatchReader":
    """The records with offsets in [start, stop) as a stream of Arrow record batches."""
    import pyarrow as pa

    schema, batches = scan_range(source, start, stop, columns, threads=threads, isolation=isolation)
    return pa.RecordBatchReader.from_batches(schema, batches)
