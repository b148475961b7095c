"""Which logs are compacted, how far, and which segments are merged. Decisions only.

A log has three parts:

    [start, first_dirty)              clean: compacted before, by the cleaner's checkpoint
    [first_dirty, first_uncleanable)  dirty: written since
    [first_uncleanable, end)          out of reach: the active segment, and records that are not
                                      synced, that an open transaction may abort, or that are
                                      younger than min.compaction.lag.ms

Only whole segments count. A log is due if dirty bytes are more than min.cleanable.dirty.ratio of
clean and dirty bytes together, or if a dirty record is older than max.compaction.lag.ms. After
compaction nothing is dirty, so the log is not due again before more is written.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset, TimestampMs
from cordwood.value_class import dataclass, replace

# All sources of a group are held open while they are replaced.
GROUP_SEGMENTS_MAX: Final = 128


class SegmentSummary(NamedTuple):
    """The facts about a sealed segment that planning depends on.

    `end_offset` is the base offset of the next segment.
    """

    base_offset: Offset
    end_offset: Offset
    size: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp: TimestampMs
    first_timestamp: TimestampMs  # largest of its first batch; zero or negative: none


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """The facts about a log that planning depends on. `segments` are the sealed ones, in order.

    checkpoint   how far the log was compacted; None: never
    settled      everything below is synced, sealed, and decided by its transactions
    """

    topic: str
    partition: int
    start_offset: Offset
    end_offset: Offset
    settled: Offset
    active_base_offset: Offset
    checkpoint: Offset | None
    segments: tuple[SegmentSummary, ...]


class CompactionReason(StrEnum):
    """Why a log is compacted now, or why it is not."""

    DIRTY = "the dirty ratio exceeds min.cleanable.dirty.ratio"
    LAG = "a dirty record is older than max.compaction.lag.ms"
    FORCED = "requested"
    NOT_COMPACTED = "cleanup.policy does not include compact"
    NOTHING_SEALED = "all dirty records are in the active segment, or not settled yet"
    NOTHING_DIRTY = "nothing was written since the last compaction"
    TOO_YOUNG = "all dirty records are younger than min.compaction.lag.ms"
    NOT_DIRTY_ENOUGH = "the dirty ratio is too low"


_DUE: Final = frozenset({CompactionReason.DIRTY, CompactionReason.LAG, CompactionReason.FORCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What compacting a log now would do."""

    topic: str
    partition: int
    reason: CompactionReason
    first_dirty: Offset
    first_uncleanable: Offset
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int  # sealed, and out of reach
    overdue_ms: int  # how long max.compaction.lag.ms has been exceeded

    @property
    def is_due(self) -> bool:
        return self.reason in _DUE

    @property
    def bytes_to_read(self) -> int:
        """The dirty part is read twice: for its keys, and then with the rest."""
        return self.clean_bytes + 2 * self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def plan_compaction(
    log: LogSummary, config: TopicConfig, *, now_ms: TimestampMs, force: bool = False
) -> CompactionPlan:
    """Whether `log` is due, and which part of it would be compacted.

    With `force` it is due whatever the ratio and the lags, if it has a sealed segment.
    """
    first_dirty = _first_dirty(log)
    reachable = min(log.settled, log.active_base_offset)
    bound = _round_down(log, reachable)
    first_uncleanable = bound if force else min(bound, _first_too_young(log, config, now_ms, bound))
    first_uncleanable = Offset(max(first_uncleanable, first_dirty))
    cleanable = [
        segment
        for segment in log.segments
        if segment.end_offset > first_dirty and segment.base_offset < first_uncleanable
    ]
    clean_bytes = sum(s.size for s in log.segments if s.end_offset <= first_dirty)
    cleanable_bytes = sum(s.size for s in cleanable)
    overdue_ms = _overdue_ms(cleanable, config, now_ms)
    plan = CompactionPlan(
        topic=log.topic,
        partition=log.partition,
        reason=CompactionReason.FORCED,
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        uncleanable_bytes=sum(s.size for s in log.segments if s.base_offset >= first_uncleanable),
        overdue_ms=overdue_ms,
    )
    return replace(plan, reason=_reason(plan, log, config, bound=bound, force=force))


