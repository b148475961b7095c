"""Plans a distributed compaction without owning the store.

Takes the same decisions as the store's own cleaner, from the same facts, read from the files:
segment sizes, the cleaner's checkpoint, the newest producer snapshot and the batches after it. The
log may grow before the result is swapped in; the owner of the store checks that the planned
segments are unchanged.
"""

import os
from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.beside.producer_listing import read_producers
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.inbox.change_inbox import new_request_id, staging_directory
from cordwood.log.inbox.store_change import SegmentPlace
from cordwood.log.partition.removal.upkeep_outlook import summarize_segment
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.compaction_plan import (
    CompactionPlan,
    LogSummary,
    SegmentSummary,
    group_segments,
    plan_compaction,
)
from cordwood.log.rules.producer_state import ProducerStates
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.directory_listing import find_partitions
from cordwood.log.topics.log_directory import read_checkpoints
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import FileSystem, RealFileSystem
from cordwood.value_class import dataclass, replace


class CompactionScope(StrEnum):
    """Which logs are compacted.

    DIRTY   logs with dirty records in sealed segments; respects min.compaction.lag.ms
    DUE     logs that the store's own cleaner would compact now
    ALL     the sealed segments of all logs, regardless of their settings
    """

    DIRTY = "dirty"
    DUE = "due"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """Consecutive segments that one task rewrites together. Sent to executors.

    number   among all groups of the job
    log      the number of the log it belongs to
    """

    number: int
    log: int
    name: str
    directory: str
    staging: str
    request_id: str
    segments: tuple[SegmentPlace, ...]
    first_dirty: int
    upper: int
    aborted: tuple[AbortedTransaction, ...]
    retained: tuple[int, ...]
    marker_epochs: tuple[tuple[int, int], ...]
    delete_retention_ms: int

    @property
    def start(self) -> int:
        return self.segments[0].base_offset

    @property
    def stop(self) -> int:
        return self.segments[-1].next_offset

    @property
    def size(self) -> int:
        return sum(place.size for place in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One log, its compaction, and its groups in order; no groups if it is not due."""

    topic_id: UUID
    decision: CompactionPlan
    checkpoint: int | None
    groups: tuple[GroupPlan, ...]

    @property
    def name(self) -> str:
        return f"{self.decision.topic}-{self.decision.partition}"


def plan_job(
    paths: Sequence[str],
    topics: Sequence[str],
    *,
    scope: CompactionScope,
    now_ms: TimestampMs,
) -> list[PartitionPlan]:
    """Plan for the topics in the data directories `paths`; all compacted ones if none is named."""
    wanted = frozenset(topics)
    fs = RealFileSystem()
    with ReadOnlyStore(
        paths,
        fs=fs,
        clock=SystemClock(),
        defaults=TopicConfig(),
        wants=lambda topic, _partition: not wanted or topic in wanted,
    ) as store:
        names = _chosen(store, topics)
        planner = _Planner(fs, paths[0], scope, now_ms)
        return [
            planner.plan(store.topic(name), log)
            for name in names
            for log in store.topic(name).partitions
        ]


def _chosen(store: ReadOnlyStore, topics: Sequence[str]) -> list[str]:
    there = store.topics(include_internal=True)
    for name in topics:
        if name not in there:
            known = ", ".join(_all_topics(store)) or "none"
            raise ConfigError("topic", name, f"unknown topic; known are: {known}")
        if not store.topic(name).config.is_compacted:
            raise ConfigError("topic", name, "its cleanup.policy does not include compact")
    compacted = [name for name in there if store.topic(name).config.is_compacted]
    return list(dict.fromkeys(topics)) if topics else compacted


def _all_topics(store: ReadOnlyStore) -> list[str]:
    fs = RealFileSystem()
    found = (partition for path in store.data_dirs for partition in find_partitions(fs, path).live)
    return sorted({partition.topic for partition in found})


class _Planner:
    """Numbers logs and groups in sequence. For one thread."""

    def __init__(
        self, fs: FileSystem, path: str, scope: CompactionScope, now_ms: TimestampMs
    ) -> None:
        self._fs = fs
        self._path = path
        self._scope = scope
        self._now_ms = now_ms
        self._logs = 0
        self._groups = 0

    def plan(self, topic: Topic[ReadOnlyLog], log: ReadOnlyLog) -> PartitionPlan:
        view = log.view()
        producers = read_producers(self._fs, log.directory, view, self._now_ms)
        unstable = producers.first_unstable_offset(view.high_watermark)
        settled = view.high_watermark if unstable is None else min(unstable, view.high_watermark)
        home = os.path.dirname(log.directory)
        checkpoint = read_checkpoints(self._fs, home).cleaned.get((log.topic, log.partition))
        summary = LogSummary(
            topic=log.topic,
            partition=log.partition,
            start_offset=view.start,
            end_offset=view.high_watermark,
            settled=settled,
            active_base_offset=view.segments.active.base_offset,
            checkpoint=checkpoint,
            segments=self._summaries(view, topic.config, with_indexes=False),
        )
        decision = plan_compaction(
            summary,
            self._config(topic.config),
            now_ms=self._now_ms,
            force=self._scope is CompactionScope.ALL,
        )
        groups: tuple[GroupPlan, ...] = ()
        if decision.is_due:
            groups = self._groups_of(topic.config, log, view, decision, producers)
            self._logs += 1
        return PartitionPlan(
            topic_id=topic.topic_id, decision=decision, checkpoint=checkpoint, groups=groups
        )

    def _config(self, config: TopicConfig) -> TopicConfig:
        if self._scope is CompactionScope.DIRTY:
            return replace(config, min_cleanable_dirty_ratio=0.0)
        return config

    def _summaries(
        self, view: LogView, config: TopicConfig, *, with_indexes: bool
    ) -> tuple[SegmentSummary, ...]:
        return tuple(
            summarize_segment(
                self._fs, segment, view.segments.end_of(index), config, with_indexes=with_indexes
            )
            for index, segment in enumerate(view.segments)
            if segment is not view.segments.active
        )

    def _groups_of(
        self,
        config: TopicConfig,
        log: ReadOnlyLog,
        view: LogView,
        decision: CompactionPlan,
        producers: ProducerStates,
    ) -> tuple[GroupPlan, ...]:
        upper = decision.first_uncleanable
        last_offsets, marker_epochs = producers.last_batches(self._now_ms)
        retained = sorted(last_offsets | {upper - 1})
        aborted = _aborted(view, view.segments.first_offset, upper)
        grouped = group_segments(
            [s for s in self._summaries(view, config, with_indexes=True) if s.base_offset < upper],
            segment_bytes_max=config.segment_bytes_effective,
            index_bytes_max=config.segment_index_bytes,
        )
        plans = []
        for group in grouped:
            start, stop = group[0].base_offset, group[-1].end_offset
            request_id = new_request_id()
            plans.append(
                GroupPlan(
                    number=self._groups,
                    log=self._logs,
                    name=log.name,
                    directory=log.directory,
                    staging=staging_directory(self._path, request_id),
                    request_id=request_id,
                    segments=tuple(
                        SegmentPlace(
                            base_offset=s.base_offset, next_offset=s.end_offset, size=s.size
                        )
                        for s in group
                    ),
                    first_dirty=decision.first_dirty,
                    upper=upper,
                    aborted=tuple(
                        t for t in aborted if t.last_offset >= start and t.first_offset < stop
                    ),
                    retained=tuple(offset for offset in retained if start <= offset < stop),
                    marker_epochs=tuple(sorted(marker_epochs.items())),
                    delete_retention_ms=config.delete_retention_ms,
                )
            )
            self._groups += 1
        return tuple(plans)


def _aborted(view: LogView, start: Offset, stop: Offset) -> list[AbortedTransaction]:
    """The transactions with records in [start, stop), in the order of their starts."""
    found: list[AbortedTransaction] = []
    for index in range(max(view.segments.floor(start), 0), len(view.segments)):
        collected = view.segments[index].indexes.transaction.collect(
            fetch_start=start, upper_bound=stop
        )
        found += collected.transactions
        if collected.is_complete:
            break
    return sorted(found, key=lambda transaction: transaction.first_offset)
