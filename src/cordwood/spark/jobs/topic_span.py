"""The offsets of each partition that a job reads, fixed before Spark starts.

A job that continues where a table ends must know both ends of what it reads: it writes the upper
one into the table. Partitions are named one by one, so that partitions added meanwhile wait.

Jobs read committed records only. So a span ends before the first transaction that is open: when it
has ended, the next run reads its records, or leaves them out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cordwood.errors import ConfigError, LogError
from cordwood.log.rules.isolation import READ_COMMITTED, Isolation
from cordwood.spark.source.opened_source import absolute_paths, open_source
from cordwood.spark.source.planning import share
from cordwood.spark.source.range_reader import LossPolicy
from cordwood.spark.source.source_options import ISOLATION
from cordwood.spark.source.source_plan import Surveyed, check_named, survey
from cordwood.spark.source.stream_offsets import StreamOffset
from cordwood.spark.source.topic_choice import TopicChoice, TopicPartition
from cordwood.spark.tables.lake_table import TableState
from cordwood.value_class import dataclass, replace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpan:
    """Offsets [start, stop) of each partition, of the topics with these ids."""

    paths: tuple[str, ...]
    starts: Mapping[TopicPartition, int]
    stops: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    fails_on_data_loss: bool = True
    isolation: Isolation = READ_COMMITTED

    @property
    def count(self) -> int:
        """The number of offsets, which is the largest possible number of records."""
        return sum(self.stops[place] - start for place, start in self.starts.items())

    def rows(self) -> tuple[dict[str, Any], ...]:
        """A row for each partition, for the report."""
        return tuple(
            {
                "topic": topic,
                "partition": number,
                "from": self.starts[topic, number],
                "up_to": self.stops[topic, number],
            }
            for topic, number in sorted(self.starts)
        )

    def state(self, held: TableState | None, settings: Mapping[str, str]) -> TableState:
        """The state of a table that held `held` after it receives this span."""
        before = held or TableState()
        return TableState(
            offsets={**before.offsets, **self.stops},
            topic_ids={**before.topic_ids, **self.topic_ids},
            settings=settings,
        )

    def behind(self, state: TableState) -> "TopicSpan":
        """The part that a table with that state lacks."""
        return replace(
            self,
            starts={
                place: min(max(start, state.offsets.get(place, start)), self.stops[place])
                for place, start in self.starts.items()
            },
        )

    def up_to(self, stops: Mapping[TopicPartition, int]) -> "TopicSpan":
        """The part below `stops`, without the partitions that `stops` does not name."""
        return replace(
            self,
            stops={
                place: max(start, min(self.stops[place], stops.get(place, start)))
                for place, start in self.starts.items()
            },
        )

    def limited(self, records_max: int) -> "TopicSpan":
        """The first part, of about that many offsets."""
        backlog = {place: self.stops[place] - start for place, start in self.starts.items()}
        shares = share(backlog, records_max)
        return replace(
            self,
            stops={place: start + shares.get(place, 0) for place, start in self.starts.items()},
        )

    def load(
        self,
        spark: "SparkSession",
        columns: Sequence[str],
        options: Mapping[str, str] | None = None,
    ) -> "DataFrame":
        """The rows of the span; never rows of another topic of that name."""
        reader = (
            spark.read.format("cordwood")
            .option("columns", ",".join(columns))
            .options(**self.source_options())
            .options(**(options or {}))
        )
        return reader.load(self.paths[0] if len(self.paths) == 1 else list(self.paths))

    def source_options(self) -> dict[str, str]:
        """Options of the source that select the span."""
        assigned: dict[str, list[int]] = {}
        for topic, number in sorted(self.starts):
            assigned.setdefault(topic, []).append(number)
        return {
            "assign": json.dumps(assigned),
            "startingOffsets": self._render(self.starts),
            "endingOffsets": self._render(self.stops),
            "failOnDataLoss": str(self.fails_on_data_loss).lower(),
            ISOLATION: self.isolation,
        }

    def _render(self, positions: Mapping[TopicPartition, int]) -> str:
        return json.dumps(StreamOffset(positions=positions, topic_ids=self.topic_ids).to_json())


def plan_span(
    paths: Sequence[str],
    topics: Sequence[str],
    state: TableState | None = None,
    *,
    table: str = "",
    fails_on_data_loss: bool = True,
    isolation: Isolation = READ_COMMITTED,
    if_recreated: str = "Use another table for it",
) -> TopicSpan:
    """The span from the end of `state`, or from the beginning, to the present end.

    Raises `ConfigError` if a topic does not exist, or is not the one that the table holds.
    """
    if not topics:
        raise ConfigError("topic", "", "name at least one")
    choice = TopicChoice(names=frozenset(topics))
    held = state or TableState()
    places = absolute_paths(paths)
    with open_source(places, choice.wants) as source:
        found = survey(source, isolation)
        check_named(source, choice, found)
        _check_same_topics(found, held, table, if_recreated)
        loss = LossPolicy(fails_on_data_loss)
        starts = {place: _start(found, place, held, table, loss) for place in found.partitions}
        return TopicSpan(
            paths=places,
            starts=starts,
            stops={place: max(found.ends[place], starts[place]) for place in found.partitions},
            topic_ids=found.topic_ids,
            fails_on_data_loss=fails_on_data_loss,
            isolation=isolation,
        )


def _check_same_topics(found: Surveyed, held: TableState, table: str, remedy: str) -> None:
    for topic, topic_id in sorted(found.topic_ids.items()):
        known = held.topic_ids.get(topic, topic_id)
        if known != topic_id:
            raise ConfigError(
                "topic",
                topic,
                f"{table} holds the topic with id {known}, and the one of that name now has id "
                f"{topic_id}: it was created again. {remedy}",
            )


def _start(
    found: Surveyed, place: TopicPartition, held: TableState, table: str, loss: LossPolicy
) -> int:
    log = found.log(place)
    earliest = min(log.start_offset, found.ends[place])
    start = held.offsets.get(place, earliest)
    end = max(log.end_offset, found.ends[place])
    if start > end:
        raise LogError(
            f"{table} holds {log.name} up to offset {start}, and the log ends at {end}: it was "
            "cut, or restored from an older copy"
        )
    if start < earliest:
        loss.report(
            *place,
            f"{table} continues at offset {start}, and the log begins at {earliest}: "
            "what came before was deleted",
        )
    return max(start, earliest)