def _reason(
    plan: CompactionPlan, log: LogSummary, config: TopicConfig, *, bound: Offset, force: bool
) -> CompactionReason:
    if not config.is_compacted:
        return CompactionReason.NOT_COMPACTED
    if force:
        has_sealed = any(s.base_offset < plan.first_uncleanable for s in log.segments)
        return CompactionReason.FORCED if has_sealed else CompactionReason.NOTHING_SEALED
    if not plan.cleanable_bytes:
        if plan.first_dirty >= log.end_offset:
            return CompactionReason.NOTHING_DIRTY
        if plan.first_uncleanable < bound:
            return CompactionReason.TOO_YOUNG
        return CompactionReason.NOTHING_SEALED
    if plan.overdue_ms > 0:
        return CompactionReason.LAG
    if plan.dirty_ratio > config.min_cleanable_dirty_ratio:
        return CompactionReason.DIRTY
    return CompactionReason.NOT_DIRTY_ENOUGH


def filthiest_first(plans: Iterable[CompactionPlan]) -> list[CompactionPlan]:
    """The plans that are due: first the longest overdue, then by dirty ratio."""
    due = [plan for plan in plans if plan.is_due]
    return sorted(due, key=lambda plan: (-plan.overdue_ms, -plan.dirty_ratio))


def group_segments(
    segments: Sequence[SegmentSummary],
    *,
    segment_bytes_max: int,
    index_bytes_max: int,
    segments_max: int = GROUP_SEGMENTS_MAX,
) -> list[tuple[SegmentSummary, ...]]:
    """Groups of consecutive segments to merge, each no larger than a segment may be.

    How much compaction will leave is not known, so the present sizes count. Offsets must be within
    2^31-1 of the first one, except those of an empty segment.
    """
    groups: list[tuple[SegmentSummary, ...]] = []
    group: list[SegmentSummary] = []
    for segment in segments:
        if group:
            together = [*group, segment]
            fits = (
                len(together) <= segments_max
                and sum(s.size for s in together) <= segment_bytes_max
                and sum(s.index_bytes for s in together) <= index_bytes_max
                and sum(s.time_index_bytes for s in together) <= index_bytes_max
                and (
                    segment.size == 0 or segment.end_offset - 1 - group[0].base_offset <= INT32_MAX
                )
            )
            if not fits:
                groups.append(tuple(group))
                group = []
        group.append(segment)
    if group:
        groups.append(tuple(group))
    return groups


def _first_dirty(log: LogSummary) -> Offset:
    """The checkpoint, or the log's start if the checkpoint is not within the log."""
    checkpoint = log.checkpoint
    if checkpoint is None or not log.start_offset <= checkpoint <= log.end_offset:
        return log.start_offset
    return checkpoint


def _round_down(log: LogSummary, offset: Offset) -> Offset:
    """The base offset of the segment that contains `offset`: only whole segments are compacted."""
    for segment in log.segments:
        if segment.base_offset <= offset < segment.end_offset:
            return segment.base_offset
    return min(offset, log.active_base_offset)


def _first_too_young(
    log: LogSummary, config: TopicConfig, now_ms: TimestampMs, bound: Offset
) -> Offset:
    if config.min_compaction_lag_ms <= 0:
        return bound
    first_dirty = _first_dirty(log)
    for segment in log.segments:
        if segment.end_offset <= first_dirty:
            continue
        if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
            return segment.base_offset
    return bound


def _overdue_ms(
    cleanable: Sequence[SegmentSummary], config: TopicConfig, now_ms: TimestampMs
) -> int:
    if config.max_compaction_lag_ms == INT64_MAX:
        return 0
    known = [s.first_timestamp for s in cleanable if s.size and s.first_timestamp > 0]
    if not known:
        return 0
    return max(now_ms - config.max_compaction_lag_ms - min(known), 0)
