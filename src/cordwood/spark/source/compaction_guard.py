"""Detects a compaction that removes records which a running query still needs.

Compaction drops a record if a newer record of its key exists. A batch query reads up to the end
that the log had when the query was planned. If the newer record lies before that end, the query
reads it and nothing is missing. But if the log grows, rolls, and is compacted past that end while
the query runs, a record may be dropped in favour of one after the end: the result would lack a key
that existed all the time.

So the plan records the shape of a task's segments, and the task compares it after reading. Nothing
was dropped if

    the segment that held the end is still the active one, which compaction does not touch; or
    all its segments are unchanged: same sizes, and in the segment that held the end, the same
    number of bytes before it
"""

import hashlib
from collections.abc import Iterator

from cordwood.errors import CorruptSegmentError
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionGuard:
    """What must be unchanged after a task of a query up to `end` has read [start, stop)."""

    start: int
    stop: int
    end: int
    digest: str

    @classmethod
    def over(cls, log: LogReader, start: int, stop: int, *, end: int) -> "CompactionGuard | None":
        """The guard of a query that reads `log` up to `end`; None if none is needed.

        A query that ends before the active segment reads what compaction has left of the past.
        That never was a state of the log, and none is promised.
        """
        if not log.source.allows_gaps or log.view().segments.active.base_offset > end:
            return None
        return cls(start=start, stop=stop, end=end, digest=_digest(log, start, stop, end))

    def holds(self, log: LogReader) -> bool:
        """Whether nothing was dropped; call it after reading."""
        log.source.refresh()
        if log.view().segments.active.base_offset <= self.end:
            return True
        try:
            return _digest(log, self.start, self.stop, self.end) == self.digest
        except (FileNotFoundError, CorruptSegmentError):
            return False  # replaced meanwhile


def _digest(log: LogReader, start: int, stop: int, end: int) -> str:
    return hashlib.sha256(repr(list(_shapes(log, start, stop, end))).encode()).hexdigest()


def _shapes(log: LogReader, start: int, stop: int, end: int) -> Iterator[tuple[int, int]]:
    segments = log.view().segments
    for index in range(max(segments.floor(Offset(start)), 0), len(segments)):
        segment = segments[index]
        if segment.base_offset >= stop:
            return
        is_before_end = index + 1 < len(segments) and segments[index + 1].base_offset <= end
        yield (
            segment.base_offset,
            segment.size if is_before_end else _bytes_before(segment, Offset(end)),
        )


def _bytes_before(segment: ReadableSegment, end: Offset) -> int:
    reader = segment.reader(size=segment.file().size())
    try:
        position = reader.locate(end, segment.hint(end))
    except CorruptSegmentError as error:
        if error.first_offset < end:
            raise
        return error.position  # zeros that the owner wrote ahead, or half a batch
    return reader.position if position is None else position
