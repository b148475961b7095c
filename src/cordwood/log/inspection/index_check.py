"""Checking index entries against the batches they were derived from.

offsets   entries ascend, and each points to the start of a batch at or before its offset
times     entries ascend, and each is the largest time up to its offset, which a batch has

Indexes are derived. A missing or short index only costs time and is not a problem; a wrong entry
is one.
"""

import operator
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Final, NamedTuple, TypeAlias

from cordwood.format.index_entry import OFFSET_ENTRY, TIME_ENTRY
from cordwood.quantities import NO_TIMESTAMP

Numbers: TypeAlias = "array[int]"

_FIRST: Final = operator.itemgetter(0)
_SECOND: Final = operator.itemgetter(1)


class EntryProblem(NamedTuple):
    """What is wrong with an entry, its position in the index, and the offset it names."""

    position: int
    offset: int | None
    reason: str


def ascends(numbers: Iterable[int], *, strictly: bool = True) -> bool:
    """Whether each number is larger than the one before it; equal ones count unless `strictly`."""
    kept = numbers if isinstance(numbers, array) else array("q", numbers)
    compare = operator.lt if strictly else operator.le
    return all(map(compare, kept, islice(kept, 1, None)))


class OffsetEntries:
    """Entries of an offset index. Call `check` with all batches, in order."""

    def __init__(self, content: memoryview, base_offset: int) -> None:
        """`content` is a whole number of entries."""
        entries = OFFSET_ENTRY
        self._offsets = array("q", map(base_offset.__add__, map(_FIRST, _parts(entries, content))))
        self._positions = array("q", map(_SECOND, _parts(entries, content)))
        self._seen = 0

    def order(self) -> Iterator[EntryProblem]:
        """Check the order of the entries. If it is wrong, they are ignored from then on."""
        if not (ascends(self._offsets) and ascends(self._positions)):
            yield EntryProblem(0, None, "entries of the offset index do not ascend")
            self._offsets = self._positions = array("q")

    def check(self, starts: Numbers, bases: Numbers) -> Iterator[EntryProblem]:
        """Check the entries of batches with these positions and base offsets."""
        end = bisect_right(self._positions, starts[-1], self._seen)
        for slot in range(self._seen, end):
            position, offset = self._positions[slot], self._offsets[slot]
            at = bisect_left(starts, position)
            if at == len(starts) or starts[at] != position or bases[at] > offset:
                yield EntryProblem(
                    slot * OFFSET_ENTRY.size,
                    offset,
                    f"the offset index says that offset {offset} is at byte {position}",
                )
        self._seen = end

    def rest(self, next_offset: int) -> Iterator[EntryProblem]:
        """Check the entries after the last batch, which ended before `next_offset`."""
        if self._seen < len(self._offsets) and self._offsets[self._seen] < next_offset:
            offset = self._offsets[self._seen]
            yield EntryProblem(
                self._seen * OFFSET_ENTRY.size,
                offset,
                f"the offset index points past the end of the log for offset {offset}",
            )


class TimeEntries:
    """Entries of a time index. Call `check` with all batches, in order."""

    def __init__(self, content: memoryview, base_offset: int) -> None:
        """`content` is a whole number of entries."""
        entries = TIME_ENTRY
        self._timestamps = array("q", map(_FIRST, _parts(entries, content)))
        self._offsets = array("q", map(base_offset.__add__, map(_SECOND, _parts(entries, content))))
        self._seen = 0
        self._largest = int(NO_TIMESTAMP)

    def order(self) -> Iterator[EntryProblem]:
        """Check the order of the entries. If it is wrong, they are ignored from then on."""
        if not (ascends(self._timestamps) and ascends(self._offsets, strictly=False)):
            yield EntryProblem(0, None, "entries of the time index do not ascend")
            self._offsets = self._timestamps = array("q")

    def check(self, nexts: Numbers, largest: Numbers) -> Iterator[EntryProblem]:
        """Check the entries of batches with these next offsets and largest times."""
        before = self._largest
        self._largest = max(before, *largest)
        end = bisect_left(self._offsets, nexts[-1], self._seen)
        if end <= self._seen:
            return
        running = list(islice(accumulate(largest, max, initial=before), 1, None))
        for slot in range(self._seen, end):
            timestamp, offset = self._timestamps[slot], self._offsets[slot]
            at = bisect_right(nexts, offset)
            if running[at] != timestamp or largest[at] != timestamp:
                yield EntryProblem(
                    slot * TIME_ENTRY.size,
                    offset,
                    f"the time index says {timestamp} for offset {offset}",
                )
        self._seen = end


def _parts(entry: struct.Struct, content: memoryview) -> Iterator[tuple[int, ...]]:
    return entry.iter_unpack(content)
