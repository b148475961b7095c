"""Noticing a compaction that takes records from a query for the sake of others it will not read.

Compaction drops a record when a newer one of its key is there. A batch query reads up to where
the log ended when it was planned. As long as the newer record lies before that end, the query
finds it and nothing is missing. But when the log goes on, rolls, and is compacted past that end
while the query runs, a key's record may be gone whose newer one comes after the end: the result
would lack a key that was there all the time.

So a plan notes what the segments of a task look like, and the task, once it has read, looks
again. Nothing was taken from it if

    the segment that held the end is still the last one: compaction leaves that alone; or
    all its segments are as they were: same sizes, and in the one that held the end, the same
    number of bytes before it
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.errors import CorruptSegmentError
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import Offset
from cordwood.storage.readable_segment import ReadableSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionGuard:
    """What a task must find again after it has read [start, stop). `end` is the whole query's."""

    start: int
    stop: int
    end: int
    digest: str

    @classmethod
    def over(cls, log: LogReader, start: int, stop: int, *, end: int) -> "CompactionGuard | None":
        """For a query that reads `log` up to `end`; None where there is nothing to guard.

        A query that ends before the last segment reads what compaction has left of a past time:
        that never was a state of the log, and no state is promised.
        """
        if not log.source.allows_gaps or log.view().segments.active.base_offset > end:
            return None
        return cls(start=start, stop=stop, end=end, digest=_digest(log, start, stop, end))

    def holds(self, log: LogReader) -> bool:
        """Whether nothing was taken. Asked after reading."""
        log.source.refresh()
        if log.view().segments.active.base_offset <= self.end:
            return True
        try:
            return _digest(log, self.start, self.stop, self.end) == self.digest
        except (FileNotFoundError, CorruptSegmentError):
            return False  # replaced while we look


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
    position = reader.locate(end, segment.hint(end))
    return reader.position if position is None else position
