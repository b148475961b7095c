"""When the active segment is sealed and a new one begins. Decisions only.

Before an append the active segment is rolled if one of these holds:

    SIZE             it would grow past segment.bytes
    AGE              the incoming batch is more than segment.ms, minus the jitter, newer than its
                     first batch; the jitter keeps many partitions from rolling at once
    COUNT            it would hold more than segment.records records
    INDEX_FULL       an index has no room for another entry
    OFFSET_OVERFLOW  the last incoming offset is more than 2^31-1 above the base offset, which
                     index entries cannot express

An empty segment is rolled only for the last reason: for the others a new one is no better.
"""

from enum import StrEnum
from random import Random
from typing import NamedTuple

from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, Offset, TimestampMs
from cordwood.value_class import dataclass


class RollReason(StrEnum):
    """Why a segment was rolled, as printed in metrics and logs."""

    SIZE = "size"
    AGE = "age"
    COUNT = "count"
    INDEX_FULL = "index full"
    OFFSET_OVERFLOW = "offset overflow"


class RollFacts(NamedTuple):
    """The facts about the active segment that rolling depends on.

    first_batch_timestamp   largest timestamp of the first batch; NO_TIMESTAMP if it has none
    is_index_full           an index has no room for another entry
    """

    base_offset: Offset
    size: int
    record_count: int
    first_batch_timestamp: TimestampMs
    created_ms: TimestampMs
    is_index_full: bool


class Incoming(NamedTuple):
    """The batches about to be appended, all to one segment."""

    size: int
    max_timestamp: TimestampMs
    last_offset: Offset
    record_count: int


def roll_reason(
    segment: RollFacts,
    incoming: Incoming,
    config: TopicConfig,
    *,
    now_ms: TimestampMs,
    jitter_ms: int = 0,
) -> RollReason | None:
    """Why `segment` must be rolled before `incoming` is appended; None if it need not be."""
    size, max_timestamp, last_offset, record_count = incoming
    if last_offset - segment.base_offset > INT32_MAX:
        return RollReason.OFFSET_OVERFLOW
    if segment.size == 0:
        return None
    if segment.size + size > config.segment_bytes_effective:
        return RollReason.SIZE
    # Uses the time of the records, so that replaying them produces the same segments. Records
    # without timestamps are dated by the wall clock.
    first = segment.first_batch_timestamp
    age_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    if age_ms > config.segment_ms_effective - jitter_ms:
        return RollReason.AGE
    records_max = config.segment_records
    if records_max is not None and segment.record_count + record_count > records_max:
        return RollReason.COUNT
    if segment.is_index_full:
        return RollReason.INDEX_FULL
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollLimits:
    """The limits of one segment, worked out once: they are compared with every append.

    records_max  None: any number
    """

    bytes_max: int
    age_ms_max: int
    records_max: int | None


def roll_limits(config: TopicConfig, *, jitter_ms: int = 0) -> RollLimits:
    return RollLimits(
        bytes_max=config.segment_bytes_effective,
        age_ms_max=config.segment_ms_effective - jitter_ms,
        records_max=config.segment_records,
    )


def has_room(
    limits: RollLimits,
    first_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    size: int,
    offset_count: int,
    record_count: int,
    is_index_full: bool,
) -> bool:
    """Whether a batch certainly goes into a segment: then `roll_reason` is None for it.

    The usual answer, with few comparisons. Otherwise `roll_reason` decides. A batch that has room
    also fits into an empty segment. `first_timestamp` is that of the segment's first batch; the
    size and the counts are those of the segment with the batch.
    """
    return (
        size <= limits.bytes_max
        and max_timestamp - first_timestamp <= limits.age_ms_max
        and first_timestamp >= 0
        and offset_count <= INT32_MAX
        and not is_index_full
        and (limits.records_max is None or record_count <= limits.records_max)
    )


def due_for_timer_roll(
    segment: RollFacts, config: TopicConfig, *, now_ms: TimestampMs, jitter_ms: int = 0
) -> bool:
    """Whether a segment must be rolled for its age, without an append.

    This uses only the wall clock: otherwise a producer that loads old events would have its
    segment rolled at every tick of the timer.
    """
    return (
        segment.size > 0 and now_ms - segment.created_ms > config.segment_ms_effective - jitter_ms
    )


def draw_jitter_ms(config: TopicConfig, random: Random) -> int:
    """How much earlier than segment.ms a segment rolls; drawn once, when it is created."""
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit_ms) if limit_ms > 0 else 0
