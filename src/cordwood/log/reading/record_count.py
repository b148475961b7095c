"""Counting the records of a range of offsets, by the headers of batches.

A header says how many records its batch holds, so only the batches at the ends of the range are
parsed. Batches are skipped unread where they are large: counting a gigabyte of megabyte batches
reads a few megabytes. Checksums are not verified on the way; the chain of headers is: each batch
must begin where the one before it ended, and each segment must reach the next.

Where anything looks wrong, the rest is counted by the walk that readers use, which knows about
segments that are replaced meanwhile, and raises what a reader would raise.
"""

from collections.abc import Iterator
from typing import Final

from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import CONTROL, decode_batch_header
from cordwood.format.small_files.segment_manifest import missing_between
from cordwood.log.reading.log_source import LogSource, is_replaced
from cordwood.log.reading.record_walk import BatchFilter, ReadPlan, plan_read, walk_runs
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.quantities import INT64_MAX, KIB, FilePosition, Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

_WINDOW_BYTES_MIN: Final = 4 * KIB  # one header and a bit: for batches larger than any window
_WINDOW_BYTES_MAX: Final = 256 * KIB
_BATCHES_PER_WINDOW: Final = 4096


def count_records(
    source: LogSource, start: int, stop: int, *, isolation: Isolation = READ_UNCOMMITTED
) -> int:
    """The number of records that a read of [start, stop) returns; raises as `plan_read` does."""
    plan = plan_read(source, start, stop, isolation)
    by_headers, reached = _counted_by_headers(source, plan)
    if reached >= plan.stop:
        return by_headers
    rest = CountedBatches(reached, plan.stop, plan.hidden)
    parsed = sum(len(run) for run in walk_runs(source, reached, plan.stop, rest))
    return by_headers + rest.count + parsed


