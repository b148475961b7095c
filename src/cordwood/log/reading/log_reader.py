"""Reading a log: by offset, as records or as Arrow, following its end, by time and by key.

The same code reads a log in the process that writes it and in any other: see `log_source`. It
takes no lock, works on views of the log, and never passes the high watermark. Code of our own
that needs more than records uses the other modules of this room on `LogReader.source`.
"""

import operator
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, overload

from cordwood.errors import LogClosedError, RecordNotFoundError
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record
from cordwood.log.reading.arrow_scan import scan_range
from cordwood.log.reading.key_lookup import KeyLookup
from cordwood.log.reading.log_range import (
    LogRange,
    arrow_reader,
    arrow_stream,
    newest,
    newest_first,
    range_of,
)
from cordwood.log.reading.log_source import LogSource, LogView, open_view
from cordwood.log.reading.record_walk import (
    follow_records,
    plan_read,
    planned_records,
    planned_runs,
)
from cordwood.log.reading.segment_info import SegmentInfo, describe_segments
from cordwood.log.reading.single_record import record_at
from cordwood.log.reading.time_lookup import offset_for_time
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.quantities import Offset, timestamp_of

if TYPE_CHECKING:
    import pyarrow as pa


class LogReader:
    """One partition, for reading. Any thread may use it."""

    def __init__(self, topic: str, partition: int, source: LogSource) -> None:
        self.name = f"{topic}-{partition}"
        self.topic = topic
        self.partition = partition
        self.source = source
        self.keys = KeyLookup(source)

    def __repr__(self) -> str:
        if self.is_closed:
            return f"{type(self).__name__}({self.name!r}, closed)"
        view = self.source.view()
        return (
            f"{type(self).__name__}({self.name!r}, offsets [{view.start}, {view.high_watermark}))"
        )

    @property
    def is_closed(self) -> bool:
        """Whether the log, or its store, is closed."""
        return self.source.is_closed

    # --- as a sequence -----------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Always true: an empty log is a log."""
        return True

    def __len__(self) -> int:
        """The number of offsets that can be read. Compaction may have left fewer records."""
        view = open_view(self.source)
        return view.high_watermark - view.start

    def __iter__(self) -> Iterator[Record]:
        return self.read()

    def __reversed__(self) -> Iterator[Record]:
        """The records from the newest to the oldest."""
        view = open_view(self.source)
        return newest_first(self.source, view.start, view.high_watermark)

    @overload
    def __getitem__(self, wanted: int) -> Record: ...
    @overload
    def __getitem__(self, wanted: slice) -> LogRange: ...
    def __getitem__(self, wanted: int | slice) -> Record | LogRange:
        """``log[7]`` is the record with offset 7, ``log[-1]`` the newest record.

        ``log[7:10]`` is a `LogRange`, cut off at the ends of the log as slices of lists are.
        Raises `OffsetOutOfRangeError`, which is an `IndexError`, and `RecordNotFoundError` if
        compaction removed the record or the offset is that of a transaction's marker.
        """
        if isinstance(wanted, slice):
            return range_of(self.source, wanted)
        offset = operator.index(wanted)
        if offset < 0:
            return newest(self.source, -offset)
        record = record_at(self.source, Offset(offset))
        if record is None:
            raise RecordNotFoundError(self.name, Offset(offset))
        return record

    def get(self, offset: int) -> Record | None:
        """The record with that offset; None if compaction removed it, or it is a marker.

        Raises `OffsetOutOfRangeError` unless it is in [start_offset, high_watermark).
        """
        return record_at(self.source, Offset(operator.index(offset)))

    # --- boundaries --------------------------------------------------------------------------

    def view(self) -> LogView:
        """The log as it is now: its segments and what can be read of them."""
        return self.source.view()

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.source.view().start

    @property
    def local_start_offset(self) -> Offset:
        """The first offset held in the log's own directory; earlier ones are archived."""
        return self.source.local_start_offset

    @property
    def high_watermark(self) -> Offset:
        """The first offset that cannot be read yet."""
        return self.source.high_watermark

    @property
    def end_offset(self) -> Offset:
        """The offset the next record will get. Without the log's writer: the high watermark."""
        return self.source.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of an open transaction; the high watermark if there is none."""
        return self.source.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """The size of all log files together."""
        return self.source.view().segments.size

    def segments(self) -> list[SegmentInfo]:
        """Every segment, oldest first."""
        self._check_open()
        return describe_segments(self.source)

    # --- records -----------------------------------------------------------------------------

    def read(
        self,
        start: int | None = None,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Records from `start` (default: the first) up to `stop` or the high watermark.

        Raises `OffsetOutOfRangeError` at once when `start` is not in [start_offset,
        high_watermark]. Gaps that compaction left are skipped. If segments are compacted during
        the read, it goes on to the new high watermark, so that no key is missing. With `isolation`
        "read_committed" it ends before the first open transaction and leaves out the records of
        aborted transactions.
        """
        plan = plan_read(self.source, start, stop, isolation)
        if max_records is None:
            return planned_records(self.source, plan)
        return _first_records(planned_runs(self.source, plan), max_records)

    def follow(
        self,
        start: int | None = None,
        *,
        idle_timeout_ms: int | None = None,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Records from `start` (default: the end) on, waiting for new ones as long as it takes.

        Ends when the log is closed, or after `idle_timeout_ms` without a new record. Existing
        records come first, so replay and tail are the same call. With `isolation`
        "read_committed" the records of a transaction come when it is committed; see `read`.
        """
        is_committed_only(isolation)  # raises for an unknown one, before anything is read
        view = open_view(self.source)
        first, _ = view.readable(view.high_watermark if start is None else start, None)
        timeout_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
        return follow_records(self.source, first, timeout_s, isolation)

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

        Only the named `columns` are built; by default all of them. With `threads` above 1,
        several parts of the range are read at once and returned in order. For `isolation` see
        `read`.
        """
        _, batches = scan_range(
            self.source, start, stop, columns, threads=threads, isolation=isolation
        )
        return batches

    def to_arrow(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> "pa.Table":
        """The same records as one Arrow table, in memory. See `scan`."""
        return self.arrow_reader(
            start, stop, columns=columns, threads=threads, isolation=isolation
        ).read_all()

    def arrow_reader(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int = 1,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> "pa.RecordBatchReader":
        """The same records as a stream that other libraries read, for example DuckDB. See `scan`.

        It reads when it is read, so a log of any size needs little memory.
        """
        return arrow_reader(self.source, start, stop, columns, threads=threads, isolation=isolation)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All records, for any library that takes Arrow: ``polars.DataFrame(log)``."""
        return arrow_stream(self.arrow_reader(), requested_schema)

    # --- times and keys ----------------------------------------------------------------------

    def offset_for_time(self, timestamp_ms: int | datetime) -> Offset | None:
        """The first offset whose record has that timestamp or a later one; None past the end.

        The time is in milliseconds, or a `datetime` with a zone. -1, -2 and -3 stand for the end,
        the start, and the record with the largest timestamp.
        """
        self._check_open()
        return offset_for_time(self.source, timestamp_of(timestamp_ms))

    def find(self, key: bytes) -> Record | None:
        """The newest record with that key; None if there is none. A tombstone counts.

        Searches segments from the newest to the oldest. Uses their key indexes if the topic has
        `key.index=true`, and reads the segments otherwise.
        """
        checked = _checked_key(key)
        self._check_open()
        return self.keys.newest(checked)

    def history(self, key: bytes) -> Iterator[Record]:
        """Every record with that key, oldest first. It searches as `find` does."""
        checked = _checked_key(key)
        self._check_open()
        return self.keys.history(checked)

    def _check_open(self) -> None:
        if self.source.is_closed:
            raise LogClosedError(self.name)


def _first_records(runs: Iterator[RecordRun], left: int) -> Iterator[Record]:
    for run in runs:
        if len(run) >= left:
            run.end = run.start + left
            yield from run.records()
            return
        yield from run.records()
        left -= len(run)


def _checked_key(key: bytes) -> bytes:
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise TypeError(f"key must be bytes, not {type(key).__name__}")
    return bytes(key)
