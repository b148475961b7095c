"""The port between a log and the code that reads it.

Everything in this room reads through a `LogSource`. There are three kinds: the log of the process
that writes it, the files of a log that another process writes, and an archive alone. A source
answers questions about the log; it never hands out records.
"""

import operator
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol

from cordwood.errors import LogClosedError, OffsetOutOfRangeError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.reading.segment_list import SegmentList, SegmentT_co
from cordwood.log.rules.isolation import Isolation, is_committed_only
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

# How often a search goes on because compaction has overtaken it.
ROUNDS_MAX: Final = 8


class LogView(NamedTuple, Generic[SegmentT_co]):
    """One consistent view of a log; a new view replaces it, nothing edits it.

    Invariant: ``start <= high_watermark``. Offsets in [start, high_watermark) may be read. Bare, it
    may show archived segments; a LogView[Segment] shows only local ones.
    """

    segments: SegmentList[SegmentT_co]
    start: Offset
    high_watermark: Offset

    def readable(self, start: int | None, stop: int | None) -> tuple[Offset, Offset]:
        """[start, stop), cut off at the high watermark. None stands for the end of the view.

        Raises `OffsetOutOfRangeError` when `start` is not in [start, high_watermark].
        """
        first = self.start if start is None else Offset(operator.index(start))
        if not self.start <= first <= self.high_watermark:
            raise OffsetOutOfRangeError(first, start=self.start, end=self.high_watermark)
        end = self.high_watermark if stop is None else min(Offset(stop), self.high_watermark)
        return first, Offset(max(first, end))


class LogSource(Protocol):
    """What a reader asks of a log. Any thread may call it."""

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""
        ...

    def view(self) -> LogView:
        """The log as it is now. Raises `OSError` if an archive has to answer and cannot."""
        ...

    @property
    def local_start_offset(self) -> Offset:
        """The first offset held in the log's own directory; the high watermark if it has none."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """The high watermark of the view. Asks no archive if the log has a directory."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Where the log ends, as far as this process knows; at least the high watermark."""
        ...

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of an open transaction; the high watermark if there is none."""
        ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def allows_gaps(self) -> bool:
        """Whether compaction may have removed offsets. If not, a missing offset is damage."""
        ...

    @property
    def gaps_below(self) -> Offset:
        """From this offset on, a missing offset is damage; the largest offset if unknown."""
        ...

    @property
    def holes(self) -> Sequence[Hole]:
        """Segments below `gaps_below` that are missing; usually none."""
        ...

    def replacements(self, *, look: bool) -> int:
        """A number that changes before segments are replaced: now, or at the last listing."""
        ...

    @property
    def compacted_up_to(self) -> Offset | None:
        """Sealed segments below this offset are compacted; None if none is, or it is unknown."""
        ...

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        """Block until the high watermark is past `offset`; False at the timeout or when closed."""
        ...

    def refresh(self) -> None:
        """A file of the last view is gone. Look at the files again, if others change them."""
        ...

    def readable_bytes(self, segment: ReadableSegment) -> int:
        """How many bytes of the segment's file may be read now."""
        ...

    def largest_timestamp(self, segment: ReadableSegment) -> tuple[TimestampMs, Offset]:
        """The largest timestamp of a segment and the last offset of the batch that has it.

        An upper bound is enough: it decides whether the segment is searched.
        """
        ...

    def key_memory(self, view: LogView) -> int | None:
        """If a lookup should remember the keys of the last segment, which has no index.

        None: it should not. A number: what it remembered is right as long as the number stays.
        """
        ...

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that have records in [start, stop)."""
        ...


def open_view(source: LogSource) -> LogView:
    """The view of a log. Raises `LogClosedError` if the log is closed."""
    if source.is_closed:
        raise LogClosedError(source.name)
    return source.view()


class ReadableEnd(NamedTuple):
    """Where a reader has to stop now.

    offset          the first offset that the reader may not see yet
    high_watermark  once it moves past this, `offset` may have moved
    """

    offset: Offset
    high_watermark: Offset


def readable_end(source: LogSource, isolation: Isolation) -> ReadableEnd | None:
    """The end of what a reader with that isolation may see; None if the log is closed.

    An open transaction holds the end back until its marker moves the high watermark. The high
    watermark is taken first: so a marker that is written meanwhile wakes whoever waits for it.
    """
    if source.is_closed:
        return None
    try:
        high_watermark = source.high_watermark
        if not is_committed_only(isolation):
            return ReadableEnd(high_watermark, high_watermark)
        return ReadableEnd(source.last_stable_offset, high_watermark)
    except LogClosedError:
        return None  # closed since it was looked at


def replacements_before(source: LogSource, *, rounds: int = 0) -> int | None:
    """For `is_overtaken`. Call it before the view is taken; None if nothing is ever replaced.

    None also after `ROUNDS_MAX` rounds, so that a search ends beside an owner that never rests.
    """
    if not source.allows_gaps or rounds >= ROUNDS_MAX:
        return None
    return source.replacements(look=rounds > 0)


def is_overtaken(source: LogSource, before: int | None, end: Offset) -> bool:
    """Whether a search up to `end` may have missed keys and has to go on.

    `end` is the high watermark of a view. Compaction removes a record if its key has a newer one,
    which may lie past `end`. If the replacements are read only up to `end`, both are missing. In
    replacements that `before` counts, the newest record of each key lies below `end`.
    """
    if before is None or source.is_closed or source.high_watermark <= end:
        return False
    return source.replacements(look=True) != before


def has_changed(source: LogSource, view: LogView) -> bool:
    """Look at the files again; True if the log has other segments now than in `view`.

    Call it when a file of `view` is gone: False means that the file should be there.
    """
    source.refresh()
    return source.view().segments is not view.segments


def is_replaced(source: LogSource, view: LogView, index: int) -> bool:
    """Whether another file has taken the name of sealed segment `index` since `view` was taken.

    Then the source has looked at the files again. A log file is opened when it is first read, and
    the segments around a replacement need not be those around the replaced one.
    """
    segment = view.segments[index]
    if index == len(view.segments) - 1 or segment.is_archived:
        return False
    return source.readable_bytes(segment) != segment.size and has_changed(source, view)
