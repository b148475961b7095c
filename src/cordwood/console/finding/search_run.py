"""One search over a topic: newest first, with progress, within limits, and it can be cancelled."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from cordwood.console.decoding.masking import TopicMasking
from cordwood.console.facts.topic_records import Extent, TopicRecords
from cordwood.console.finding.query_tree import Bounds, Query, bounds_of
from cordwood.format.record import Record
from cordwood.value_class import dataclass

HITS_MAX: Final = 500
SECONDS_MAX: Final = 300.0
_PROGRESS_S: Final = 0.25
_MASKED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    partition: int
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search is. `end` is None while it goes on, or says why it ended."""

    scanned_offsets: int
    total_offsets: int
    scanned_bytes: int
    seconds: float
    hits: int
    end: str | None = None

    @property
    def share(self) -> float:
        return 1.0 if not self.total_offsets else self.scanned_offsets / self.total_offsets

    @property
    def bytes_per_s(self) -> float:
        return self.scanned_bytes / max(self.seconds, 0.001)


def search(
    records: TopicRecords,
    query: Query,
    masking: TopicMasking,
    *,
    is_cancelled: Callable[[], bool],
    partitions: frozenset[int] | None = None,
    hits_max: int = HITS_MAX,
    seconds_max: float = SECONDS_MAX,
) -> Iterator[Hit | Progress]:
    """Hits, newest first within each partition; progress a few times a second; last, the end."""
    from cordwood.console.finding.matching import columns_of

    bounds = bounds_of(query)
    ranges = _ranges(records, bounds, partitions)
    run = _Run(total=sum(high - low for low, high in ranges.values()))
    columns = ("offset", "timestamp", "key", "value", "headers") if masking else columns_of(query)
    for number, (low, high) in sorted(ranges.items()):
        for first, last in reversed(records.parts(number, low, high)):
            found: list[int] = []
            for rows, size in _rows(records, query, masking, number, (first, last), columns):
                found += rows
                run.bytes += size
                if run.is_due():
                    yield run.progress()
                if is_cancelled():
                    yield run.progress("cancelled")
                    return
                if run.seconds > seconds_max:
                    yield run.progress("time is up")
                    return
            for offset in reversed(found):
                for record in records.read(number, offset, offset + 1, 1):
                    run.hits += 1
                    yield Hit(partition=number, record=record)
                if run.hits >= hits_max:
                    yield run.progress(f"the first {hits_max} were found")
                    return
            run.offsets += last - first
    yield run.progress("done")


def _rows(
    records: TopicRecords,
    query: Query,
    masking: TopicMasking,
    number: int,
    span: tuple[int, int],
    columns: tuple[str, ...],
) -> Iterator[tuple[list[int], int]]:
    """For each batch, the offsets that match and the bytes that were looked at."""
    from cordwood.console.finding.matching import as_batch, matching

    for batch in records.scan(number, *span, columns):
        if not masking:
            rows = matching(query, batch, number)
            offsets = batch.column("offset")
            yield [offsets[row].as_py() for row in rows], batch.nbytes
            continue
        # What is hidden must not be found: match what a reader would see.
        for at in range(0, len(batch), _MASKED_AT_ONCE):
            seen = [masking.record(r) for r in _records(batch.slice(at, _MASKED_AT_ONCE))]
            rows = matching(query, as_batch(seen), number)
            yield [seen[row].offset for row in rows], batch.nbytes * len(seen) // len(batch)


def _records(batch: object) -> list[Record]:
    rows = batch.to_pylist()  # type: ignore[attr-defined]
    return [
        Record(
            value=row["value"],
            key=row["key"],
            headers=[(header["key"], header["value"]) for header in row["headers"]],
            timestamp_ms=int(row["timestamp"].timestamp() * 1000),
            offset=row["offset"],
        )
        for row in rows
    ]


def _ranges(
    records: TopicRecords, bounds: Bounds, partitions: frozenset[int] | None
) -> dict[int, tuple[int, int]]:
    """The offsets of each partition that may have matches."""
    extents: dict[int, Extent] = {
        number: extent
        for number, extent in records.extents().items()
        if bounds.has_partition(number) and (partitions is None or number in partitions)
    }
    earliest = {} if bounds.time_low_ms is None else records.offsets_at(bounds.time_low_ms)
    found: dict[int, tuple[int, int]] = {}
    for number, extent in extents.items():
        low = max(extent.clamp(bounds.offset_low), earliest.get(number, extent.start))
        high = extent.end if bounds.offset_high is None else extent.clamp(bounds.offset_high)
        if low < high:
            found[number] = (low, high)
    return found


class _Run:
    """The counts of a search. For one thread."""

    def __init__(self, *, total: int) -> None:
        self.total = total
        self.offsets = 0
        self.bytes = 0
        self.hits = 0
        self._started_s = time.monotonic()
        self._told_s = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started_s

    def is_due(self) -> bool:
        if self.seconds - self._told_s < _PROGRESS_S:
            return False
        self._told_s = self.seconds
        return True

    def progress(self, end: str | None = None) -> Progress:
        return Progress(
            scanned_offsets=self.total if end == "done" else self.offsets,
            total_offsets=self.total,
            scanned_bytes=self.bytes,
            seconds=self.seconds,
            hits=self.hits,
            end=end,
        )
