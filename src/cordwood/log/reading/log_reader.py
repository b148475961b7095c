"""Reading a log: by offset, as records or as Arrow, following its end, by time and by key.

The same code reads a log in the process that writes it and in any other: see `log_source`. It
takes no lock, works on views of the log, and never passes the high watermark. Code of our own
that needs more than records uses the other modules of this room on `LogReader.source`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from cordwood.errors import LogClosedError
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record
from cordwood.log.reading.arrow_scan import scan_batches
from cordwood.log.reading.key_lookup import KeyLookup
from cordwood.log.reading.log_source import LogSource, LogView, open_view
from cordwood.log.reading.record_walk import follow_records, plan_read, planned_runs
from cordwood.log.reading.segment_info import SegmentInfo, describe_segments
from cordwood.log.reading.time_lookup import offset_for_time
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.quantities import Offset

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

    @property
    def is_closed(self) -> bool:
        return self.source.is_closed

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
        runs = planned_runs(self.source, plan_read(self.source, start, stop, isolation))
        if max_records is None:
            # No frame of ours between a record and its reader: a third of the time per record.
            return chain.from_iterable(run.records() for run in runs)
        return _first_records(runs, max_records)

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
        only_committed = is_committed_only(isolation)
        view = open_view(self.source)
        first, _ = view.readable(view.high_watermark if start is None else start, None)
        timeout_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
        return follow_records(self.source, first, timeout_s, only_committed=only_committed)

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
        from cordwood.format.arrow_columns import COLUMN_NAMES, arrow_schema  # imports pyarrow

        plan = plan_read(self.source, start, stop, isolation)
        names = tuple(COLUMN_NAMES if columns is None else columns)
        arrow_schema(names)  # refuses unknown names before anything is read
        return scan_batches(self.source, plan, names, threads=threads)

    # --- times and keys ----------------------------------------------------------------------

    def offset_for_time(self, timestamp_ms: int) -> Offset | None:
        """The first offset whose record has that timestamp or a later one; None past the end.

        -1, -2 and -3 stand for the end, the start, and the record with the largest timestamp.
        """
        self._check_open()
        return offset_for_time(self.source, timestamp_ms)

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
