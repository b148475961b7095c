"""Which logs are compacted, how far, and which segments go together. Decisions only.

A log falls into three parts:

    [start, first_dirty)              clean: compacted before, by the cleaner's checkpoint
    [first_dirty, first_uncleanable)  dirty: written since
    [first_uncleanable, end)          out of reach: the active segment, what is not synced, what
                                      an open transaction may undo, what is younger than
                                      min.compaction.lag.ms

Segments count whole. A log is due when dirty bytes are more than min.cleanable.dirty.ratio of
clean and dirty ones together, or when something dirty is older than max.compaction.lag.ms. A
compacted log has nothing dirty, so it is not due again before something is written to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset, TimestampMs

# All sources of a group are held open while they are replaced.
GROUP_SEGMENTS_MAX: Final = 128


class SegmentSummary(NamedTuple):
    """What planning needs to know of a sealed segment. `end_offset` is where the next begins."""

    base_offset: Offset
    end_offset: Offset
    size: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp: TimestampMs
    first_timestamp: TimestampMs  # largest of its first batch; not positive: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """A log as planning sees it. `segments` are the sealed ones, in order.

    checkpoint   how far the log was compacted; None: never
    settled      below this everything is synced, sealed and decided
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

    DIRTY = "more of the log is dirty than min.cleanable.dirty.ratio"
    LAG = "something dirty is older than max.compaction.lag.ms"
    FORCED = "asked for"
    NOT_COMPACTED = "cleanup.policy does not say compact"
    NOTHING_SEALED = "all that is dirty is in the active segment, or not settled yet"
    NOTHING_DIRTY = "nothing was written since the last compaction"
    TOO_YOUNG = "all that is dirty is younger than min.compaction.lag.ms"
    NOT_DIRTY_ENOUGH = "too little of the log is dirty"


_DUE: Final = frozenset({CompactionReason.DIRTY, CompactionReason.LAG, CompactionReason.FORCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What compacting a log now would mean."""

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
        """The dirty part is gone over twice: for its keys, and with the rest."""
        return self.clean_bytes + 2 * self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def plan_compaction(
    log: LogSummary, config: TopicConfig, *, now_ms: TimestampMs, force: bool = False
) -> CompactionPlan:
    """Whether `log` is due, and which part of it would be compacted.

    With `force` it is due whatever the ratio and the lags, as long as anything is sealed.
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
    return _with_reason(plan, _reason(plan, log, config, bound=bound, force=force))


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


def _with_reason(plan: CompactionPlan, reason: CompactionReason) -> CompactionPlan:
    return CompactionPlan(
        topic=plan.topic,
        partition=plan.partition,
        reason=reason,
        first_dirty=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        clean_bytes=plan.clean_bytes,
        cleanable_bytes=plan.cleanable_bytes,
        uncleanable_bytes=plan.uncleanable_bytes,
        overdue_ms=plan.overdue_ms,
    )


def filthiest_first(plans: Iterable[CompactionPlan]) -> list[CompactionPlan]:
    """Those that are due: the overdue ones by how long, then the others by their ratio."""
    due = [plan for plan in plans if plan.is_due]
    return sorted(due, key=lambda plan: (-plan.overdue_ms, -plan.dirty_ratio))


def group_segments(
    segments: Sequence[SegmentSummary],
    *,
    segment_bytes_max: int,
    index_bytes_max: int,
    segments_max: int = GROUP_SEGMENTS_MAX,
) -> list[tuple[SegmentSummary, ...]]:
    """Consecutive segments that become one: together no larger than a segment may be.

    Nothing is known of what will be left of them, so the sizes now are what counts. Their
    offsets must lie within 2^31-1 of the first, except those of an empty one.
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
    """The checkpoint, or the log's start where it says nothing of this log."""
    checkpoint = log.checkpoint
    if checkpoint is None or not log.start_offset <= checkpoint <= log.end_offset:
        return log.start_offset
    return checkpoint


def _round_down(log: LogSummary, offset: Offset) -> Offset:
    """The base of the segment that holds `offset`: segments are compacted whole."""
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
