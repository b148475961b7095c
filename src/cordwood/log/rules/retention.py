"""Which segments of a log are deleted, which are kept, and why. Decisions only.

Whole segments are deleted, oldest first; the first one that is kept keeps all after it. A segment
is deleted if readers may see all of it (it ends at or below the high watermark) and one of these
holds:

    LOG_START   it is completely below the log's start; whatever the policy
    AGE         it is older than retention.ms; with policy delete
    SIZE        without it the log still has retention.bytes; with policy delete
    COUNT       retention.segments newer segments hold records; with policy delete

The age of a segment counts from its largest record timestamp. A timestamp later than the segment's
last append counts as the time of that append, so that a producer whose clock is ahead cannot keep
data forever. Records without timestamps count from the last append.

The time of the last append is the date of the file, which may be wrong. If it is in the future, the
appends to later segments bound it; if it is older than an earlier segment, that one does, as long
as that one exists. If it is more than a day older than the records, and these are not from the
future, the records are right: a copy of the files or a clock that was reset made the date.

The active segment is rolled and then deleted like any other; an empty one remains.

With an archive, retention.* applies to the whole log, wherever its segments are, and
local.retention.* to the local copies of archived segments.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from cordwood.log.rules.moments_in_words import duration_in_words, in_words
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.value_class import dataclass

_APART_MS_MAX: Final = 24 * 60 * 60 * 1000  # clocks that differ by more are not just inexact
_FOLLOW: Final = -2  # as a value of local.retention.*: like retention.*


class RetentionRule(StrEnum):
    """The rule by which a segment is deleted."""

    LOG_START = "log start"
    AGE = "age"
    SIZE = "size"
    COUNT = "count"


class Verdict(StrEnum):
    """What happens to a segment."""

    KEEP = "keep"
    DELETE = "delete"
    DROP_LOCAL = "drop local copy"  # the archive keeps it


class SegmentHistory(NamedTuple):
    """The facts about a segment that retention depends on."""

    base_offset: Offset
    next_offset: Offset
    size: int
    largest_timestamp: TimestampMs  # of its records; NO_TIMESTAMP if none has one
    modified_ms: TimestampMs  # when it was last appended to
    is_active: bool
    is_local: bool = True  # False: only the archive has it


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDecision:
    """What happens to one segment, and why, in words.

    For a kept segment, what will delete it, each on its own; None: never:

    expires_ms        its age, at that time; for a segment deleted by age: when it expired
    after_bytes       this many more bytes in the log
    after_segments    this many more segments
    local_expires_ms  its age, only the local copy
    """

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    is_active: bool
    is_local: bool
    verdict: Verdict
    reason: str
    rule: RetentionRule | None = None
    expires_ms: TimestampMs | None = None
    after_bytes: int | None = None
    after_segments: int | None = None
    local_expires_ms: TimestampMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What retention does at `now_ms`, segment by segment, oldest first.

    Invariant: DELETE comes before DROP_LOCAL, and that before KEEP; nothing at or above the
    high watermark is deleted. `start_offset` is the start of the log afterwards,
    `local_start_offset` the first offset that still has a local copy.
    """

    topic: str
    partition: int
    now_ms: TimestampMs
    start_offset: Offset
    local_start_offset: Offset
    segments: tuple[SegmentDecision, ...]

    @property
    def must_roll(self) -> bool:
        """Whether the active segment is deleted and so must be rolled first."""
        return any(s.is_active and s.verdict is Verdict.DELETE for s in self.segments)

    @property
    def deleted(self) -> tuple[SegmentDecision, ...]:
        return tuple(s for s in self.segments if s.verdict is Verdict.DELETE)

    @property
    def local_bytes_reclaimed(self) -> int:
        return sum(s.size_bytes for s in self.segments if s.verdict is not Verdict.KEEP)


class _Limits(NamedTuple):
    """The limits of a log or of its local part; None: no limit. `prefix` is that of the keys."""

    prefix: str
    age_ms: int | None
    size: int | None
    segments: int | None


class _Opinion(NamedTuple):
    """Why a segment is deleted, or what would delete it."""

    rule: RetentionRule | None
    words: str
    expires_ms: TimestampMs | None = None
    after_bytes: int | None = None
    after_segments: int | None = None


