"""When the active segment is sealed and a new one begins. Decisions only.

Before an append the active segment is rolled when one of these holds:

    SIZE             it would grow past segment.bytes
    AGE              more than segment.ms lies between its first batch and the incoming one, less
                     the jitter that keeps many partitions from rolling at once
    COUNT            it would hold more than segment.records records
    INDEX_FULL       an index has no room for another entry
    OFFSET_OVERFLOW  the last incoming offset is more than 2^31-1 above the base offset, which
                     index entries cannot express

An empty segment is rolled for the last reason alone: for the others a new one is no better.
"""

from enum import StrEnum
from random import Random
from typing import NamedTuple

from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, Offset, TimestampMs


class RollReason(StrEnum):
    """Why a segment was rolled, as metrics and logs print it."""

    SIZE = "size"
    AGE = "age"
    COUNT = "count"
    INDEX_FULL = "index full"
    OFFSET_OVERFLOW = "offset overflow"


class SegmentFacts(NamedTuple):
    """What rolling needs to know of the active segment. Made for every append, so a tuple."""

    base_offset: Offset
    size: int
    record_count: int
    first_batch_timestamp: TimestampMs  # its max timestamp; NO_TIMESTAMP when it carries none
    created_ms: TimestampMs
    index_full: bool


class Incoming(NamedTuple):
    """What is about to be appended, all of it to one segment."""

    size: int
    max_timestamp: TimestampMs
    last_offset: Offset
    record_count: int


def roll_reason(
    segment: SegmentFacts,
    incoming: Incoming,
    config: TopicConfig,
    *,
    now_ms: TimestampMs,
    jitter_ms: int = 0,
) -> RollReason | None:
    """Why `segment` must be rolled before `incoming` is appended; None when there is room."""
    if incoming.last_offset - segment.base_offset > INT32_MAX:
        return RollReason.OFFSET_OVERFLOW
    if segment.size == 0:
        return None
    if segment.size + incoming.size > config.segment_bytes_effective:
        return RollReason.SIZE
    if _age_ms(segment, incoming, now_ms) > config.segment_ms_effective - jitter_ms:
        return RollReason.AGE
    if (
        config.segment_records is not None
        and segment.record_count + incoming.record_count > config.segment_records
    ):
        return RollReason.COUNT
    if segment.index_full:
        return RollReason.INDEX_FULL
    return None


def due_for_timer_roll(
    segment: SegmentFacts, config: TopicConfig, *, now_ms: TimestampMs, jitter_ms: int = 0
) -> bool:
    """Whether a segment no append has rolled is to be rolled all the same, for its age.

    By the wall clock alone: a producer that loads old events would otherwise have its segment
    rolled at every tick of the timer.
    """
    return (
        segment.size > 0 and now_ms - segment.created_ms > config.segment_ms_effective - jitter_ms
    )


def draw_jitter_ms(config: TopicConfig, random: Random) -> int:
    """How much sooner one segment rolls than its age demands; drawn once, when it is created."""
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit_ms) if limit_ms > 0 else 0


def _age_ms(segment: SegmentFacts, incoming: Incoming, now_ms: TimestampMs) -> int:
    # Time as the records tell it, so that replaying them cuts the same segments. Without
    # timestamps in the records the wall clock has to do.
    if segment.first_batch_timestamp >= 0:
        return incoming.max_timestamp - segment.first_batch_timestamp
    return now_ms - segment.created_ms