class CountedBatches:
    """A filter for `walk_runs` that counts whole batches; those at the ends are left to parse."""

    def __init__(self, start: int, stop: int, hidden: BatchFilter | None) -> None:
        self._start = start
        self._stop = stop
        self._hidden = hidden
        self.count = 0

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The batches of [first, end) that lie only in part in the range."""
        if self._hidden is None:
            yield from self._counted(decoder, first, end)
            return
        for shown in self._hidden.left_over(decoder, first, end):
            yield from self._counted(decoder, *shown)

    def _counted(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[tuple[int, int]]:
        row = tables.BATCH_ROW
        attributes = decoder.rows[first * row + tables.B_ATTRIBUTES : end * row : row]
        counts = decoder.rows[first * row + tables.B_RECORD_COUNT : end * row : row]
        is_plain = not any(found & CONTROL for found in set(attributes))
        if is_plain and self._has(decoder, first) and self._has(decoder, end - 1):
            self.count += sum(counts)
            return
        for index in range(first, end):
            if attributes[index - first] & CONTROL:
                continue
            if self._has(decoder, index):
                self.count += counts[index - first]
            else:
                yield index, index + 1

    def _has(self, decoder: BatchDecoder, index: int) -> bool:
        begin = decoder.field(index, tables.B_BASE_OFFSET)
        return begin >= self._start and decoder.field(index, tables.B_NEXT_OFFSET) <= self._stop


def _counted_by_headers(source: LogSource, plan: ReadPlan) -> tuple[int, Offset]:
    """The records from the start of `plan` on, and the offset up to which they are counted."""
    total, offset = 0, plan.start
    while offset < plan.stop:
        view = source.view()
        index = view.segments.floor(offset)
        if offset < view.start or index < 0:
            break
        segment = view.segments[index]
        is_last = index == len(view.segments) - 1
        end = plan.stop if is_last else min(plan.stop, view.segments[index + 1].base_offset)
        walk = _HeaderWalk(source, segment, plan.hidden)
        try:
            if is_replaced(source, view, index):
                continue
            counted = walk.count(offset, end)
        except FileNotFoundError:
            break
        if counted is None:
            break
        if missing_between(source.holes, walk.next_offset, end, source.gaps_below) is not None:
            break
        total, offset = total + counted, end
    return total, offset


class _HeaderWalk:
    """The headers of one segment, without what lies between them. For one thread."""

    def __init__(
        self, source: LogSource, segment: ReadableSegment, hidden: BatchFilter | None
    ) -> None:
        self._source = source
        self._segment = segment
        self._hidden = hidden
        self._decoder = BatchDecoder(batches_max=_BATCHES_PER_WINDOW)
        self._buffer = bytearray(_WINDOW_BYTES_MAX)
        self.next_offset = segment.base_offset

    def count(self, start: Offset, stop: Offset) -> int | None:
        """The records in [start, stop); None if the headers do not follow each other."""
        segment, source = self._segment, self._source
        size = source.readable_bytes(segment)
        reader = segment.reader(size=size)
        position = FilePosition(0)
        if start > segment.base_offset:
            found = reader.locate(start, segment.hint(start))
            self.next_offset = reader.next_offset
            if found is None:
                return 0
            position = found
        counted = CountedBatches(start, stop, self._hidden)
        parsed, window = 0, _WINDOW_BYTES_MIN
        file = segment.file()
        while position < size and self.next_offset < stop:
            view = memoryview(self._buffer)[: min(window, size - position)]
            got = file.read_into(position, view)
            passed, batches = self._scan(view, got, stop)
            for first, end in counted.left_over(self._decoder, 0, batches):
                for chunk_first, _ in reader.chunks(
                    FilePosition(position + self._decoder.field(first, tables.B_POSITION)),
                    Offset(self._decoder.field(first, tables.B_BASE_OFFSET)),
                    stop_offset=self._decoder.field(first, tables.B_NEXT_OFFSET),
                ):
                    runs = reader.decoder.runs(
                        chunk_first, chunk_first + end - first, start_offset=start, stop_offset=stop
                    )
                    parsed += sum(len(run) for run in runs)
            if batches:
                self.next_offset = Offset(self._decoder.field(batches - 1, tables.B_NEXT_OFFSET))
            if self._decoder.stop == tables.STOP_OFFSET:
                self.next_offset = max(self.next_offset, stop)
                break
            if passed == 0 or position + passed > size:
                return None
            window = _WINDOW_BYTES_MAX if batches > 1 else _WINDOW_BYTES_MIN
            position = FilePosition(position + passed)
        return counted.count + parsed

    def _scan(self, view: memoryview, got: int, stop: Offset) -> tuple[int, int]:
        """The bytes and the number of batches that begin in the window. 0 bytes: a fault."""
        decoder = self._decoder
        # A batch that ends outside of the window is as good as one inside: only its header counts.
        decoder.scan(
            view,
            0,
            got,
            next_offset_min=self.next_offset,
            stop_offset=stop,
            offset_limit=INT64_MAX,
            is_dense=not self._source.allows_gaps,
        )
        if decoder.stop in (tables.STOP_END, tables.STOP_FULL, tables.STOP_OFFSET):
            return decoder.position, decoder.count
        if decoder.stop == tables.STOP_SHORT_BATCH:
            passed = self._take_last(view)
            return passed, decoder.count
        if decoder.stop == tables.STOP_SHORT_HEADER:
            return decoder.position, decoder.count
        return 0, 0

    def _take_last(self, view: memoryview) -> int:
        """Add the batch whose header is in the window and whose end is not; `scan` checked it."""
        decoder = self._decoder
        at, row = decoder.position, decoder.count * tables.BATCH_ROW
        header = decode_batch_header(view, at)
        decoder.rows[row + tables.B_POSITION] = at
        decoder.rows[row + tables.B_SIZE] = header.size
        decoder.rows[row + tables.B_BASE_OFFSET] = header.base_offset
        decoder.rows[row + tables.B_NEXT_OFFSET] = header.last_offset + 1
        decoder.rows[row + tables.B_ATTRIBUTES] = header.attributes
        decoder.rows[row + tables.B_RECORD_COUNT] = header.record_count
        decoder.rows[row + tables.B_PRODUCER_ID] = header.producer_id
        decoder.count += 1
        return at + header.size
