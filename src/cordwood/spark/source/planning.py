"""Decisions about what is read, from plain values: tasks, and how far a micro-batch goes.

Nothing here opens a file or asks the time. Ranges are half-open.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cordwood.spark.source.compaction_guard import CompactionGuard
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.topic_choice import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What one task reads. Invariant: ``start < stop``."""

    place: LogPlace
    start: int
    stop: int
    guard: CompactionGuard | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop, self

    @property
    def count(self) -> int:
        """Offsets in it; records at most."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Offsets that lie together in one segment, and about how many bytes they take there."""

    start: int
    stop: int
    size_bytes: int


def merge_pieces(pieces: Iterable[Piece], *, target_bytes: int) -> list[Piece]:
    """Put consecutive pieces together as long as they hold at most `target_bytes`."""
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

    Large ranges are cut into more parts than small ones, in proportion to their offsets; a
    range of n offsets into n parts at most.
    """
    if records_max is not None:
        ranges = [part for found in ranges for part in _cut(found, -(-found.count // records_max))]
    if count_min is None or len(ranges) >= count_min:
        return list(ranges)
    total = sum(found.count for found in ranges)
    tasks: list[OffsetRange] = []
    for found in ranges:
        parts = -(-found.count * count_min // total)  # rounded up: a hint that is always met
        tasks += _cut(found, parts)
    return tasks


def _cut(found: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, found.count))
    edges = [found.start + found.count * part // parts for part in range(parts + 1)]
    return [replace(found, start=start, stop=stop) for start, stop in pairwise(edges)]


def share(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Split `limit` in proportion to `backlog`; whoever has some gets at least 1, none too much."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {
        partition: min(count, max(1, count * limit // total))
        for partition, count in backlog.items()
        if count
    }
