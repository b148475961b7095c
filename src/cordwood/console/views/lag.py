"""How far groups are behind. Pure."""

from collections.abc import Iterable, Mapping

from cordwood.console.facts.cluster_facts import GroupFacts, Place, Snapshot
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group in one partition. If the partition is deleted or unreadable, `lag` is None.

    `lag_ms` is the age of the oldest record that the group has not read; None if it is not known.
    """

    topic: str
    partition: int
    offset: int
    metadata: str
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    lag_ms: int | None = None
    member: str | None = None
    client_id: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether records that the group has not read are gone."""
        return self.start_offset is not None and self.offset < self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    name: str
    kind: str | None
    state: str | None
    topics: tuple[str, ...]
    partition_count: int
    lag: int
    worst: int
    has_lost: bool


def offsets_behind(positions: Iterable[tuple[str, int, int]], snapshot: Snapshot) -> int | None:
    """How many offsets follow the positions; None if no partition of them is known."""
    found = None
    for topic, partition, offset in positions:
        facts = snapshot.partition((topic, partition))
        if facts is not None and facts.end_offset is not None:
            found = (found or 0) + max(facts.end_offset - offset, 0)
    return found


def positions_of(
    group: GroupFacts, snapshot: Snapshot, times_ms: Mapping[Place, int] | None = None
) -> list[GroupPosition]:
    """Each partition that a group has committed. `times_ms` has the age of its next record."""
    found: list[GroupPosition] = []
    for committed in group.committed:
        facts = snapshot.partition((committed.topic, committed.partition))
        start = None if facts is None else facts.start_offset
        end = None if facts is None else facts.end_offset
        found.append(
            GroupPosition(
                topic=committed.topic,
                partition=committed.partition,
                offset=committed.offset,
                metadata=committed.metadata,
                start_offset=start,
                end_offset=end,
                lag=None if end is None else max(end - committed.offset, 0),
                lag_ms=(times_ms or {}).get((committed.topic, committed.partition)),
            )
        )
    return found


def group_row(group: GroupFacts, snapshot: Snapshot) -> GroupRow:
    lag = worst = 0
    has_lost = False
    topics: dict[str, None] = {}
    for committed in group.committed:
        topics[committed.topic] = None
        facts = snapshot.partition((committed.topic, committed.partition))
        if facts is None or facts.end_offset is None:
            continue
        behind = max(facts.end_offset - committed.offset, 0)
        lag += behind
        worst = max(worst, behind)
        has_lost = has_lost or (
            facts.start_offset is not None and committed.offset < facts.start_offset
        )
    return GroupRow(
        name=group.name,
        kind=group.kind,
        state=group.state,
        topics=tuple(sorted(topics)),
        partition_count=len(group.committed),
        lag=lag,
        worst=worst,
        has_lost=has_lost,
    )


def groups_by_topic(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """For each topic, the groups that read it, with their lag in it."""
    found: dict[str, dict[str, int]] = {}
    for group in snapshot.groups.values():
        for committed in group.committed:
            facts = snapshot.partition((committed.topic, committed.partition))
            if facts is None or facts.end_offset is None:
                continue
            lags = found.setdefault(committed.topic, {})
            lags[group.name] = lags.get(group.name, 0) + max(facts.end_offset - committed.offset, 0)
    return found