def plan_retention(
    segments: Sequence[SegmentHistory],
    config: TopicConfig,
    *,
    start_offset: Offset,
    high_watermark: Offset,
    now_ms: TimestampMs,
    archived_up_to: Offset | None = None,
    topic: str = "",
    partition: int = 0,
) -> RetentionPlan:
    """Plan retention for `segments`, which are all segments of the log, in order.

    The archive has a copy of everything below `archived_up_to`; None: there is no archive.
    """
    limits = _Limits("", None, None, None)
    if config.is_deleted:
        limits = _Limits("", config.retention_ms, config.retention_bytes, config.retention_segments)
    written = _written_ms(segments, now_ms)
    deleted, reasons = _expired_prefix(
        segments, written, limits, now_ms, start_offset, lambda s: s.next_offset <= high_watermark
    )
    local_count, local_reasons = 0, dict[int, _Opinion]()
    if archived_up_to is not None:
        local = [i for i in range(deleted, len(segments)) if segments[i].is_local]
        local_count, opinions = _expired_prefix(
            [segments[i] for i in local],
            [written[i] for i in local],
            _local_limits(config),
            now_ms,
            None,
            lambda s: not s.is_active and s.next_offset <= min(archived_up_to, high_watermark),
        )
        local_reasons = dict(zip(local, opinions, strict=True))
    gone_locally = frozenset(list(local_reasons)[:local_count])
    decisions = tuple(
        _decision(segment, index, deleted, reasons[index], index in gone_locally, local_reasons)
        for index, segment in enumerate(segments)
    )
    start = max([start_offset, *(s.next_offset for s in segments[:deleted])])
    here = [d.base_offset for d in decisions if d.verdict is Verdict.KEEP and d.is_local]
    return RetentionPlan(
        topic=topic,
        partition=partition,
        now_ms=now_ms,
        start_offset=Offset(start),
        local_start_offset=Offset(max([start, *here[:1]])),
        segments=decisions,
    )


def _local_limits(config: TopicConfig) -> _Limits:
    """The limits of local copies; `retention.*` unless `local.retention.*` is set."""
    age_ms, size = config.local_retention_ms, config.local_retention_bytes
    return _Limits(
        "local.",
        config.retention_ms if age_ms == _FOLLOW else None if age_ms < 0 else age_ms,
        config.retention_bytes if size == _FOLLOW else None if size < 0 else size,
        None,
    )


def _written_ms(segments: Sequence[SegmentHistory], now_ms: TimestampMs) -> list[TimestampMs]:
    """When each segment was last appended to, corrected for a wrong clock.

    A date in the future came from a wrong clock. Later segments were appended to afterwards, so
    such a segment is no younger than the latest of them with a date in the past. And a segment
    was appended to after those before it.
    """
    bound = now_ms
    seen = False
    written: list[TimestampMs] = []
    for segment in reversed(segments):
        if segment.modified_ms <= now_ms:
            bound = max(bound, segment.modified_ms) if seen else segment.modified_ms
            seen = True
            written.append(segment.modified_ms)
        else:
            written.append(bound)
    written.reverse()
    known = NO_TIMESTAMP
    for index, segment in enumerate(segments):
        written[index] = max(written[index], known)
        if segment.largest_timestamp <= now_ms:
            known = max(known, segment.largest_timestamp)
        known = max(known, min(written[index], now_ms))
    return written


def _expired_prefix(
    segments: Sequence[SegmentHistory],
    written: Sequence[TimestampMs],
    limits: _Limits,
    now_ms: TimestampMs,
    start_offset: Offset | None,
    may_go: Callable[[SegmentHistory], bool],
) -> tuple[int, list[_Opinion]]:
    """How many segments expire, from the first, and for each segment why or why not."""
    total = sum(segment.size for segment in segments)
    filled = sum(1 for segment in segments if segment.size)
    opinions: list[_Opinion] = []
    expired = 0
    expires_ms: TimestampMs | None = NO_TIMESTAMP
    for index, segment in enumerate(segments):
        aged_ms = _aged_ms(segment, written[index], limits, now_ms)
        going = _why_expired(segment, written[index], limits, now_ms, start_offset, total, filled)
        if going is not None and expired == index and may_go(segment):
            opinions.append(going)
            expired += 1
        else:
            # If an older segment never expires by age, neither does this one.
            if aged_ms is None or expires_ms is None:
                expires_ms = None
            else:
                expires_ms = TimestampMs(max(expires_ms, aged_ms))
            staying = _why_kept(segment, limits, expires_ms, total, filled)
            if expired < index:
                staying = staying._replace(words=f"an older segment is kept; {staying.words}")
            elif going is not None:
                staying = staying._replace(words=f"{_held(segment)}; otherwise: {going.words}")
            opinions.append(staying)
        total -= segment.size
        filled -= 1 if segment.size else 0
    return expired, opinions


def _aged_ms(
    segment: SegmentHistory, written_ms: TimestampMs, limits: _Limits, now_ms: TimestampMs
) -> TimestampMs | None:
    """The time at which the segment expires by age; None: never."""
    if limits.age_ms is None or (segment.is_active and not segment.size):
        return None
    return TimestampMs(_dated_ms(segment, written_ms, now_ms) + limits.age_ms + 1)


