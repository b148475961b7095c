"""The results of appends: partitions, offsets and timestamps of the records."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from cordwood.format.record import Record
from cordwood.quantities import Offset, TimestampMs
from cordwood.value_class import dataclass


class Appended(NamedTuple):
    """The partition, offset and timestamp of an appended record."""

    partition: int
    offset: Offset
    timestamp_ms: TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedRange:
    """Consecutive offsets [first_offset, next_offset) of one partition.

    `timestamp_ms` is the timestamp of records that were given without one.
    """

    partition: int
    first_offset: Offset
    next_offset: Offset
    timestamp_ms: TimestampMs

    @property
    def count(self) -> int:
        """The number of records."""
        return self.next_offset - self.first_offset


class AppendedMany(Sequence[Appended]):
    """The results for many records, in their order. Computed on access.

    `ranges` has the offsets for each partition, which is all that most callers need.
    """

    def __init__(
        self,
        records: list[Any],
        ranges: Sequence[AppendedRange],
        partitions: "array[int] | None",
        *,
        is_log_append_time: bool,
    ) -> None:
        self.ranges = tuple(ranges)
        self._records = records
        self._partitions = partitions
        self._is_log_append_time = is_log_append_time
        self._offsets: array[int] | None = None

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Appended: ...
    @overload
    def __getitem__(self, index: slice) -> list[Appended]: ...
    def __getitem__(self, index: int | slice) -> Appended | list[Appended]:
        if isinstance(index, slice):
            return [self._place(i) for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range: {len(self)} records were appended")
        return self._place(position)

    def __repr__(self) -> str:
        return f"AppendedMany({len(self)} records, ranges={self.ranges!r})"

    def _place(self, index: int) -> Appended:
        if self._partitions is None:
            part = self.ranges[0]
            offset = part.first_offset + index
        else:
            number = self._partitions[index]
            part = next(r for r in self.ranges if r.partition == number)
            offset = self._work_out(self._partitions)[index]
        record = self._records[index]
        given = record.timestamp_ms if isinstance(record, Record) else None
        timestamp = part.timestamp_ms if given is None or self._is_log_append_time else given
        return Appended(part.partition, Offset(offset), TimestampMs(timestamp))

    def _work_out(self, partitions: "array[int]") -> "array[int]":
        if self._offsets is None:
            following = {part.partition: int(part.first_offset) for part in self.ranges}
            offsets = array("q")
            for partition in partitions:
                offsets.append(following[partition])
                following[partition] += 1
            self._offsets = offsets
        return self._offsets
