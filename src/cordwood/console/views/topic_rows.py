"""The table of topics. Pure."""

from typing import Final

from cordwood.console.facts.cluster_facts import PartitionRate, Snapshot
from cordwood.console.views.lag import groups_by_topic
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.value_class import dataclass

_NO_RATE: Final = PartitionRate(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    name: str
    is_internal: bool
    partition_count: int
    records: int
    size_bytes: int | None
    segment_count: int | None
    records_per_s: float
    bytes_per_s: float
    cleanup_policy: str | None
    group_count: int
    lag: int
    problem_count: int
    damage_count: int


COLUMNS: Final[tuple[Column[TopicRow], ...]] = (
    Column(name="name", title="Topic", value=lambda row: row.name),
    Column(
        name="partitions", title="Partitions", value=lambda row: row.partition_count, is_number=True
    ),
    Column(
        name="records",
        title="Offsets",
        value=lambda row: row.records,
        is_number=True,
        help="End offset minus start offset. Compaction leaves gaps: there may be fewer records.",
    ),
    Column(name="size", title="Size", value=lambda row: row.size_bytes, is_number=True),
    Column(name="segments", title="Segments", value=lambda row: row.segment_count, is_number=True),
    Column(name="rate", title="Records/s", value=lambda row: row.records_per_s, is_number=True),
    Column(name="cleanup", title="Cleanup", value=lambda row: row.cleanup_policy),
    Column(name="groups", title="Groups", value=lambda row: row.group_count, is_number=True),
    Column(
        name="lag",
        title="Lag",
        value=lambda row: row.lag,
        is_number=True,
        help="Records that groups have not read yet, all groups together.",
    ),
)


def topic_rows(snapshot: Snapshot) -> list[TopicRow]:
    lags = groups_by_topic(snapshot)
    damaged: dict[str, int] = {}
    for damage in snapshot.damages:
        damaged[damage.topic] = damaged.get(damage.topic, 0) + 1
    rates: dict[str, PartitionRate] = {}
    for (name, _), rate in snapshot.rates.items():
        known = rates.get(name, _NO_RATE)
        rates[name] = PartitionRate(
            known.records_per_s + rate.records_per_s, known.bytes_per_s + rate.bytes_per_s
        )
    found: list[TopicRow] = []
    for name, topic in snapshot.topics.items():
        records = segments = problems = 0
        size: int | None = None
        for partition in topic.partitions:
            if partition.problem is not None:
                problems += 1
            if partition.start_offset is not None and partition.end_offset is not None:
                records += partition.end_offset - partition.start_offset
            if partition.size_bytes is not None:
                size = (size or 0) + partition.size_bytes
            segments += partition.segment_count or 0
        groups = lags.get(name, {})
        rate = rates.get(name, _NO_RATE)
        found.append(
            TopicRow(
                name=name,
                is_internal=topic.is_internal,
                partition_count=len(topic.partitions),
                records=records,
                size_bytes=size,
                segment_count=segments if snapshot.has_files else None,
                records_per_s=rate.records_per_s,
                bytes_per_s=rate.bytes_per_s,
                cleanup_policy=topic.cleanup_policy,
                group_count=len(groups),
                lag=sum(groups.values()),
                problem_count=problems,
                damage_count=damaged.get(name, 0),
            )
        )
    return found


def topics_page(
    snapshot: Snapshot, state: TableState, *, with_internal: bool
) -> TablePage[TopicRow]:
    rows = [row for row in topic_rows(snapshot) if with_internal or not row.is_internal]
    return table_page(rows, COLUMNS, state, text=lambda row: row.name)
