"""The segments of some partitions, and what retention and compaction will do to them.

Reads a few kilobytes of each segment at most. For the pages of one topic, not for snapshots.
"""

import os
from collections.abc import Sequence
from typing import Final

from cordwood.clock import Clock
from cordwood.console.facts.cluster_facts import DamageFacts
from cordwood.console.facts.directory_census import damages_of
from cordwood.errors import CorruptSegmentError
from cordwood.format.batch import BatchInfo
from cordwood.format.compression import Codec
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.inspection.segment_check import SegmentFindings, check_segment
from cordwood.log.reading.segment_info import SegmentInfo
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.value_class import dataclass

_BATCHES_SHOWN: Final = 200
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedLog:
    """One partition. `later` is the plan of retention at a later moment, if nothing is appended."""

    topic: str
    partition: int
    start_offset: int
    local_start_offset: int
    high_watermark: int
    last_stable_offset: int
    archived_up_to: int | None
    segments: tuple[SegmentInfo, ...]
    retention: RetentionPlan
    later: RetentionPlan
    compaction: CompactionPlan
    damages: tuple[DamageFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    position: int
    size: int
    base_offset: int
    next_offset: int
    record_count: int
    codec: str
    max_timestamp_ms: int
    producer_id: int | None
    is_transactional: bool
    is_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedSegment:
    """One segment with its files and its first batches."""

    log: SurveyedLog
    segment: SegmentInfo
    files: tuple[SegmentFile, ...]
    batches: tuple[BatchFacts, ...]
    has_more_batches: bool
    index_entries: int | None
    problem: str | None = None


_TRANSACTIONAL: Final = 0x10


class SegmentSurvey:
    """Looks at the logs of one store. Any thread may use it."""

    def __init__(self, store: ReadOnlyStore, clock: Clock, defaults: TopicConfig) -> None:
        self._store = store
        self._clock = clock
        self._defaults = defaults

    def partition_numbers(self, topic: str) -> list[int]:
        return [log.partition for log in self._store.topic(topic).opened_partitions]

    def logs(self, topic: str, partitions: Sequence[int], *, ahead_ms: int) -> list[SurveyedLog]:
        """The partitions now and, if nothing is appended, `ahead_ms` from now."""
        config = self._store.topic_config(topic)
        found = self._store.topic(topic)
        return [
            self._log(found.partition(number), config, ahead_ms)
            for number in partitions
            if found.has_partition(number)
        ]

    def _log(self, log: ReadOnlyLog, config: TopicConfig, ahead_ms: int) -> SurveyedLog:
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._looked_at(log, config, ahead_ms)
            except FileNotFoundError:
                log.source.refresh()  # the owner deleted or replaced a file meanwhile
        return self._looked_at(log, config, ahead_ms)

    def _looked_at(self, log: ReadOnlyLog, config: TopicConfig, ahead_ms: int) -> SurveyedLog:
        now_ms = self._clock.now_ms()
        damages = damages_of(log)  # lists the files again
        view = log.view()
        return SurveyedLog(
            topic=log.topic,
            partition=log.partition,
            start_offset=view.start,
            local_start_offset=log.local_start_offset,
            high_watermark=view.high_watermark,
            last_stable_offset=log.last_stable_offset,
            archived_up_to=log.archived_up_to,
            segments=tuple(log.segments()),
            retention=log.upkeep.plan_retention(config, now_ms),
            later=log.upkeep.plan_retention(config, TimestampMs(now_ms + ahead_ms)),
            compaction=log.upkeep.plan_compaction(
                config,
                now_ms,
                # The checkpoint has a line for each compacted partition of the disk.
                cleaned_up_to=self._store.cleaned_up_to(log) if config.is_compacted else None,
            ),
            damages=damages,
        )

    def retention_with(
        self, topic: str, partitions: Sequence[int], changes: dict[str, str | None]
    ) -> list[tuple[RetentionPlan, RetentionPlan]]:
        """For each partition the plan now, and the plan with a changed configuration."""
        now_ms = self._clock.now_ms()
        config = self._store.topic_config(topic)
        overrides = {**self._store.topic_overrides(topic), **changes}
        changed = TopicConfig.parse(
            {key: value for key, value in overrides.items() if value is not None},
            defaults=self._defaults,
        )
        found = self._store.topic(topic)
        return [
            (
                log.upkeep.plan_retention(config, now_ms),
                log.upkeep.plan_retention(changed, now_ms),
            )
            for number in partitions
            if found.has_partition(number)
            for log in (found.partition(number),)
        ]

    def segment(self, topic: str, partition: int, base_offset: int) -> SurveyedSegment | None:
        """One segment; None if there is none that begins there."""
        logs = self.logs(topic, [partition], ahead_ms=0)
        if not logs:
            return None
        [surveyed] = logs
        info = next((s for s in surveyed.segments if s.base_offset == base_offset), None)
        if info is None:
            return None
        log = self._store.topic(topic).partition(partition)
        batches, has_more, problem = _first_batches(log, Offset(base_offset))
        return SurveyedSegment(
            log=surveyed,
            segment=info,
            files=() if info.state == "archived" else _files(log.directory, base_offset),
            batches=batches,
            has_more_batches=has_more,
            index_entries=_index_entries(log, base_offset),
            problem=problem,
        )

    def verify(self, topic: str, partition: int, base_offset: int) -> SegmentFindings | None:
        """Check every byte of a segment; None if it was deleted meanwhile."""
        return check_segment(self._store.topic(topic).partition(partition), Offset(base_offset))


def _files(directory: str, base_offset: int) -> tuple[SegmentFile, ...]:
    prefix = f"{base_offset:020d}."
    found: list[SegmentFile] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            found.append(
                SegmentFile(
                    name=entry.name,
                    size_bytes=status.st_size,
                    modified_ms=int(status.st_mtime * 1000),
                )
            )
    return tuple(sorted(found, key=lambda file: file.name))


def _index_entries(log: ReadOnlyLog, base_offset: int) -> int | None:
    segments = log.view().segments
    index = segments.floor(Offset(base_offset))
    if index < 0 or segments[index].is_archived:
        return None
    return segments[index].indexes.offset.count


def _first_batches(
    log: ReadOnlyLog, base_offset: Offset
) -> tuple[tuple[BatchFacts, ...], bool, str | None]:
    view = log.view()
    segment = view.segments[max(view.segments.floor(base_offset), 0)]
    reader = segment.reader(size=log.source.readable_bytes(segment))
    found: list[BatchFacts] = []
    try:
        for first, end in reader.chunks(
            FilePosition(0), segment.base_offset, stop_offset=view.high_watermark
        ):
            for at in range(first, end):
                if len(found) >= _BATCHES_SHOWN:
                    return tuple(found), True, None
                found.append(_batch(reader.decoder.batch(at), reader.chunk_position))
    except (CorruptSegmentError, FileNotFoundError) as error:
        return tuple(found), False, str(error)
    return tuple(found), False, None


def _batch(batch: BatchInfo, chunk_position: int) -> BatchFacts:
    return BatchFacts(
        position=chunk_position + batch.position,
        size=batch.size,
        base_offset=batch.base_offset,
        next_offset=batch.next_offset,
        record_count=batch.record_count,
        codec=Codec(batch.codec).name.lower(),
        max_timestamp_ms=batch.max_timestamp,
        producer_id=None if batch.producer_id < 0 else batch.producer_id,
        is_transactional=bool(batch.attributes & _TRANSACTIONAL),
        is_control=batch.is_control,
    )
