"""Turns boundaries into offsets and offsets into tasks: the driver's half of a read.

Reads directories, manifests and indexes; reads records only to search for a time.
"""

from collections.abc import Iterable, Mapping

from cordwood.errors import ConfigError
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.time_lookup import EARLIEST, LATEST
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.quantities import TimestampMs
from cordwood.spark.source.boundaries import Boundary, Moment
from cordwood.spark.source.compaction_guard import CompactionGuard
from cordwood.spark.source.log_extent import pieces_between
from cordwood.spark.source.opened_source import OpenedSource, SourceTopic
from cordwood.spark.source.planning import OffsetRange, merge_pieces, plan_tasks
from cordwood.spark.source.pruning import spans_where
from cordwood.spark.source.range_reader import LossPolicy
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.topic_choice import TopicChoice, TopicPartition
from cordwood.value_class import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """The partitions to read, at one moment. `ends` are the high watermarks."""

    topics: Mapping[str, SourceTopic]
    ends: Mapping[TopicPartition, int]

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self.ends)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in self.topics.items() if topic.topic_id}

    def log(self, partition: TopicPartition) -> LogReader:
        return self.topics[partition[0]].logs[partition[1]]

    def has(self, partition: TopicPartition) -> bool:
        return partition in self.ends


def survey(source: OpenedSource, isolation: Isolation = READ_UNCOMMITTED) -> Surveyed:
    """The partitions that exist now, up to the end that `isolation` allows."""
    topics = source.look()
    ends = source.ends(topics)
    known = {
        (name, number): min(ends[name, number], log.last_stable_offset)
        if is_committed_only(isolation)
        else ends[name, number]
        for name, topic in topics.items()
        for number, log in topic.logs.items()
        if (name, number) in ends
    }
    return Surveyed(topics=topics, ends=known)


def check_named(source: OpenedSource, choice: TopicChoice, found: Surveyed) -> None:
    """Raise `ConfigError` unless every named topic and partition exists."""
    for topic in sorted(choice.named_topics - set(found.topics)):
        option = "subscribe" if choice.names else "assign"
        there = source.all_topics()
        if topic not in there:
            known = ", ".join(there) or "none"
            raise ConfigError(option, topic, f"unknown topic; known are: {known}")
    for topic, number in sorted(choice.assigned):
        if not found.has((topic, number)):
            raise ConfigError("assign", topic, f"the topic has no partition {number}")
    if choice.pattern is not None and not found.topics:
        known = ", ".join(source.all_topics()) or "none"
        raise ConfigError(
            "subscribePattern",
            choice.pattern.pattern,
            f"matches no topic; known are: {known}",
        )