def _dated_ms(segment: SegmentHistory, written_ms: TimestampMs, now_ms: TimestampMs) -> TimestampMs:
    """The time from which a segment's age counts."""
    largest = segment.largest_timestamp
    if largest <= NO_TIMESTAMP:
        return written_ms
    if largest - written_ms > _APART_MS_MAX and largest <= now_ms + _APART_MS_MAX:
        return largest  # the date of the file is wrong
    return min(largest, written_ms)


def _why_expired(
    segment: SegmentHistory,
    written_ms: TimestampMs,
    limits: _Limits,
    now_ms: TimestampMs,
    start_offset: Offset | None,
    total: int,
    filled: int,
) -> _Opinion | None:
    """Why the segment expires; None if no rule applies.

    `total` and `filled`: the bytes, and the segments with records, from this one on.
    """
    if start_offset is not None and segment.next_offset <= start_offset and not segment.is_active:
        return _Opinion(
            RetentionRule.LOG_START, f"it is below the log's start at offset {start_offset}"
        )
    if segment.is_active and not segment.size:
        return None
    aged_ms = _aged_ms(segment, written_ms, limits, now_ms)
    if aged_ms is not None and aged_ms <= now_ms:
        return _Opinion(RetentionRule.AGE, _why_old(segment, written_ms, limits, now_ms), aged_ms)
    if limits.size is not None and total - segment.size >= limits.size:
        return _Opinion(
            RetentionRule.SIZE,
            f"newer segments have {total - segment.size} bytes, "
            f"{limits.prefix}retention.bytes is {limits.size}",
        )
    if limits.segments is not None and filled > limits.segments:
        return _Opinion(
            RetentionRule.COUNT,
            f"{filled - 1} newer segments hold records, retention.segments is {limits.segments}",
        )
    return None


def _why_old(
    segment: SegmentHistory, written_ms: TimestampMs, limits: _Limits, now_ms: TimestampMs
) -> str:
    assert limits.age_ms is not None
    dated_ms = _dated_ms(segment, written_ms, now_ms)
    if dated_ms == segment.largest_timestamp:
        what = "its newest record is from"
    elif segment.largest_timestamp <= NO_TIMESTAMP:
        what = "its records have no timestamps and it was last written"
    else:
        what = "its records have later timestamps, but it was last written"
    return (
        f"{what} {in_words(dated_ms)}, {duration_in_words(now_ms - dated_ms)} ago; "
        f"{limits.prefix}retention.ms is {duration_in_words(limits.age_ms)}"
    )


def _why_kept(
    segment: SegmentHistory,
    limits: _Limits,
    expires_ms: TimestampMs | None,
    total: int,
    filled: int,
) -> _Opinion:
    """Which rules could delete the segment, and when."""
    if segment.is_active and not segment.size:
        return _Opinion(None, "it is the active segment, and empty")
    ways: list[str] = []
    after_bytes = after_segments = None
    if expires_ms is not None:
        ways.append(f"at {in_words(expires_ms)} ({limits.prefix}retention.ms)")
    if limits.size is not None:
        after_bytes = max(limits.size + segment.size - total, 0)
        ways.append(f"after {after_bytes} more bytes ({limits.prefix}retention.bytes)")
    if limits.segments is not None:
        after_segments = max(limits.segments + 1 - filled, 0)
        ways.append(f"after {after_segments} more segments (retention.segments)")
    words = f"it expires {' or '.join(ways)}" if ways else "no limit applies"
    return _Opinion(None, words, expires_ms, after_bytes, after_segments)


def _held(segment: SegmentHistory) -> str:
    if segment.is_active:
        return "it is the active segment, or not all of it is readable yet"
    return "not all of it is readable or archived yet"


def _decision(
    segment: SegmentHistory,
    index: int,
    deleted: int,
    opinion: _Opinion,
    goes_locally: bool,
    local_reasons: dict[int, _Opinion],
) -> SegmentDecision:
    verdict = Verdict.DELETE if index < deleted else Verdict.KEEP
    words, rule, local_expires_ms = opinion.words, opinion.rule, None
    if goes_locally:
        verdict = Verdict.DROP_LOCAL
        local = local_reasons[index]
        words, rule = f"the archive keeps a copy: {local.words}", local.rule
        local_expires_ms = local.expires_ms
    elif verdict is Verdict.KEEP and index in local_reasons:
        words = f"{words}; local copy: {local_reasons[index].words}"
        local_expires_ms = local_reasons[index].expires_ms
    return SegmentDecision(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size if segment.is_local else 0,
        is_active=segment.is_active,
        is_local=segment.is_local,
        verdict=verdict,
        reason=words,
        rule=rule,
        expires_ms=opinion.expires_ms,
        after_bytes=opinion.after_bytes,
        after_segments=opinion.after_segments,
        local_expires_ms=local_expires_ms,
    )
