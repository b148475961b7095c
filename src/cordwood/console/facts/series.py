"""The last minutes of a few figures, and how fast partitions grow. Pure."""

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.console.facts.cluster_facts import PartitionRate, Place, Snapshot
from cordwood.value_class import dataclass

POINTS_MAX: Final = 180
_NO_RATE: Final = PartitionRate(0.0, 0.0)


class Point(NamedTuple):
    """Rates of the whole store between two snapshots, and the lag at the second."""

    time_ms: int
    records_per_s: float
    bytes_per_s: float
    committed_per_s: float
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The newest points, oldest first."""

    points: tuple[Point, ...] = ()

    def column(self, name: str) -> list[float]:
        return [float(getattr(point, name)) for point in self.points]

    @property
    def newest(self) -> Point | None:
        return self.points[-1] if self.points else None


class SeriesKeeper:
    """Keeps the points of the last snapshots. Owned by the thread that takes snapshots."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, before: Snapshot, after: Snapshot) -> Series:
        seconds = max(after.taken_ms - before.taken_ms, 1) / 1000
        rates = after.rates
        self._points.append(
            Point(
                time_ms=after.taken_ms,
                records_per_s=sum(rate.records_per_s for rate in rates.values()),
                bytes_per_s=sum(rate.bytes_per_s for rate in rates.values()),
                committed_per_s=_committed_between(before, after) / seconds,
                lag=total_lag(after),
            )
        )
        return Series(points=tuple(self._points))


def rates_between(before: Snapshot, after: Snapshot) -> Mapping[Place, PartitionRate]:
    """The growth of each partition that grew. Deletion and compaction do not count as growth."""
    seconds = max(after.taken_ms - before.taken_ms, 1) / 1000
    found: dict[Place, PartitionRate] = {}
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is None or earlier.topic_id != topic.topic_id:
            continue
        for old, new in zip(earlier.partitions, topic.partitions, strict=False):
            if old.end_offset is None or new.end_offset is None or new.end_offset <= old.end_offset:
                continue
            grown = (new.size_bytes or 0) - (old.size_bytes or 0)
            found[name, new.partition] = PartitionRate(
                (new.end_offset - old.end_offset) / seconds, max(grown, 0) / seconds
            )
    return MappingProxyType(found)


def _committed_between(before: Snapshot, after: Snapshot) -> int:
    """How many records all groups together committed."""
    moved = 0
    for name, group in after.groups.items():
        earlier = before.groups.get(name)
        if earlier is None or earlier.committed == group.committed:
            continue
        offsets = {(c.topic, c.partition): c.offset for c in earlier.committed}
        for committed in group.committed:
            old = offsets.get((committed.topic, committed.partition))
            if old is not None and committed.offset > old:
                moved += committed.offset - old
    return moved


def total_lag(snapshot: Snapshot) -> int:
    lag = 0
    for group in snapshot.groups.values():
        for committed in group.committed:
            facts = snapshot.partition((committed.topic, committed.partition))
            if facts is not None and facts.end_offset is not None:
                lag += max(facts.end_offset - committed.offset, 0)
    return lag
