"""When a segment is rolled, and when it is left alone."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.log.rules.roll_policy import (
    Incoming,
    RollFacts,
    RollReason,
    draw_jitter_ms,
    due_for_timer_roll,
    has_room,
    roll_limits,
    roll_reason,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, MIB, NO_TIMESTAMP, Offset, TimestampMs

NOW = TimestampMs(1_760_000_000_000)
CONFIG = TopicConfig(segment_bytes=MIB, segment_ms=10_000)


SEGMENT = RollFacts(
    base_offset=Offset(1000),
    size=500,
    record_count=5,
    first_batch_timestamp=NOW,
    created_ms=NOW,
    is_index_full=False,
)
INCOMING = Incoming(size=100, max_timestamp=NOW, last_offset=Offset(1005), record_count=1)


def at(ms_later: int) -> TimestampMs:
    return TimestampMs(NOW + ms_later)


def test_a_segment_with_room_is_not_rolled() -> None:
    assert roll_reason(SEGMENT, INCOMING, CONFIG, now_ms=NOW) is None


@pytest.mark.parametrize(
    ("size", "reason"), [(MIB - 100, None), (MIB - 99, RollReason.SIZE), (MIB, RollReason.SIZE)]
)
def test_a_segment_may_be_filled_to_its_last_byte_and_not_beyond(
    size: int, reason: RollReason | None
) -> None:
    assert roll_reason(SEGMENT._replace(size=size), INCOMING, CONFIG, now_ms=NOW) is reason


@pytest.mark.parametrize(("age_ms", "reason"), [(10_000, None), (10_001, RollReason.AGE)])
def test_age_is_told_by_the_timestamps_of_the_records(
    age_ms: int, reason: RollReason | None
) -> None:
    incoming = INCOMING._replace(max_timestamp=at(age_ms))

    assert roll_reason(SEGMENT, incoming, CONFIG, now_ms=NOW) is reason


def test_the_wall_clock_does_not_age_records_that_carry_timestamps() -> None:
    assert roll_reason(SEGMENT, INCOMING, CONFIG, now_ms=at(1_000_000)) is None


@pytest.mark.parametrize("timestamp", [NO_TIMESTAMP, NOW - 1_000_000])
def test_a_record_from_the_past_ages_nothing(timestamp: int) -> None:
    incoming = INCOMING._replace(max_timestamp=TimestampMs(timestamp))

    assert roll_reason(SEGMENT, incoming, CONFIG, now_ms=NOW) is None


@pytest.mark.parametrize(("age_ms", "reason"), [(10_000, None), (10_001, RollReason.AGE)])
def test_without_a_timestamp_age_is_counted_from_creation(
    age_ms: int, reason: RollReason | None
) -> None:
    segment = SEGMENT._replace(first_batch_timestamp=NO_TIMESTAMP)

    assert roll_reason(segment, INCOMING, CONFIG, now_ms=at(age_ms)) is reason


@pytest.mark.parametrize(("age_ms", "reason"), [(7_000, None), (7_001, RollReason.AGE)])
def test_jitter_rolls_a_segment_sooner(age_ms: int, reason: RollReason | None) -> None:
    incoming = INCOMING._replace(max_timestamp=at(age_ms))

    assert roll_reason(SEGMENT, incoming, CONFIG, now_ms=NOW, jitter_ms=3_000) is reason


@pytest.mark.parametrize(
    ("policy", "reason"), [(("compact",), RollReason.AGE), (("delete",), None)]
)
def test_a_compacted_topic_rolls_within_its_compaction_lag(
    policy: tuple[str, ...], reason: RollReason | None
) -> None:
    config = replace(CONFIG, cleanup_policy=policy, max_compaction_lag_ms=2_000)
    incoming = INCOMING._replace(max_timestamp=at(2_001))

    assert roll_reason(SEGMENT, incoming, config, now_ms=NOW) is reason


@pytest.mark.parametrize(("limit", "reason"), [(6, None), (5, RollReason.COUNT)])
def test_a_segment_holds_no_more_than_segment_records(
    limit: int, reason: RollReason | None
) -> None:
    config = replace(CONFIG, segment_records=limit)

    assert roll_reason(SEGMENT, INCOMING, config, now_ms=NOW) is reason


def test_a_full_index_rolls() -> None:
    segment = SEGMENT._replace(is_index_full=True)

    assert roll_reason(segment, INCOMING, CONFIG, now_ms=NOW) is RollReason.INDEX_FULL


@pytest.mark.parametrize(
    ("relative_offset", "reason"), [(INT32_MAX, None), (INT32_MAX + 1, RollReason.OFFSET_OVERFLOW)]
)
@pytest.mark.parametrize("size", [0, 500])
def test_offsets_stay_within_an_int32_of_the_base(
    size: int, relative_offset: int, reason: RollReason | None
) -> None:
    segment = SEGMENT._replace(size=size)
    incoming = INCOMING._replace(last_offset=Offset(1000 + relative_offset))

    assert roll_reason(segment, incoming, CONFIG, now_ms=NOW) is reason


def test_an_empty_segment_is_not_rolled_for_size_age_count_or_index() -> None:
    empty = SEGMENT._replace(
        size=0, record_count=0, first_batch_timestamp=NO_TIMESTAMP, is_index_full=True
    )
    incoming = INCOMING._replace(size=2 * MIB, record_count=100)
    config = replace(CONFIG, segment_records=1)

    assert roll_reason(empty, incoming, config, now_ms=at(1_000_000)) is None


@pytest.mark.parametrize(
    ("size", "age_ms", "jitter_ms", "is_due"),
    [
        (500, 10_000, 0, False),
        (500, 10_001, 0, True),
        (500, 9_001, 1_000, True),
        (0, 1_000_000, 0, False),
    ],
)
def test_an_idle_segment_is_due_when_its_age_is_up_and_it_holds_anything(
    size: int, age_ms: int, jitter_ms: int, is_due: bool
) -> None:
    segment = SEGMENT._replace(size=size)

    assert due_for_timer_roll(segment, CONFIG, now_ms=at(age_ms), jitter_ms=jitter_ms) is is_due


def test_the_timer_does_not_roll_a_young_segment_of_old_records() -> None:
    segment = SEGMENT._replace(first_batch_timestamp=TimestampMs(1))

    assert not due_for_timer_roll(segment, CONFIG, now_ms=at(1))


@pytest.mark.parametrize(
    ("jitter", "segment_ms", "limit"), [(0, 10, 1), (1, 10, 1), (50, 1_000, 50), (5_000, 20, 20)]
)
def test_jitter_is_drawn_below_segment_jitter_and_segment_ms(
    jitter: int, segment_ms: int, limit: int
) -> None:
    config = TopicConfig(segment_jitter_ms=jitter, segment_ms=segment_ms)
    random = Random(1)

    drawn = {draw_jitter_ms(config, random) for _ in range(2_000)}

    assert drawn <= set(range(limit))
    assert max(drawn) == limit - 1


edges = st.sampled_from([0, 1, 4_000, 5_000, MIB - 100, MIB, INT32_MAX - 5, INT32_MAX])


@given(
    size=edges,
    incoming_size=edges,
    first=st.sampled_from([-2, NO_TIMESTAMP, 0, NOW]),
    later=st.sampled_from([-1, 0, 9_000, 9_001, 10_000, 10_001]),
    offset=edges,
    count=st.integers(0, 12),
    records_max=st.none() | st.integers(1, 12),
    is_index_full=st.booleans(),
)
def test_a_batch_that_certainly_has_room_never_needs_a_roll(
    size: int,
    incoming_size: int,
    first: int,
    later: int,
    offset: int,
    count: int,
    records_max: int | None,
    is_index_full: bool,
) -> None:
    config = replace(CONFIG, segment_records=records_max)
    segment = SEGMENT._replace(
        size=size,
        first_batch_timestamp=TimestampMs(max(first, NO_TIMESTAMP)),
        record_count=count,
        is_index_full=is_index_full,
    )
    next_offset = Offset(SEGMENT.base_offset + offset)
    moment = TimestampMs(max(first, 0) + later)
    incoming = Incoming(incoming_size, moment, Offset(next_offset - 1), 1)

    room = has_room(
        roll_limits(config, jitter_ms=1_000),
        TimestampMs(first),
        moment,
        size + incoming_size,
        offset,
        count + 1,
        is_index_full,
    )

    if room:
        assert roll_reason(segment, incoming, config, now_ms=NOW, jitter_ms=1_000) is None
        assert incoming_size <= config.segment_bytes_effective


def test_the_usual_batch_certainly_has_room() -> None:
    limits = roll_limits(CONFIG)

    assert has_room(limits, NOW, NOW, 600, 6, 6, is_index_full=False)
