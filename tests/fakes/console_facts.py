"""Snapshots of stores that do not exist."""

from collections.abc import Mapping

from cordwood.console.facts.cluster_facts import (
    CommittedFacts,
    GroupFacts,
    PartitionFacts,
    Snapshot,
    TopicFacts,
)


def topic(name: str, ends: Mapping[int, int], *, start: int = 0, id_: str = "id") -> TopicFacts:
    return TopicFacts(
        name=name,
        topic_id=id_,
        is_internal=name.startswith("__"),
        partitions=tuple(
            PartitionFacts(name, number, min(start, end), end, end * 10, 1)
            for number, end in ends.items()
        ),
        cleanup_policy="delete",
    )


def group(name: str, offsets: Mapping[tuple[str, int], int]) -> GroupFacts:
    return GroupFacts(
        name=name,
        state="Stable",
        kind="classic",
        committed=tuple(CommittedFacts(t, p, offset) for (t, p), offset in offsets.items()),
    )


def snapshot(
    *topics: TopicFacts, groups: tuple[GroupFacts, ...] = (), taken_ms: int = 1_000
) -> Snapshot:
    return Snapshot(
        taken_ms=taken_ms,
        took_ms=1.0,
        topics={topic.name: topic for topic in topics},
        groups={group.name: group for group in groups},
        has_files=True,
    )
