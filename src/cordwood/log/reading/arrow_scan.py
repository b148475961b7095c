"""Reading a log as Arrow record batches, with one thread or several.

Importing this module does not import pyarrow; calling it does.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from cordwood.log.reading.log_source import LogSource
from cordwood.log.reading.record_walk import ReadPlan, following_plan, plan_read, planned_runs
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.quantities import MIB, FilePosition, Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

if TYPE_CHECKING:
    import pyarrow as pa

_PARALLEL_RANGE_BYTES: Final = 16 * MIB


def scan_range(
    source: LogSource,
    start: int | None,
    stop: int | None,
    columns: Sequence[str] | None,
    *,
    threads: int = 1,
    isolation: Isolation = READ_UNCOMMITTED,
) -> tuple["pa.Schema", Iterator["pa.RecordBatch"]]:
    """The records with offsets in [start, stop): their schema, and record batches in order.

    All columns, unless `columns` names some. Raises as `plan_read` does, before anything is read.
    """
    from cordwood.format.arrow_columns import COLUMN_NAMES, arrow_schema

    names = tuple(COLUMN_NAMES if columns is None else columns)
    schema = arrow_schema(names)  # refuses unknown names
    plan = plan_read(source, start, stop, isolation)
    return schema, scan_batches(source, plan, names, threads=threads)


def scan_batches(
    source: LogSource, plan: ReadPlan, columns: tuple[str, ...], *, threads: int
) -> Iterator["pa.RecordBatch"]:
    """The records of `plan` as record batches, in offset order.

    With `threads` above 1, several parts of the range are read at once.
    """
    if threads <= 1:
        return _batches(source, plan, columns)
    return _parallel_batches(source, plan, columns, threads)


def _batches(
    source: LogSource, plan: ReadPlan, columns: tuple[str, ...]
) -> Iterator["pa.RecordBatch"]:
    from cordwood.format.arrow_columns import ArrowColumns

    collected = ArrowColumns(columns)
    for run in planned_runs(source, plan):
        yield from collected.add(run)
    yield from collected.take()


def _parallel_batches(
    source: LogSource, plan: ReadPlan, columns: tuple[str, ...], threads: int
) -> Iterator["pa.RecordBatch"]:
    segments = source.view().segments
    ranges = iter(split(segments, plan.start, plan.stop, target_bytes=_PARALLEL_RANGE_BYTES))
    pending: list[Future[list[pa.RecordBatch]]] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-scan") as pool:

        def submit() -> None:
            part = next(ranges, None)
            if part is not None:
                piece = ReadPlan(*part, plan.hidden)
                pending.append(pool.submit(lambda: list(_batches(source, piece, columns))))

        for _ in range(threads + 1):
            submit()
        while pending:
            batches = pending.pop(0).result()
            submit()
            yield from batches
    following = following_plan(source, plan)
    if following is not None:
        yield from _batches(source, following, columns)


def split(
    segments: SegmentList, start: Offset, stop: Offset, *, target_bytes: int
) -> list[tuple[Offset, Offset]]:
    """Cut [start, stop) into consecutive ranges of about `target_bytes` of log each.

    Cuts fall on segment boundaries and index entries, so each part starts with one seek.
    """
    cuts: list[Offset] = [start]
    for index in range(max(segments.floor(start), 0), len(segments)):
        segment = segments[index]
        if segment.base_offset >= stop:
            break
        candidates = [segment.base_offset, *_cuts_within(segment, target_bytes)]
        for offset in candidates:
            if cuts[-1] < offset < stop:
                cuts.append(offset)
    return list(zip(cuts, [*cuts[1:], stop], strict=True)) if start < stop else []


def _cuts_within(segment: ReadableSegment, target_bytes: int) -> Iterator[Offset]:
    """Offsets about `target_bytes` apart, as the segment's index knows them."""
    wanted = target_bytes
    while wanted + target_bytes // 2 < segment.size:
        last_offset = segment.indexes.offset.upper_bound(FilePosition(wanted), 0)
        if last_offset is None:
            return
        yield Offset(last_offset + 1)
        wanted += target_bytes
