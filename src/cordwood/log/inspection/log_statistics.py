"""Figures of a log: how many records, batches and keys it has, how large and how old they are.

One walk over all readable records. Damage is skipped and counted. If a segment is deleted or
replaced meanwhile, its figures are discarded and it is walked again.
"""

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.format.batch_header import CODEC_MASK, CONTROL, HEADER_SIZE
from cordwood.log.compaction import key_map
from cordwood.log.compaction.key_sample import KeySample
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import LogView
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass, field, fields

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKS: Final = 3
_RECORDS_TOGETHER: Final = 16_384  # what a decoder parses at once
_ROWS_ENOUGH: Final = 1 << 16  # rows that are counted at once, however small batches are
# Not a secret: it is the same in every process, so that samples can be merged.
_SECRET: Final = (0x636F7264776F6F64, 0x6C6F67206B657973)


@dataclass(slots=True, kw_only=True)
class SizeFigures:
    """Sizes of keys or of values in bytes. `smallest` and `largest` are None if there are none."""

    count: int = 0
    bytes: int = 0
    smallest: int | None = None
    largest: int | None = None

    @property
    def average(self) -> float | None:
        return self.bytes / self.count if self.count else None

    def add(self, other: "SizeFigures") -> None:
        self.count += other.count
        self.bytes += other.bytes
        self.smallest = _least(self.smallest, other.smallest)
        self.largest = _most(self.largest, other.largest)


