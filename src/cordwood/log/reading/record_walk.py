"""Walking over the records of a log, from segment to segment.

The walk holds no lock. It takes a view of the log for each segment and never passes the high
watermark. If retention deletes a segment meanwhile, or compaction replaces it, the walk takes a
new view and goes on at the offset it had reached.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    LogClosedError,
    OffsetOutOfRangeError,
)
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.format.record import Record
from cordwood.format.small_files.segment_manifest import missing_between
from cordwood.log.reading.log_source import (
    LogSource,
    LogView,
    has_changed,
    is_overtaken,
    is_replaced,
    open_view,
    readable_end,
    replacements_before,
)
from cordwood.log.rules.isolation import (
    READ_UNCOMMITTED,
    AbortedBatches,
    Isolation,
    is_committed_only,
)
from cordwood.quantities import Offset
from cordwood.storage.log_file.segment_reader import SegmentReader
from cordwood.storage.segment_parts.readable_segment import ReadableSegment


class ReadPlan(NamedTuple):
    """What one read covers: offsets in [start, stop), without the batches in `hidden`.

    replacements  of `replacements_before`; None if the read ends at `stop` in any case
    limit         where the caller wants to stop
    rounds        how often compaction has overtaken the read
    """

    start: Offset
    stop: Offset
    hidden: "BatchFilter | None"
    replacements: int | None = None
    limit: int | None = None
    isolation: Isolation = READ_UNCOMMITTED
    rounds: int = 0


def plan_read(
    source: LogSource,
    start: int | None,
    stop: int | None,
    isolation: Isolation,
    *,
    rounds: int = 0,
) -> ReadPlan:
    """Check the arguments of a read. None stands for the start and for the high watermark.

    Raises `OffsetOutOfRangeError` when `start` cannot be read, `LogClosedError` when the log is
    closed.
    """
    before = replacements_before(source, rounds=rounds)
    if not is_committed_only(isolation):
        first, end = open_view(source).readable(start, stop)
        return ReadPlan(first, end, None, before, stop, isolation, rounds)
    # The stable offset first: every transaction below it is then in the indexes asked below.
    stable = readable_end(source, isolation)
    if stable is None:
        raise LogClosedError(source.name)
    first, end = open_view(source).readable(start, stop)
    end = max(first, min(end, stable.offset))
    hidden = _hidden(source, first, end)
    return ReadPlan(first, end, hidden, before, stop, isolation, rounds)


def planned_runs(source: LogSource, plan: ReadPlan) -> Iterator[RecordRun]:
    """The records of `plan`, and those that replaced some of them meanwhile."""
    following: ReadPlan | None = plan
    while following is not None:
        yield from walk_runs(source, following.start, following.stop, following.hidden)
        following = following_plan(source, following)


def planned_records(source: LogSource, plan: ReadPlan) -> Iterator[Record]:
    """The same as `Record`s.

    No frame of ours is between a record and its reader: a third of the time per record.
    """
    return chain.from_iterable(
        piece for run in planned_runs(source, plan) for piece in run.pieces()
    )


def following_plan(source: LogSource, plan: ReadPlan) -> ReadPlan | None:
    """What must be read after `plan` because compaction replaced segments during the read.

    A record below `plan.stop` may have been removed because its key has a newer one after it.
    """
    if plan.limit is not None and plan.limit <= plan.stop:
        return None
    if not is_overtaken(source, plan.replacements, plan.stop):
        return None
    return plan_read(source, plan.stop, plan.limit, plan.isolation, rounds=plan.rounds + 1)


def _hidden(source: LogSource, start: Offset, stop: Offset) -> AbortedBatches | None:
    return AbortedBatches(source.aborted_transactions(start, stop) if start < stop else ()) or None


def read_runs(
    source: LogSource, start: int, stop: int, *, isolation: Isolation = READ_UNCOMMITTED
) -> Iterator[RecordRun]:
    """Records in [start, stop) in parsed form, for callers that build their own columns.

    Each run is valid until the next one is taken. Raises as `plan_read` does, before it returns.
    """
    return planned_runs(source, plan_read(source, start, stop, isolation))


def follow_records(
    source: LogSource, offset: Offset, timeout_s: float | None, isolation: Isolation
) -> Iterator[Record]:
    """Records from `offset` on; waits for new ones until the timeout or until the log closes."""
    while (end := readable_end(source, isolation)) is not None:
        if end.offset > offset:
            try:
                for run in read_runs(source, offset, end.offset, isolation=isolation):
                    yield from run.records()
            except LogClosedError:
                return
            offset = end.offset
        elif not source.wait_beyond(max(offset, end.high_watermark), timeout_s):
            return


class BatchFilter(Protocol):
    """Chooses among the batches of a walk, as `AbortedBatches` does."""

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> Iterable[tuple[int, int]]:
        """The batches of [first, end) to parse, as ranges of indexes, in order."""
        ...


def walk_runs(
    source: LogSource, start: Offset, stop: Offset, hidden: BatchFilter | None = None
) -> Iterator[RecordRun]:
    """Parsed records with offsets in [start, stop), over as many segments as it takes."""
    offset = start
    reader: SegmentReader | None = None
    while offset < stop:
        view = source.view()
        if offset < view.start:
            raise OffsetOutOfRangeError(offset, start=view.start, end=view.high_watermark)
        index = max(view.segments.floor(offset), 0)
        segment = view.segments[index]
        if offset < segment.base_offset:
            if was_replaced(source, view):
                continue
            raise CorruptSegmentError(
                segment.name,
                0,
                "the files before this one are missing",
                first_offset=offset,
                next_offset=segment.base_offset,
            )
        try:
            if is_replaced(source, view, index):
                continue
            fresh = segment.reader(size=source.readable_bytes(segment))
        except FileNotFoundError:
            if has_changed(source, view):
                continue
            raise
        if reader is not None:
            fresh.take_buffers_of(reader)
        reader = fresh
        is_last = index == len(view.segments) - 1
        end = stop if is_last else min(stop, view.segments[index + 1].base_offset)
        try:
            yield from _reader_runs(reader, segment, offset, end, hidden)
        except CorruptSegmentError as error:
            if was_replaced(source, view):
                offset = max(offset, reader.next_offset)
                continue
            raise _with_next(error, None if is_last else end) from None
        missing = missing_between(source.holes, reader.next_offset, end, source.gaps_below)
        if missing is not None:
            if was_replaced(source, view):
                offset = max(offset, reader.next_offset)
                continue
            raise CorruptSegmentError(
                segment.name,
                reader.position,
                "the file ends before the records that should follow",
                first_offset=missing.first,
                next_offset=missing.next,
            )
        offset = end


def segment_runs(
    source: LogSource, segment: ReadableSegment, start: Offset, stop: Offset
) -> Iterator[RecordRun]:
    """Parsed records of one segment with offsets in [start, stop)."""
    reader = segment.reader(size=source.readable_bytes(segment))
    return _reader_runs(reader, segment, start, stop, None)


def _reader_runs(
    reader: SegmentReader,
    segment: ReadableSegment,
    start: Offset,
    stop: Offset,
    hidden: BatchFilter | None,
) -> Iterator[RecordRun]:
    position = reader.locate(start, segment.hint(start))
    if position is None:
        return
    decoder = reader.decoder
    for first, end in reader.chunks(
        position, reader.next_offset, start_offset=start, stop_offset=stop
    ):
        shown: Iterable[tuple[int, int]] = [(first, end)]
        if hidden is not None:
            shown = hidden.left_over(decoder, first, end)
        try:
            for part in shown:
                yield from decoder.runs(*part, start_offset=start, stop_offset=stop)
        except FormatError as error:
            # The checksum was right, so the batch was written like this: name the place.
            error.add_note(f"in {segment.name}, after byte {reader.chunk_position}")
            raise


def was_replaced(source: LogSource, view: LogView) -> bool:
    """Whether sealed segments of `view` were replaced: then what looked damaged may be sound."""
    source.refresh()
    return _sealed_shape(source.view()) != _sealed_shape(view)


def _sealed_shape(view: LogView) -> list[tuple[Offset, int, Offset]]:
    """A replacement of several segments may be as large as the first one, but ends later."""
    segments = view.segments
    return [
        (segments[index].base_offset, segments[index].size, segments[index + 1].base_offset)
        for index in range(len(segments) - 1)
    ]


def _with_next(error: CorruptSegmentError, following: Offset | None) -> CorruptSegmentError:
    """The same error; if reading can go on only in the next segment, it names that offset."""
    if error.next_offset is not None or following is None:
        return error
    return CorruptSegmentError(
        error.name,
        error.position,
        error.reason,
        first_offset=error.first_offset,
        next_offset=following,
    )
