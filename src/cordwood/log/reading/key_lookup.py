"""Finding the records of a key: by the key indexes where there are any, else by reading.

A sealed segment with a key index is asked whether and where it holds the key; without one it is
read. The active segment has no index file: the hashes of its keys are remembered from one
question to the next, where the topic indexes keys at all.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.record import Record
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.key_index import KeyNotes
from cordwood.storage.segment import Segment

if TYPE_CHECKING:
    from cordwood.log.reading.log_reader import LogReader, LogView

# Of the active segment, 16 bytes for each record in it. Beyond, it is read.
_TAIL_NOTES_MAX: Final = 16_000_000


class KeyTail:
    """Remembers the keys of a log's last segment, up to where it was last looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget(Offset(-1))

    def _forget(self, base_offset: Offset) -> None:
        self._notes = KeyNotes(_TAIL_NOTES_MAX)
        self._base_offset = base_offset
        self._position = FilePosition(0)
        self._next_offset = base_offset
        self._last_position = FilePosition(0)
        self._last_header = b""

    def batches_of(
        self, key: bytes, segment: Segment, *, size: int, stop: Offset
    ) -> list[FilePosition] | None:
        """Where batches lie that may hold `key`; None when there are too many to remember."""
        with self._lock:
            if segment.base_offset != self._base_offset or not self._is_as_it_was(segment):
                self._forget(segment.base_offset)
            if self._next_offset < stop and not self._catch_up(segment, size, stop):
                self._forget(Offset(-1))
                return None
            return self._notes.batches_of(key)

    def _catch_up(self, segment: Segment, size: int, stop: Offset) -> bool:
        reader = segment.reader(size=size)
        for first, end in reader.chunks(self._position, self._next_offset, stop_offset=stop):
            if not self._notes.note_chunk(reader, first, end):
                return False
            last = reader.chunk_position + reader.decoder.field(end - 1, tables.B_POSITION)
            self._last_position = FilePosition(last)
            self._position = FilePosition(reader.position)
            self._next_offset = reader.next_offset
        self._last_header = segment.file().read_at(self._last_position, HEADER_SIZE)
        return True

    def _is_as_it_was(self, segment: Segment) -> bool:
        """Whether the last batch seen is still there: a truncation takes the end first."""
        if not self._last_header:
            return True
        return segment.file().read_at(self._last_position, HEADER_SIZE) == self._last_header


def newest_of_key(log: "LogReader", key: bytes) -> Record | None:
    """The newest record of `key` that can be read; None when there is none."""
    while True:
        view = log.view()
        try:
            return _newest(log, view, key)
        except FileNotFoundError:
            if not log.look_again(view):
                raise


def _newest(log: "LogReader", view: "LogView", key: bytes) -> Record | None:
    for index in range(len(view.segments) - 1, -1, -1):
        if view.segments.end_of(index) <= view.start:
            return None
        batches = log.batches_of(view, index, key)
        # Batches come newest first; without an index all are read, and the last match counts.
        found: Record | None = None
        for run in _runs(log, view, index, view.start, None if batches is None else batches[::-1]):
            row = record_table.find_key(run.data, run.table, run.start, run.end, key)
            if row >= 0:
                found = _record(run, row)
                if batches is not None:
                    break
        if found is not None:
            return found
    return None


def history_of_key(log: "LogReader", key: bytes) -> Iterator[Record]:
    """Every record of `key` that could be read when asked, oldest first.

    What is deleted before its turn comes is left out.
    """
    view = log.view()
    for run in runs_of_key(log, key, view.start, view.high_watermark):
        yield from _matches(run, key)


def runs_of_key(log: "LogReader", key: bytes, start: Offset, stop: Offset) -> Iterator[RecordRun]:
    """Runs of records with offsets in [start, stop) that may hold `key`, and all that do."""
    while start < stop:
        view = log.view()
        start = max(start, view.start)
        index = max(view.segments.floor(start), 0)
        bounded = view._replace(high_watermark=min(stop, view.high_watermark))
        is_last = index == len(view.segments) - 1
        try:
            batches = log.batches_of(bounded, index, key)
            if batches and not is_last and _is_replaced(view.segments[index]):
                raise FileNotFoundError(f"{view.segments[index].name} was replaced")
            yield from _runs(log, bounded, index, start, batches)
        except FileNotFoundError:
            if not log.look_again(view):
                raise
            continue
        start = stop if is_last else view.segments.end_of(index)


def _is_replaced(segment: Segment) -> bool:
    """Whether the file is another than the one its key index was asked about."""
    return segment.file().size() != segment.size


def _runs(
    log: "LogReader",
    view: "LogView",
    index: int,
    start: Offset,
    batches: list[FilePosition] | None,
) -> Iterator[RecordRun]:
    """The records of these batches of one segment; of all when None."""
    segment = view.segments[index]
    first, stop = max(start, segment.base_offset), view.high_watermark
    if batches is None:
        yield from log.segment_runs(segment, first, stop)
    elif batches:
        reader = segment.reader()
        for position in batches:
            yield from reader.runs_at(position, start_offset=first, stop_offset=stop)


def _matches(run: RecordRun, key: bytes) -> list[Record]:
    rows: list[int] = []
    end = run.end
    while (row := record_table.find_key(run.data, run.table, run.start, end, key)) >= 0:
        rows.append(row)
        end = row
    return [_record(run, row) for row in reversed(rows)]


def _record(run: RecordRun, row: int) -> Record:
    return RecordRun(run.data, run.table, row, row + 1).records()[0]
