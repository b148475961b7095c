"""Checking one segment.

checksum   every batch matches its checksum
records    every batch can be parsed into as many records as its header says
order      offsets ascend within the segment, and none is missing unless compaction removed it
index      the offset index agrees with the batches: see `index_check`
times      the time index agrees with the batches
aborted    entries of the transaction index ascend and lie in the segment

The log may be written meanwhile: segments that are deleted or replaced are not problems.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.format.file_names import FileKind
from cordwood.format.index_entry import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from cordwood.format.small_files.segment_manifest import Hole, missing_between
from cordwood.log.inspection.index_check import EntryProblem, OffsetEntries, TimeEntries, ascends
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import has_changed
from cordwood.quantities import INT64_MAX, MIB, FilePosition, Offset
from cordwood.storage.files import FileSystem, RealFileSystem, read_whole
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass, field

PROBLEMS_MAX: Final = 20  # for each segment: more of them say nothing new
_LOOKS: Final = 3  # at a segment that is replaced while it is checked
_INDEX_BYTES_MAX: Final = 128 * MIB
_NO_FAULTS: Final = array("q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentProblem:
    """What is wrong, in which file, and where.

    [offset, next_offset) are the records concerned, as far as known.
    """

    file: str
    reason: str
    position: int | None = None
    offset: int | None = None
    next_offset: int | None = None

    def __str__(self) -> str:
        """The reason; for a log file also the position."""
        is_in_log = self.position is not None and self.file.endswith(FileKind.LOG)
        return f"byte {self.position}: {self.reason}" if is_in_log else self.reason


@dataclass(slots=True, kw_only=True)
class SegmentFindings:
    """Counts and problems of one segment."""

    base_offset: int
    next_offset: int
    size: int
    batches: int = 0
    records: int = 0
    problems: list[SegmentProblem] = field(default_factory=list)

    def add(self, problem: SegmentProblem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def check_segment(
    log: LogReader, base_offset: Offset, pace: Callable[[int], None] | None = None
) -> SegmentFindings | None:
    """Check the segment of `log` that begins at `base_offset`; None if it was deleted meanwhile.

    Calls `pace` with the number of bytes checked. A problem counts only if it is found again
    after the files were opened again.
    """
    found: SegmentFindings | None = None
    for _ in range(_LOOKS):
        view = log.view()
        index = view.segments.floor(base_offset)
        if index < 0 or view.segments[index].base_offset != base_offset:
            return None
        segment = view.segments[index]
        is_last = index == len(view.segments) - 1
        check = SegmentCheck(
            segment,
            log_start=view.start if index == 0 else None,
            size=segment.size,
            end=view.high_watermark if is_last else view.segments.end_of(index),
            is_last=is_last,
            gaps_below=log.source.gaps_below,
            holes=log.source.holes,
            pace=pace,
        )
        try:
            before, found = found, check.run()
        except FileNotFoundError:
            if has_changed(log.source, view):
                continue
            raise
        if not found.problems or (before is not None and before.problems == found.problems):
            break
        log.source.refresh()
    return found


class SegmentCheck:
    """Checks one segment. `end` is where the next one begins, or the high watermark.

    `log_start`: of the first segment, where the log starts; files are missing if that is earlier.
    """

    def __init__(
        self,
        segment: ReadableSegment,
        *,
        log_start: Offset | None = None,
        size: int,
        end: int,
        is_last: bool,
        gaps_below: Offset,
        holes: Sequence[Hole] = (),
        fs: FileSystem | None = None,
        pace: Callable[[int], None] | None = None,
    ) -> None:
        self._segment = segment
        self._log_start = segment.base_offset if log_start is None else log_start
        self._size = size
        self._end = end
        self._is_last = is_last
        self._gaps_below = gaps_below
        self._holes = holes
        self._fs = fs or RealFileSystem()
        self._pace = pace
        self._found = SegmentFindings(
            base_offset=segment.base_offset, next_offset=segment.base_offset, size=size
        )
        self._offsets = OffsetEntries(memoryview(b""), segment.base_offset)
        self._times = TimeEntries(memoryview(b""), segment.base_offset)
        self._unreadable: list[tuple[int, int]] = []  # offsets in damaged ranges

    def run(self) -> SegmentFindings:
        if not self._segment.is_archived:
            self._read_indexes()
        found = self._found
        position = 0
        for decoder, first, stop, position in self._chunks():
            found.batches += stop - first
            self._check_records(decoder, first, stop, position)
            self._check_indexes(decoder, first, stop, position)
        if not found.problems:
            self._check_what_follows()
        self._add_all(FileKind.INDEX, self._offsets.rest(found.next_offset))
        self._check_what_precedes()
        return found

    def _check_what_precedes(self) -> None:
        base = self._segment.base_offset
        if self._log_start < base:
            self._found.add(
                SegmentProblem(
                    file=self._segment.name,
                    reason=f"offsets from {self._log_start} to {base} are missing",
                    position=0,
                    offset=self._log_start,
                    next_offset=base,
                )
            )

    def _check_what_follows(self) -> None:
        """Add the offsets before the next segment that should exist, as reading would find them."""
        missing = missing_between(
            self._holes, Offset(self._found.next_offset), Offset(self._end), self._gaps_below
        )
        if missing is not None:
            self._found.add(
                SegmentProblem(
                    file=self._segment.name,
                    reason=f"offsets from {missing.first} to {missing.next} are missing",
                    position=self._size,
                    offset=missing.first,
                    next_offset=missing.next,
                )
            )

    def _chunks(self) -> Iterator[tuple[BatchDecoder, int, int, int]]:
        """Runs of sound batches. Each gap between them is added as a problem."""
        reader = self._segment.reader(size=self._size)
        position, next_offset = FilePosition(0), self._segment.base_offset
        stop_offset = self._end if self._is_last else INT64_MAX
        while True:
            try:
                for first, stop in reader.chunks(position, next_offset, stop_offset=stop_offset):
                    self._found.next_offset = reader.next_offset
                    yield reader.decoder, first, stop, reader.chunk_position
                    if self._pace is not None:
                        self._pace(reader.position - reader.chunk_position)
                return
            except CorruptSegmentError as error:
                self._found.add(
                    SegmentProblem(
                        file=self._segment.name,
                        reason=error.reason,
                        position=error.position,
                        offset=error.first_offset,
                        next_offset=error.next_offset,
                    )
                )
                following = self._behind(reader, error)
                end = INT64_MAX if following is None else following[1]
                self._unreadable.append((error.first_offset, end))
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

    def _check_records(self, decoder: BatchDecoder, first: int, stop: int, position: int) -> None:
        while first < stop:
            try:
                self._found.records += self._count_ordered(decoder, first, stop)
                return
            except FormatError as error:
                bad = self._first_unparsable(decoder, first, stop)
                self._found.records += self._count_ordered(decoder, first, bad)
                batch = decoder.batch(bad)
                self._found.add(
                    SegmentProblem(
                        file=self._segment.name,
                        reason=f"the batch at offset {batch.base_offset}: {error.reason}",
                        position=position + batch.position,
                        offset=batch.base_offset,
                        next_offset=batch.next_offset,
                    )
                )
                first = bad + 1

    def _count_ordered(self, decoder: BatchDecoder, first: int, stop: int) -> int:
        """The number of records. Records that are out of order are added as a problem."""
        count = 0
        for run in decoder.runs(first, stop):
            count += len(run)
            self._check_order(run)
        return count

    def _check_order(self, run: RecordRun) -> None:
        first = run.table[run.start * tables.RECORD_ROW + tables.R_OFFSET]
        if run.start == 0:
            is_dense, _, _ = record_table.check_produced(
                run.table, run.end, first, -INT64_MAX, INT64_MAX, False, _NO_FAULTS
            )
            if is_dense:
                return
        row = tables.RECORD_ROW
        offsets = run.table[run.start * row + tables.R_OFFSET : run.end * row : row]
        if not ascends(offsets):
            self._found.add(
                SegmentProblem(
                    file=self._segment.name,
                    reason=f"offsets do not ascend after {first}",
                    offset=first,
                )
            )

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
            self._offsets = OffsetEntries(
                self._entries(FileKind.INDEX, segment.indexes.offset.count, OFFSET_ENTRY_SIZE), base
            )
            self._times = TimeEntries(
                self._entries(FileKind.TIMEINDEX, segment.indexes.time.count, TIME_ENTRY_SIZE), base
            )
        except (FormatError, OSError) as error:
            self._found.add(
                SegmentProblem(
                    file=segment.path(FileKind.INDEX), reason=f"an index cannot be read: {error}"
                )
            )
        self._add_all(FileKind.INDEX, self._offsets.order())
        self._add_all(FileKind.TIMEINDEX, self._times.order())
        try:
            segment.indexes.transaction.sanity_check()
        except FormatError as error:
            self._found.add(
                SegmentProblem(
                    file=segment.path(FileKind.TXNINDEX),
                    reason=f"the index of aborted transactions: {error}",
                    position=error.position,
                )
            )

    def _entries(self, kind: FileKind, count: int, entry_size: int) -> memoryview:
        path = self._segment.path(kind)
        if not self._fs.exists(path):
            return memoryview(b"")
        content = read_whole(self._fs, path, limit=_INDEX_BYTES_MAX)
        whole = min(count, len(content) // entry_size)
        return memoryview(content)[: whole * entry_size]

    def _check_indexes(self, decoder: BatchDecoder, first: int, stop: int, position: int) -> None:
        def column(field: int) -> "array[int]":
            row = tables.BATCH_ROW
            return decoder.rows[first * row + field : stop * row : row]

        starts = array("q", map(position.__add__, column(tables.B_POSITION)))
        bases, nexts = column(tables.B_BASE_OFFSET), column(tables.B_NEXT_OFFSET)
        largest = column(tables.B_MAX_TIMESTAMP)
        self._add_all(FileKind.INDEX, self._offsets.check(starts, bases))
        self._add_all(FileKind.TIMEINDEX, self._times.check(nexts, largest))

    def _add_all(self, kind: FileKind, problems: Iterable[EntryProblem]) -> None:
        """Add the problems, except for unreadable records: their entries may be right."""
        for problem in problems:
            if len(self._found.problems) >= PROBLEMS_MAX:
                return
            if problem.offset is not None and self._is_unreadable(problem.offset):
                continue
            self._found.add(
                SegmentProblem(
                    file=self._segment.path(kind),
                    reason=problem.reason,
                    position=problem.position,
                    offset=problem.offset,
                )
            )

    def _is_unreadable(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self._unreadable)
