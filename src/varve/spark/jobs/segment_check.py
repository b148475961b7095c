"""One segment held against everything that must be true of it.

checksum   every batch has the one it claims
records    every batch can be taken apart, into as many records as it says
order      offsets ascend, within the segment, and are all there unless compaction took some
index      entries ascend, and each leads to the start of a batch at or before its offset
times      entries ascend, each is the largest time up to its offset, and a batch has it
aborted    entries of the transaction index ascend and lie in the segment

Indexes are derived: one that is missing or too short only costs time, and is no problem here.
One that says something wrong is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from varve.errors import CorruptSegmentError, FormatError
from varve.format import kernel_tables as tables
from varve.format.batch import BatchDecoder
from varve.format.file_names import FileKind
from varve.format.index_entry import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from varve.quantities import MIB, NO_TIMESTAMP, FilePosition, Offset
from varve.storage.files import FileSystem, RealFileSystem, read_whole
from varve.storage.segment import Segment
from varve.storage.segment_reader import SegmentReader

Numbers = npt.NDArray[np.int64]

PROBLEMS_MAX: Final = 20  # of one segment: more say nothing new
_INDEX_BYTES_MAX: Final = 128 * MIB
_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
assert _OFFSET_ENTRY.itemsize == OFFSET_ENTRY_SIZE
assert _TIME_ENTRY.itemsize == TIME_ENTRY_SIZE


@dataclass(slots=True, kw_only=True)
class SegmentFindings:
    """What was found in one segment."""

    base_offset: int
    next_offset: int
    size: int
    batches: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


class SegmentCheck:
    """Checks one segment. `end` is where the next begins, or how far readers may go."""

    def __init__(
        self,
        segment: Segment,
        *,
        size: int,
        end: int,
        is_last: bool,
        allows_gaps: bool,
        fs: FileSystem | None = None,
    ) -> None:
        self._segment = segment
        self._size = size
        self._end = end
        self._is_last = is_last
        self._allows_gaps = allows_gaps
        self._fs = fs or RealFileSystem()
        self._found = SegmentFindings(
            base_offset=segment.base_offset, next_offset=segment.base_offset, size=size
        )
        self._offsets = _Pointers()
        self._times = _Times()

    def run(self) -> SegmentFindings:
        if not self._segment.is_archived:
            self._read_indexes()
        found = self._found
        for decoder, first, stop, position in self._chunks():
            found.batches += stop - first
            self._check_records(decoder, first, stop)
            self._check_indexes(decoder, first, stop, position)
        if found.next_offset < self._end and not self._allows_gaps and not found.problems:
            found.add(f"offsets from {found.next_offset} to {self._end} are missing")
        for problem in self._offsets.rest(found.next_offset):
            found.add(problem)
        return found

    def _chunks(self) -> Iterator[tuple[BatchDecoder, int, int, int]]:
        """Runs of sound batches; what lies between them is a problem."""
        reader = self._segment.reader(size=self._size)
        position, next_offset = FilePosition(0), self._segment.base_offset
        stop_offset = self._end if self._is_last else 2**63 - 1
        while True:
            try:
                for first, stop in reader.chunks(position, next_offset, stop_offset=stop_offset):
                    self._found.next_offset = reader.next_offset
                    yield reader.decoder, first, stop, reader.chunk_position
                return
            except CorruptSegmentError as error:
                self._found.add(f"byte {error.position}: {error.reason}")
                following = self._behind(reader, error)
                if following is None:
                    return
                position, next_offset = following

    def _behind(
        self, reader: SegmentReader, error: CorruptSegmentError
    ) -> tuple[FilePosition, Offset] | None:
        following = reader.resume_after(error.position + 1, error.first_offset)
        if following is None:
            return None
        return FilePosition(following.position), following.base_offset

    # --- records -------------------------------------------------------------------------------

    def _check_records(self, decoder: BatchDecoder, first: int, stop: int) -> None:
        index = first
        while index < stop:
            try:
                for run in decoder.runs(index, stop):
                    table = np.frombuffer(run.table, dtype=np.int64)
                    rows = table[: run.end * tables.RECORD_ROW].reshape(-1, tables.RECORD_ROW)
                    offsets = rows[run.start : run.end, tables.R_OFFSET]
                    self._found.records += len(offsets)
                    if np.any(np.diff(offsets) <= 0):
                        self._found.add(f"offsets do not ascend behind {offsets[0]}")
                return
            except FormatError as error:
                index = self._first_unparsable(decoder, index, stop)
                base_offset = decoder.field(index, tables.B_BASE_OFFSET)
                self._found.add(f"the batch at offset {base_offset}: {error}")
                index += 1

    def _first_unparsable(self, decoder: BatchDecoder, first: int, stop: int) -> int:
        for index in range(first, stop):
            try:
                decoder.parse(index)
            except FormatError:
                return index
        return stop - 1

    # --- indexes -------------------------------------------------------------------------------

    def _read_indexes(self) -> None:
        segment = self._segment
        base = segment.base_offset
        try:
            offsets = self._entries(FileKind.INDEX, segment.offset_index.count, _OFFSET_ENTRY)
            self._offsets = _Pointers(
                offsets["offset"].astype(np.int64) + base, offsets["position"]
            )
            times = self._entries(FileKind.TIMEINDEX, segment.time_index.count, _TIME_ENTRY)
            self._times = _Times(times["timestamp"], times["offset"].astype(np.int64) + base)
        except (FormatError, OSError) as error:
            self._found.add(f"an index cannot be read: {error}")
        for problem in (*self._offsets.order(), *self._times.order()):
            self._found.add(problem)
        try:
            segment.transaction_index.sanity_check()
        except FormatError as error:
            self._found.add(f"the index of aborted transactions: {error}")

    def _entries(self, kind: FileKind, count: int, layout: Any) -> Any:
        path = self._segment.path(kind)
        if not self._fs.exists(path):
            return np.empty(0, dtype=layout)
        content = read_whole(self._fs, path, limit=_INDEX_BYTES_MAX)
        whole = min(count, len(content) // layout.itemsize)
        return np.frombuffer(content, dtype=layout, count=whole)

    def _check_indexes(self, decoder: BatchDecoder, first: int, stop: int, position: int) -> None:
        table = np.frombuffer(decoder.rows, dtype=np.int64).reshape(-1, tables.BATCH_ROW)
        rows = table[first:stop]
        starts = rows[:, tables.B_POSITION] + position
        nexts = rows[:, tables.B_NEXT_OFFSET]
        for problem in (
            *self._offsets.check(starts, rows[:, tables.B_BASE_OFFSET]),
            *self._times.check(nexts, rows[:, tables.B_MAX_TIMESTAMP]),
        ):
            self._found.add(problem)


class _Pointers:
    """Entries of an offset index, held against batches as they pass."""

    def __init__(self, offsets: Numbers | None = None, positions: Any = None) -> None:
        self._offsets = np.empty(0, np.int64) if offsets is None else offsets
        self._positions = np.empty(0, np.int64) if positions is None else positions.astype(np.int64)
        self._seen = 0

    def order(self) -> Iterator[str]:
        if np.any(np.diff(self._offsets) <= 0) or np.any(np.diff(self._positions) <= 0):
            yield "entries of the offset index do not ascend"
            self._offsets = self._positions = np.empty(0, np.int64)

    def check(self, starts: Numbers, bases: Numbers) -> Iterator[str]:
        """Batches that start there, with those offsets, in order."""
        end = int(np.searchsorted(self._positions, starts[-1], side="right"))
        if end <= self._seen:
            return
        positions, offsets = self._positions[self._seen : end], self._offsets[self._seen : end]
        self._seen = end
        at = np.searchsorted(starts, positions)
        at = np.minimum(at, len(starts) - 1)
        is_wrong = (starts[at] != positions) | (bases[at] > offsets)
        for place in np.flatnonzero(is_wrong)[:PROBLEMS_MAX]:
            yield f"the offset index says that offset {offsets[place]} is at {positions[place]}"

    def rest(self, next_offset: int) -> Iterator[str]:
        """Entries behind the last batch."""
        left = self._offsets[self._seen :]
        if len(left) and left[0] < next_offset:
            yield f"the offset index leads behind the end of the log for offset {left[0]}"


class _Times:
    """Entries of a time index, held against batches as they pass."""

    def __init__(self, timestamps: Any = None, offsets: Numbers | None = None) -> None:
        self._timestamps = (
            np.empty(0, np.int64) if timestamps is None else timestamps.astype(np.int64)
        )
        self._offsets = np.empty(0, np.int64) if offsets is None else offsets
        self._seen = 0
        self._largest = int(NO_TIMESTAMP)

    def order(self) -> Iterator[str]:
        if np.any(np.diff(self._timestamps) <= 0) or np.any(np.diff(self._offsets) < 0):
            yield "entries of the time index do not ascend"
            self._offsets = self._timestamps = np.empty(0, np.int64)

    def check(self, nexts: Numbers, largest: Numbers) -> Iterator[str]:
        """Batches that end before these offsets, with those largest times, in order."""
        running = np.maximum.accumulate(np.maximum(largest, self._largest))
        self._largest = int(running[-1])
        end = int(np.searchsorted(self._offsets, nexts[-1], side="left"))
        if end <= self._seen:
            return
        offsets, times = self._offsets[self._seen : end], self._timestamps[self._seen : end]
        self._seen = end
        at = np.minimum(np.searchsorted(nexts, offsets, side="right"), len(nexts) - 1)
        is_wrong = (running[at] != times) | (largest[at] != times)
        for place in np.flatnonzero(is_wrong)[:PROBLEMS_MAX]:
            yield f"the time index says {times[place]} of offset {offsets[place]}"
