"""The list of topics, and the pages of one topic about its partitions and its groups."""

from typing import Final

from cordwood.console.facts.cluster_facts import PartitionFacts, PartitionRate, TopicFacts
from cordwood.console.pages.page import PageRequest
from cordwood.console.views.lag import GroupPosition, groups_by_topic, positions_of
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.console.views.topic_rows import TopicRow, topics_page
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsView:
    table: TablePage[TopicRow]
    with_internal: bool
    internal_count: int


def show_topics(request: PageRequest) -> TopicsView:
    with_internal = request.text("internal") == "1"
    state = TableState.parse(request.parameters, sort="name")
    return TopicsView(
        table=topics_page(request.snapshot, state, with_internal=with_internal),
        with_internal=with_internal,
        internal_count=sum(topic.is_internal for topic in request.snapshot.topics.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    facts: PartitionFacts
    records_per_s: float
    damage_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsView:
    topic: TopicFacts
    table: TablePage[PartitionRow]


_PARTITION_COLUMNS: Final[tuple[Column[PartitionRow], ...]] = (
    Column(name="partition", title="Partition", value=lambda r: r.facts.partition, is_number=True),
    Column(name="start", title="Log start", value=lambda r: r.facts.start_offset, is_number=True),
    Column(name="end", title="High watermark", value=lambda r: r.facts.end_offset, is_number=True),
    Column(name="records", title="Offsets", value=lambda r: r.facts.record_count, is_number=True),
    Column(name="size", title="Size", value=lambda r: r.facts.size_bytes, is_number=True),
    Column(
        name="segments", title="Segments", value=lambda r: r.facts.segment_count, is_number=True
    ),
    Column(name="rate", title="Records/s", value=lambda r: r.records_per_s, is_number=True),
)


def show_partitions(request: PageRequest) -> PartitionsView:
    topic = request.topic()
    none = PartitionRate(0.0, 0.0)
    rows = [
        PartitionRow(
            facts=facts,
            records_per_s=request.snapshot.rates.get(
                (topic.name, facts.partition), none
            ).records_per_s,
            damage_count=sum(
                damage.topic == topic.name and damage.partition == facts.partition
                for damage in request.snapshot.damages
            ),
        )
        for facts in topic.partitions
    ]
    state = TableState.parse(request.parameters, sort="partition")
    table = table_page(rows, _PARTITION_COLUMNS, state, text=lambda row: str(row.facts.partition))
    return PartitionsView(topic=topic, table=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRow:
    group: str
    state: str | None
    lag: int
    positions: tuple[GroupPosition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersView:
    topic: TopicFacts
    table: TablePage[ConsumerRow]


_CONSUMER_COLUMNS: Final[tuple[Column[ConsumerRow], ...]] = (
    Column(name="group", title="Group", value=lambda row: row.group),
    Column(name="state", title="State", value=lambda row: row.state),
    Column(
        name="partitions", title="Partitions", value=lambda row: len(row.positions), is_number=True
    ),
    Column(name="lag", title="Lag", value=lambda row: row.lag, is_number=True),
)


def show_consumers(request: PageRequest) -> ConsumersView:
    topic = request.topic()
    lags = groups_by_topic(request.snapshot).get(topic.name, {})
    rows = []
    for name, lag in lags.items():
        group = request.snapshot.groups[name]
        positions = positions_of(group, request.snapshot)
        rows.append(
            ConsumerRow(
                group=name,
                state=group.state,
                lag=lag,
                positions=tuple(p for p in positions if p.topic == topic.name),
            )
        )
    state = TableState.parse(request.parameters, sort="-lag")
    table = table_page(rows, _CONSUMER_COLUMNS, state, text=lambda row: row.group)
    return ConsumersView(topic=topic, table=table)
