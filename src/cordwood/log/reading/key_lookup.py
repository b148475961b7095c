"""Finding the records of a key: by the key indexes if there are any, else by reading.

The key index of a sealed segment tells which batches may hold the key; a segment without one is
read. The active segment has no index file. If the topic indexes keys, the hashes of its keys are
remembered from one lookup to the next.
"""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.record import Record
from cordwood.log.reading.log_source import (
    LogSource,
    LogView,
    has_changed,
    is_overtaken,
    is_replaced,
    replacements_before,
)
from cordwood.log.reading.record_walk import segment_runs, was_replaced
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.indexes.key_index import KeyNotes
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

# The active segment takes 16 bytes for each record. A segment with more records is read.
_TAIL_NOTES_MAX: Final = 16_000_000


class KeyTail:
    """Remembers the keys of a log's last segment, up to the end of the last lookup."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory = 0
        self._forget(Offset(-1))

    def _forget(self, base_offset: Offset) -> None:
        self._notes = KeyNotes(_TAIL_NOTES_MAX)
        self._base_offset = base_offset
        self._position = FilePosition(0)
        self._next_offset = base_offset
        self._last_position = FilePosition(0)
        self._last_header = b""

    def batches_of(
        self, key: bytes, segment: ReadableSegment, *, memory: int, size: int, stop: Offset
    ) -> list[FilePosition] | None:
        """Positions of the batches that may hold `key`; None if there are too many to remember.

        `memory` is `LogSource.key_memory`.
        """
        with self._lock:
            is_known = segment.base_offset == self._base_offset and memory == self._memory
            if not is_known or not self._is_as_it_was(segment):
                self._forget(segment.base_offset)
                self._memory = memory
            if self._next_offset < stop and not self._catch_up(segment, size, stop):
                self._forget(Offset(-1))
                return None
            return self._notes.batches_of(key)

    def _catch_up(self, segment: ReadableSegment, size: int, stop: Offset) -> bool:
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

    def _is_as_it_was(self, segment: ReadableSegment) -> bool:
        """Whether the last batch seen is still there, for readers that see no truncation."""
        if not self._last_header:
            return True
        return segment.file().read_at(self._last_position, HEADER_SIZE) == self._last_header


class KeyLookup:
    """Finds the records of a key in one log. Any thread may use it."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._tail: KeyTail | None = None

    def newest(self, key: bytes) -> Record | None:
        """The newest record of `key` that can be read; None if there is none."""
        for rounds in count():
            before = replacements_before(self._source, rounds=rounds)
            view = self._source.view()
            try:
                found = self._newest(view, key)
                if found is not None:
                    return found
                if not is_overtaken(self._source, before, view.high_watermark):
                    return None
            except FileNotFoundError:
                if not has_changed(self._source, view):
                    raise
            except CorruptSegmentError:
                if not was_replaced(self._source, view):
                    raise
        raise AssertionError

    def _newest(self, view: LogView, key: bytes) -> Record | None:
        for index in range(len(view.segments) - 1, -1, -1):
            if view.segments.end_of(index) <= view.start:
                return None
            batches = self._batches_of(view, index, key)
            # Batches come newest first; without an index all are read, and the last match counts.
            newest_first = None if batches is None else batches[::-1]
            found: Record | None = None
            for run in self._segment_runs(view, index, view.start, newest_first):
                row = record_table.find_key(run.data, run.table, run.start, run.end, key)
                if row >= 0:
                    found = _record(run, row)
                    if batches is not None:
                        break
            if found is not None:
                return found
        return None

    def history(self, key: bytes) -> Iterator[Record]:
        """Every record of `key` that can be read when the iteration starts, oldest first.

        Records that are deleted before the iteration reaches them are left out. If compaction
        does so, the newer records follow.
        """
        start: Offset | None = None
        for rounds in count():
            before = replacements_before(self._source, rounds=rounds)
            view = self._source.view()
            first = view.start if start is None else start
            for run in self.runs(key, first, view.high_watermark):
                yield from _matches(run, key)
            start = max(first, view.high_watermark)
            if not is_overtaken(self._source, before, start):
                return

    def runs(self, key: bytes, start: Offset, stop: Offset) -> Iterator[RecordRun]:
        """Runs of records in [start, stop) that may hold `key`. No record of `key` is missing."""
        while start < stop:
            view = self._source.view()
            start = max(start, view.start)
            index = max(view.segments.floor(start), 0)
            is_last = index == len(view.segments) - 1
            end = stop if is_last else min(stop, view.segments.end_of(index))
            bounded = view._replace(high_watermark=min(end, view.high_watermark))
            try:
                batches = self._batches_of(bounded, index, key)
                yield from self._segment_runs(bounded, index, start, batches)
            except FileNotFoundError:
                if not has_changed(self._source, view):
                    raise
                continue
            start = stop if is_last else view.segments.end_of(index)

    def _segment_runs(
        self, view: LogView, index: int, start: Offset, batches: list[FilePosition] | None
    ) -> Iterator[RecordRun]:
        """The records of these batches of one segment; None stands for all batches."""
        segment = view.segments[index]
        first, stop = max(start, segment.base_offset), view.high_watermark
        if batches != [] and is_replaced(self._source, view, index):
            raise FileNotFoundError(f"{segment.name} was replaced")
        if batches is None:
            yield from segment_runs(self._source, segment, first, stop)
        elif batches:
            reader = segment.reader()
            for position in batches:
                yield from reader.runs_at(position, start_offset=first, stop_offset=stop)

    def _batches_of(self, view: LogView, index: int, key: bytes) -> list[FilePosition] | None:
        """Positions of the batches in one segment that may hold `key`; None if unknown."""
        segment = view.segments[index]
        if index < len(view.segments) - 1:
            return segment.batches_of(key, size=segment.size)
        memory = self._source.key_memory(view)
        if memory is None:
            return None
        if self._tail is None:
            self._tail = KeyTail()
        size, stop = self._source.readable_bytes(segment), view.high_watermark
        return self._tail.batches_of(key, segment, memory=memory, size=size, stop=stop)


def _matches(run: RecordRun, key: bytes) -> list[Record]:
    rows: list[int] = []
    end = run.end
    while (row := record_table.find_key(run.data, run.table, run.start, end, key)) >= 0:
        rows.append(row)
        end = row
    return [_record(run, row) for row in reversed(rows)]


def _record(run: RecordRun, row: int) -> Record:
    return RecordRun(run.data, run.table, row, row + 1).records()[0]