class OffsetResolver:
    """Resolves boundaries to offsets. `now_ms` is the same for all of them."""

    def __init__(self, options: SourceOptions, found: Surveyed, now_ms: TimestampMs) -> None:
        self._options = options
        self._found = found
        self._now_ms = now_ms
        self._loss = LossPolicy(options.fails_on_data_loss)

    def starts(self) -> dict[TopicPartition, int]:
        boundary = self._options.starting
        self._check_complete(boundary)
        recreated = self._recreated(boundary)
        return {
            partition: self._start(boundary, partition, is_recreated=partition[0] in recreated)
            for partition in self._found.partitions
        }

    def stops(self) -> dict[TopicPartition, int]:
        boundary = self._options.ending
        self._check_complete(boundary)
        self._recreated(boundary)
        return {partition: self._stop(boundary, partition) for partition in self._found.partitions}

    def _check_complete(self, boundary: Boundary) -> None:
        if boundary.named is None:
            return
        there = frozenset(self._found.partitions)
        for wrong, rule in (
            (there - boundary.named, "must name every partition to read; missing"),
            (boundary.named - there, "names a partition that the query does not read:"),
        ):
            if wrong:
                names = ", ".join(f"{topic}-{number}" for topic, number in sorted(wrong))
                shown = ", ".join(f"{topic}-{number}" for topic, number in sorted(boundary.named))
                raise ConfigError(boundary.option, shown, f"{rule} {names}")

    def _recreated(self, boundary: Boundary) -> set[str]:
        """Topics whose id differs from the one that the offsets belong to."""
        given = boundary.topic_ids or {}
        wrong = {
            topic
            for topic, found in self._found.topic_ids.items()
            if given.get(topic, found) != found
        }
        for topic in sorted(wrong):
            self._loss.report(
                topic,
                None,
                f"{boundary.option} is about topic id {given[topic]}, "
                f"and the topic of that name now has id {self._found.topic_ids[topic]}",
            )
        return wrong

    def _start(self, boundary: Boundary, partition: TopicPartition, *, is_recreated: bool) -> int:
        log, end = self._found.log(partition), self._found.ends[partition]
        earliest = min(log.start_offset, end)
        wanted = EARLIEST if is_recreated else boundary.of(partition)
        if isinstance(wanted, Moment):
            found = log.offset_for_time(wanted.at(self._now_ms))
            if found is None and not self._options.starts_late:
                raise ConfigError(
                    boundary.option,
                    wanted.at(self._now_ms),
                    f"{log.name} has no record at or after that time; "
                    "startingOffsetsByTimestampStrategy=latest starts at its end instead",
                )
            return end if found is None else min(found, end)
        if wanted in {EARLIEST, LATEST}:
            return earliest if wanted == EARLIEST else end
        if wanted > end:
            raise ConfigError(
                boundary.option, wanted, f"{log.name} ends at offset {end}: that is past its end"
            )
        if wanted < earliest:
            self._loss.report(
                *partition,
                f"{boundary.option} is offset {wanted}, and the log begins at {earliest}: "
                "what came before was deleted",
            )
        return max(wanted, earliest)

    def _stop(self, boundary: Boundary, partition: TopicPartition) -> int:
        log, end = self._found.log(partition), self._found.ends[partition]
        wanted = boundary.of(partition)
        if isinstance(wanted, Moment):
            found = log.offset_for_time(wanted.at(self._now_ms))
            return end if found is None else min(found, end)
        if wanted == LATEST:
            return end
        if wanted > end:
            self._loss.report(
                *partition, f"{boundary.option} is offset {wanted}, and the log ends at {end}"
            )
        return min(wanted, end)


Span = tuple[TopicPartition, int, int]  # a partition, and [start, stop) of its offsets


def pruned(found: Surveyed, spans: Iterable[Span], options: SourceOptions) -> list[Span]:
    """What the option `where` leaves of these spans."""
    return [
        (partition, *part)
        for partition, start, stop in spans
        for part in spans_where(found.log(partition), options.where, start, stop)
    ]


def plan_ranges(
    found: Surveyed, spans: Iterable[Span], options: SourceOptions
) -> list[OffsetRange]:
    """The tasks that read these spans."""
    ranges: list[OffsetRange] = []
    for partition, start, stop in spans:
        topic, number = partition
        place = found.topics[topic].place(number)
        pieces = pieces_between(found.log(partition), start, stop, target_bytes=options.task_bytes)
        ranges += [
            OffsetRange(place=place, start=piece.start, stop=piece.stop)
            for piece in merge_pieces(pieces, target_bytes=options.task_bytes)
        ]
    return plan_tasks(
        ranges, records_max=options.task_records_max, count_min=options.partitions_min
    )


def guard_ranges(
    found: Surveyed, tasks: Iterable[OffsetRange], spans: Iterable[Span]
) -> list[OffsetRange]:
    """The same tasks with their compaction guards, for a query that ends with these spans."""
    ends = {partition: stop for partition, _, stop in spans}
    guarded: list[OffsetRange] = []
    for task in tasks:
        partition = (task.place.topic, task.place.partition)
        log, end = found.log(partition), ends[partition]
        guard = CompactionGuard.over(log, task.start, task.stop, end=end)
        guarded.append(task if guard is None else replace(task, guard=guard))
    return guarded