@dataclass(slots=True, kw_only=True)
class LogStatistics:
    """Figures of one log, or of several together.

    bytes        size of the batches in the files
    raw_bytes    size of the batches without compression
    keys         different keys: all of them, or one in `sampled_one_in`; see `key_sample`
    superseded   records with a newer record of the same key: compaction removes them
    keyed_bytes  size of keys and values of records that have a key
    newest_*     the newest record of each key
    unreadable   messages about records that could not be read
    """

    records: int = 0
    batches: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    compressed_batches: int = 0
    control_batches: int = 0
    key_sizes: SizeFigures = field(default_factory=SizeFigures)
    value_sizes: SizeFigures = field(default_factory=SizeFigures)
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    keys: int = 0
    sampled_one_in: int = 1
    superseded: int = 0
    keyed_bytes: int = 0
    newest_bytes: int = 0
    newest_tombstones: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def tombstones(self) -> int:
        return self.records - self.value_sizes.count

    @property
    def superseded_share(self) -> float | None:
        """The share of the superseded records in the bytes of keys and values."""
        if not self.keyed_bytes:
            return None
        content = self.key_sizes.bytes + self.value_sizes.bytes
        return max(self.keyed_bytes - self.newest_bytes, 0) / content

    def add(self, other: "LogStatistics") -> None:
        """Add the figures of another log, except `keys` and `sampled_one_in`."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.key_sizes.add(other.key_sizes)
        self.value_sizes.add(other.value_sizes)
        self.first_timestamp_ms = _least(self.first_timestamp_ms, other.first_timestamp_ms)
        self.last_timestamp_ms = _most(self.last_timestamp_ms, other.last_timestamp_ms)


_SUMMED: Final = (
    "records",
    "batches",
    "bytes",
    "raw_bytes",
    "compressed_batches",
    "control_batches",
    "keyed_bytes",
    "superseded",
    "newest_bytes",
    "newest_tombstones",
    "unreadable",
)
assert set(_SUMMED) <= {f.name for f in fields(LogStatistics)}


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def survey_log(log: LogReader, sample: KeySample, pace: Callable[[int], None]) -> LogStatistics:
    """The figures of all readable records of `log`; adds their keys to `sample`.

    Calls `pace` with the number of bytes read.
    """
    total = LogStatistics()
    view = log.view()
    offset = view.start
    while offset < view.high_watermark:
        index = max(view.segments.floor(offset), 0)
        is_last = index == len(view.segments) - 1
        end = view.high_watermark if is_last else view.segments.end_of(index)
        found = _surveyed(log, view.segments[index].base_offset, offset, end, sample, pace)
        total.add(found)
        offset = Offset(max(end, offset + 1))
        view = LogView(log.view().segments, view.start, view.high_watermark)
    total.keys = sample.keys
    total.superseded = max(total.key_sizes.count - total.keys, 0)
    total.newest_bytes = sample.newest_bytes
    total.newest_tombstones = sample.newest_tombstones
    total.sampled_one_in = sample.sampled_one_in
    return total


def _surveyed(
    log: LogReader,
    base_offset: Offset,
    start: Offset,
    stop: Offset,
    sample: KeySample,
    pace: Callable[[int], None],
) -> LogStatistics:
    """The figures of one segment. Empty if it was deleted."""
    found = LogStatistics()
    for _ in range(_LOOKS):
        view = log.view()
        index = max(view.segments.floor(base_offset), 0)
        segment = view.segments[index]
        survey = _SegmentSurvey(segment, sample, pace)
        try:
            found = survey.run(max(start, segment.base_offset), stop)
        except FileNotFoundError:
            log.source.refresh()
            continue
        if not found.unreadable:
            break
        log.source.refresh()
        fresh = log.view().segments
        again = fresh[max(fresh.floor(base_offset), 0)]
        if (again.base_offset, again.size) == (segment.base_offset, segment.size):
            break
    return found


class _SegmentSurvey:
    """One walk over a segment. Collects rows and counts many at once."""

    def __init__(
        self, segment: ReadableSegment, sample: KeySample, pace: Callable[[int], None]
    ) -> None:
        self._segment = segment
        self._sample = sample
        self._pace = pace
        self._found = LogStatistics()
        self._clear()

    def _clear(self) -> None:
        self._hashes = array("Q")
        self._key_sizes = array("q")
        self._value_sizes = array("q")
        self._times = array("q")

    def run(self, start: Offset, stop: Offset) -> LogStatistics:
        segment = self._segment
        size = segment.size if segment.is_archived else segment.file().size()
        reader = segment.reader(size=size)
        position, next_offset = FilePosition(0), segment.base_offset
        while True:
            try:
                for first, end in reader.chunks(
                    position, next_offset, start_offset=start, stop_offset=stop
                ):
                    self._chunk(reader.decoder, first, end, start, stop)
                break
            except CorruptSegmentError as error:
                self._found.unreadable.append(str(error))
                following = reader.resume_after(error.position + 1, error.first_offset)
                if following is None or following.base_offset >= stop:
                    break
                position, next_offset = FilePosition(following.position), following.base_offset
        self._count_rows()
        return self._found

    def _chunk(
        self, decoder: BatchDecoder, first: int, end: int, start: Offset, stop: Offset
    ) -> None:
        found, row = self._found, tables.BATCH_ROW
        size = sum(decoder.rows[first * row + tables.B_SIZE : end * row : row])
        found.batches += end - first
        found.bytes += size
        for run in self._runs(decoder, first, end):
            run.start = record_table.first_row_at(run.table, run.start, run.end, start)
            run.end = record_table.first_row_at(run.table, run.start, run.end, stop)
            self._collect(run)
        self._pace(size)

    def _runs(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[RecordRun]:
        """Compressed batches one by one; as many plain batches as possible in one run."""
        found, row = self._found, tables.BATCH_ROW
        at = first
        while at < end:
            marks = decoder.field(at, tables.B_ATTRIBUTES)
            following = at + 1
            if marks & CONTROL:
                found.control_batches += 1
                found.raw_bytes += decoder.field(at, tables.B_SIZE)
            elif marks & CODEC_MASK:
                found.compressed_batches += 1
                for run in self._one_by_one(decoder, at, following):
                    found.raw_bytes += HEADER_SIZE + len(run.data)
                    yield run
            else:
                following = _end_of_plain(decoder, at, end)
                found.raw_bytes += sum(
                    decoder.rows[at * row + tables.B_SIZE : following * row : row]
                )
                try:
                    yield from decoder.runs(at, following)
                except FormatError:  # raised before the first run: all of them are one run
                    yield from self._one_by_one(decoder, at, following)
            at = following

    def _one_by_one(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[RecordRun]:
        for at in range(first, end):
            try:
                run = decoder.parse(at)
            except FormatError as error:
                # The checksum was right, so the batch was written like this.
                offset = decoder.field(at, tables.B_BASE_OFFSET)
                name = self._segment.name
                self._found.unreadable.append(f"{name}: the batch at offset {offset}: {error}")
            else:
                yield run

    # --- rows --------------------------------------------------------------------------------

    def _collect(self, run: RecordRun) -> None:
        row, first, end = tables.RECORD_ROW, run.start, run.end
        hashes = array("Q", bytes(16 * end))
        key_map.hash_keys(run.data, run.table, end, *_SECRET, hashes)
        self._hashes += hashes[2 * first : 2 * end : 2]
        self._key_sizes += run.table[first * row + tables.R_KEY_SIZE : end * row : row]
        self._value_sizes += run.table[first * row + tables.R_VALUE_SIZE : end * row : row]
        self._times += run.table[first * row + tables.R_TIMESTAMP : end * row : row]
        if len(self._hashes) >= _ROWS_ENOUGH:
            self._count_rows()

    def _count_rows(self) -> None:
        if not self._hashes:
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self._found
        keys, values = _column(self._key_sizes), _column(self._value_sizes)
        times = _known(_column(self._times))
        found.records += len(keys)
        found.key_sizes.add(_sizes(keys))
        found.value_sizes.add(_sizes(values))
        if len(times):
            found.first_timestamp_ms = _least(found.first_timestamp_ms, pc.min(times).as_py())
            found.last_timestamp_ms = _most(found.last_timestamp_ms, pc.max(times).as_py())
        none = pa.scalar(0, pa.int64())
        weights = pc.add(pc.max_element_wise(keys, none), pc.max_element_wise(values, none))
        found.keyed_bytes += pc.sum(weights.filter(pc.greater_equal(keys, none))).as_py() or 0
        self._sample.add(self._hashes, weights, pc.less(values, none))
        self._clear()


def _end_of_plain(decoder: BatchDecoder, first: int, end: int) -> int:
    """The end of the batches after `first` that are parsed into one run with it."""
    count = decoder.field(first, tables.B_RECORD_COUNT)
    at = first + 1
    while at < end and not decoder.field(at, tables.B_ATTRIBUTES) & (CONTROL | CODEC_MASK):
        count += decoder.field(at, tables.B_RECORD_COUNT)
        if count > _RECORDS_TOGETHER:
            break
        at += 1
    return at


def _column(numbers: "array[int]") -> "pa.Array[Any]":
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _known(numbers: "pa.Array[Any]") -> "pa.Array[Any]":
    """Without negative numbers, which stand for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return numbers.filter(pc.greater_equal(numbers, pa.scalar(0, pa.int64())))


def _sizes(sizes: "pa.Array[Any]") -> SizeFigures:
    import pyarrow.compute as pc

    known = _known(sizes)
    if not len(known):
        return SizeFigures()
    return SizeFigures(
        count=len(known),
        bytes=pc.sum(known).as_py(),
        smallest=pc.min(known).as_py(),
        largest=pc.max(known).as_py(),
    )
