"""The first page: is anything wrong, what happens now, what comes next. Pure."""

from collections.abc import Sequence
from typing import Final

from cordwood.console.facts.cluster_facts import (
    BrokerFacts,
    DamageFacts,
    DiskFacts,
    PartitionFacts,
    Snapshot,
)
from cordwood.console.facts.events import Event
from cordwood.console.facts.series import Series
from cordwood.console.views.lag import GroupRow, group_row
from cordwood.console.views.replica_rows import replica_findings
from cordwood.console.views.sparkline import Sparkline, sparkline
from cordwood.console.views.topic_rows import TopicRow, topic_rows
from cordwood.console.views.words import counted, size_in_words
from cordwood.value_class import dataclass

_SHOWN: Final = 8
_EVENTS_SHOWN: Final = 6

GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One sentence, and what it is about."""

    level: str  # good, warning, bad
    sentence: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number on the first page, with its course over the last minutes."""

    title: str
    value: float | None
    unit: str  # count, rate, size
    course: Sparkline | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    health: Health
    figures: tuple[Figure, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    disks: tuple[DiskFacts, ...]
    damages: tuple[DamageFacts, ...]
    unreadable: tuple[PartitionFacts, ...]
    events: tuple[Event, ...]
    broker: BrokerFacts | None
    topic_count: int
    group_count: int
    minutes: int  # that the courses show


def overview(snapshot: Snapshot, series: Series, events: Sequence[Event]) -> Overview:
    all_rows = topic_rows(snapshot)
    rows = [row for row in all_rows if not row.is_internal]
    groups = [group_row(group, snapshot) for group in snapshot.groups.values()]
    unreadable = tuple(
        partition
        for topic in snapshot.topics.values()
        for partition in topic.partitions
        if partition.problem is not None
    )
    sizes = [row.size_bytes for row in all_rows if row.size_bytes is not None]
    first = series.points[0].time_ms if series.points else snapshot.taken_ms
    return Overview(
        health=health_of(snapshot, groups, unreadable),
        figures=_figures(series, sizes=sizes, lag=sum(group.lag for group in groups)),
        topics=tuple(sorted(rows, key=_busiest, reverse=True)[:_SHOWN]),
        groups=tuple(sorted(groups, key=lambda row: (-row.lag, row.name))[:_SHOWN]),
        disks=snapshot.disks,
        damages=snapshot.damages[:_SHOWN],
        unreadable=unreadable[:_SHOWN],
        events=tuple(reversed(events[-_EVENTS_SHOWN:])),
        broker=snapshot.broker,
        topic_count=len(rows),
        group_count=len(groups),
        minutes=max(round((snapshot.taken_ms - first) / 60_000), 1),
    )


def _busiest(row: TopicRow) -> tuple[float, int, str]:
    return row.records_per_s, row.size_bytes or 0, row.name


def _figures(series: Series, *, sizes: Sequence[int], lag: int) -> tuple[Figure, ...]:
    newest = series.newest
    return (
        Figure(
            title="Records in per second",
            value=None if newest is None else newest.records_per_s,
            unit="rate",
            course=sparkline(series.column("records_per_s")),
        ),
        Figure(
            title="Bytes in per second",
            value=None if newest is None else newest.bytes_per_s,
            unit="size",
            course=sparkline(series.column("bytes_per_s")),
        ),
        Figure(
            title="Committed per second",
            value=None if newest is None else newest.committed_per_s,
            unit="rate",
            course=sparkline(series.column("committed_per_s")),
        ),
        Figure(
            title="Lag of all groups",
            value=float(lag),
            unit="count",
            course=sparkline(series.column("lag")),
        ),
        Figure(title="Size of all topics", value=float(sum(sizes)) if sizes else None, unit="size"),
    )


def health_of(
    snapshot: Snapshot, groups: Sequence[GroupRow], unreadable: Sequence[PartitionFacts]
) -> Health:
    """What an operator should know first."""
    bad = [*snapshot.problems]
    warnings: list[str] = []
    if snapshot.broker is not None and snapshot.broker.problem is not None:
        bad.append(f"The broker {snapshot.broker.address} does not answer.")
    bad += [f"{disk.path} cannot be used: {disk.error}" for disk in snapshot.disks if disk.error]
    bad += [
        f"{disk.path} is short of space: {size_in_words(disk.free_bytes)} are free, and appends "
        f"are refused below {size_in_words(disk.floor_bytes)}."
        for disk in snapshot.disks
        if disk.is_short_of_room
    ]
    if unreadable:
        bad.append(f"{counted(len(unreadable), 'partition')} cannot be read.")
    if snapshot.damages:
        lost = sum(damage.next_offset - damage.first_offset for damage in snapshot.damages)
        bad.append(
            f"{counted(len(snapshot.damages), 'damage')} found: {counted(lost, 'offset')} cannot "
            "be read."
        )
    if snapshot.replicas is not None:
        bad_replicas, weak_replicas = replica_findings(snapshot.replicas)
        bad += bad_replicas
        warnings += weak_replicas
    late = [group.name for group in groups if group.has_lost]
    if late:
        warnings.append(
            f"{counted(len(late), 'group')} lost records that were deleted before they were read: "
            f"{', '.join(late[:3])}{' …' if len(late) > 3 else ''}"
        )
    if bad:
        return Health(level=BAD, sentence=bad[0], findings=(*bad[1:], *warnings))
    if warnings:
        return Health(level=WARNING, sentence=warnings[0], findings=tuple(warnings[1:]))
    topics = sum(not topic.is_internal for topic in snapshot.topics.values())
    return Health(
        level=GOOD,
        sentence=f"All is well: {counted(topics, 'topic')} can be read, and nothing is damaged."
        if snapshot.has_files
        else f"All is well: the broker answers, and {counted(topics, 'topic')} can be read.",
    )
