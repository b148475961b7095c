"""Decisions about what to read, from plain values: tasks, and the end of a micro-batch.

Opens no file and reads no clock. Ranges are half-open.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from cordwood.spark.source.compaction_guard import CompactionGuard
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.value_class import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets that one task reads. Invariant: ``start < stop``."""

    place: LogPlace
    start: int
    stop: int
    guard: CompactionGuard | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop, self

    @property
    def count(self) -> int:
        """The number of offsets, which is the largest possible number of records."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive offsets of one segment, and their approximate size there."""

    start: int
    stop: int
    size_bytes: int


def merge_pieces(pieces: Iterable[Piece], *, target_bytes: int) -> list[Piece]:
    """Join consecutive pieces as long as the result holds at most `target_bytes`."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is not None and last.size_bytes + piece.size_bytes <= target_bytes:
            assert last.stop == piece.start, (last, piece)
            merged[-1] = Piece(
                start=last.start, stop=piece.stop, size_bytes=last.size_bytes + piece.size_bytes
            )
        else:
            merged.append(piece)
    return merged


def plan_tasks(
    ranges: Sequence[OffsetRange], *, records_max: int | None, count_min: int | None
) -> list[OffsetRange]:
    """Cut ranges until none holds more than `records_max` and there are at least `count_min`.

    The number of parts is proportional to the offsets of a range; a range of n offsets has at most
    n parts.
    """
    if records_max is not None:
        ranges = [part for found in ranges for part in _cut(found, -(-found.count // records_max))]
    if count_min is None or len(ranges) >= count_min:
        return list(ranges)
    total = sum(found.count for found in ranges)
    tasks: list[OffsetRange] = []
    for found in ranges:
        parts = -(
            -found.count * count_min // total
        )  # rounded up, so that there are at least `count_min`
        tasks += _cut(found, parts)
    return tasks


def _cut(found: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, found.count))
    edges = [found.start + found.count * part // parts for part in range(parts + 1)]
    return [replace(found, start=start, stop=stop) for start, stop in pairwise(edges)]


def share(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Split `limit` in proportion to `backlog`; a partition with a backlog gets at least 1."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {
        partition: min(count, max(1, count * limit // total))
        for partition, count in backlog.items()
        if count
    }
