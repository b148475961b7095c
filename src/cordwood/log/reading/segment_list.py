"""The segments of a log, in order. A list is replaced, never edited: a reader keeps its own."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic

from cordwood.format.index_entry import AbortedTransaction
from cordwood.quantities import Offset
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

# Bare, any segments, also archived ones. The writer of a log has a SegmentList[Segment].
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    SegmentT_co = TypeVar(
        "SegmentT_co", bound=ReadableSegment, covariant=True, default=ReadableSegment
    )
    AnyT = TypeVar("AnyT", bound=ReadableSegment)
else:
    from typing import TypeVar

    SegmentT_co = TypeVar("SegmentT_co", bound=ReadableSegment, covariant=True)


class SegmentList(Generic[SegmentT_co]):
    """Invariant: base offsets strictly increase. The last segment is the active one."""

    __slots__ = ("_bases", "_segments", "active")

    active: SegmentT_co  # not set in an empty list

    def __init__(self, segments: Iterable[SegmentT_co]) -> None:
        self._segments = tuple(segments)
        if self._segments:
            self.active = self._segments[-1]
        self._bases = tuple(segment.base_offset for segment in self._segments)
        assert all(a < b for a, b in zip(self._bases, self._bases[1:], strict=False)), self._bases

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[SegmentT_co]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> SegmentT_co:
        return self._segments[index]

    @property
    def first_offset(self) -> Offset:
        return self._bases[0]

    @property
    def size(self) -> int:
        """The size of all log files together."""
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: Offset) -> int:
        """Index of the last segment that starts at or before `offset`; -1 if there is none."""
        return bisect_right(self._bases, offset) - 1

    def end_of(self, index: int) -> Offset:
        """Where segment `index` ends: the base offset of the next one, or its own next offset."""
        if index + 1 < len(self._bases):
            return self._bases[index + 1]
        return self._segments[index].extent.next_offset

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, stop), from the segments' indexes."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(self.floor(start), 0) :]:
            here = segment.indexes.transaction.collect(fetch_start=start, upper_bound=stop)
            found += here.transactions
            if here.is_complete:
                break
        return list(dict.fromkeys(found))  # a segment may repeat the end of the one before it

    def plus(self: "SegmentList[AnyT]", segment: "AnyT") -> "SegmentList[AnyT]":
        return SegmentList((*self._segments, segment))

    def before(self, index: int) -> "SegmentList[SegmentT_co]":
        return SegmentList(self._segments[:index])

    def behind(self, index: int) -> "SegmentList[SegmentT_co]":
        """Without the first `index` segments."""
        return SegmentList(self._segments[index:])
