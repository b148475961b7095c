"""Which logs are due for compaction, how far, and which segments go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordwood.log.rules.compaction_plan import (
    CompactionReason,
    LogSummary,
    SegmentSummary,
    filthiest_first,
    group_segments,
    plan_compaction,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT32_MAX, Offset, TimestampMs

NOW = TimestampMs(1_700_000_000_000)
COMPACT = TopicConfig.parse({"cleanup.policy": "compact"})


def config(**keys: object) -> TopicConfig:
    names = {name.replace("_", "."): value for name, value in keys.items()}
    return TopicConfig.parse({"cleanup.policy": "compact", **names})


def segment(
    base: int,
    end: int,
    *,
    size: int = 100,
    index: int = 8,
    largest: int = NOW - 1000,
    first: int = NOW - 2000,
) -> SegmentSummary:
    return SegmentSummary(
        base_offset=Offset(base),
        end_offset=Offset(end),
        size=size,
        index_bytes=index,
        time_index_bytes=index,
        largest_timestamp=TimestampMs(largest),
        first_timestamp=TimestampMs(first),
    )


def summary(
    *segments: SegmentSummary,
    checkpoint: int | None = None,
    settled: int = 10**9,
    start: int = 0,
    end: int | None = None,
) -> LogSummary:
    active = segments[-1].end_offset if segments else Offset(0)
    return LogSummary(
        topic="orders",
        partition=0,
        start_offset=Offset(start),
        end_offset=Offset(active + 5) if end is None else Offset(end),
        settled=Offset(settled),
        active_base_offset=active,
        checkpoint=None if checkpoint is None else Offset(checkpoint),
        segments=segments,
    )


THREE = (segment(0, 10), segment(10, 20), segment(20, 30))


def test_a_log_that_was_never_compacted_is_dirty_up_to_its_active_segment() -> None:
    plan = plan_compaction(summary(*THREE), COMPACT, now_ms=NOW)

    assert (plan.first_dirty, plan.first_uncleanable) == (0, 30)
    assert plan.dirty_ratio == 1.0
    assert plan.reason is CompactionReason.DIRTY


def test_clean_segments_count_against_the_dirty_ones() -> None:
    plan = plan_compaction(summary(*THREE, checkpoint=20), COMPACT, now_ms=NOW)

    assert (plan.clean_bytes, plan.cleanable_bytes) == (200, 100)
    assert plan.reason is CompactionReason.NOT_DIRTY_ENOUGH
    assert not plan.is_due


@pytest.mark.parametrize(("ratio", "is_due"), [(0.33, True), (0.34, False), (1, False)])
def test_the_ratio_must_be_exceeded(ratio: float, is_due: bool) -> None:
    log = summary(*THREE, checkpoint=20)

    plan = plan_compaction(log, config(min_cleanable_dirty_ratio=ratio), now_ms=NOW)

    assert plan.is_due is is_due


def test_a_log_with_nothing_new_is_not_due_even_at_ratio_zero() -> None:
    log = summary(*THREE, checkpoint=30, end=30)

    plan = plan_compaction(log, config(min_cleanable_dirty_ratio=0), now_ms=NOW)

    assert plan.reason is CompactionReason.NOTHING_DIRTY


@pytest.mark.parametrize("checkpoint", [5, 36])
def test_a_checkpoint_outside_the_log_says_nothing(checkpoint: int) -> None:
    log = summary(*THREE, checkpoint=checkpoint, start=10)

    plan = plan_compaction(log, COMPACT, now_ms=NOW)

    assert plan.first_dirty == 10


def test_only_the_active_segment_is_nothing_to_compact() -> None:
    plan = plan_compaction(summary(), COMPACT, now_ms=NOW)

    assert plan.reason is CompactionReason.NOTHING_SEALED


@pytest.mark.parametrize(("settled", "bound"), [(30, 30), (29, 20), (20, 20), (19, 10), (0, 0)])
def test_a_segment_that_is_not_settled_stays_whole(settled: int, bound: int) -> None:
    plan = plan_compaction(summary(*THREE, settled=settled), COMPACT, now_ms=NOW)

    assert plan.first_uncleanable == bound
    assert plan.uncleanable_bytes == (30 - bound) * 10


def test_segments_younger_than_the_minimum_lag_wait_and_so_does_all_behind_them() -> None:
    log = summary(
        segment(0, 10, largest=NOW - 5000),
        segment(10, 20, largest=NOW - 100),
        segment(20, 30, largest=NOW - 5000),
    )

    plan = plan_compaction(log, config(min_compaction_lag_ms=1000), now_ms=NOW)

    assert plan.first_uncleanable == 10


def test_a_log_that_is_all_too_young_says_so() -> None:
    plan = plan_compaction(summary(*THREE), config(min_compaction_lag_ms=60_000), now_ms=NOW)

    assert plan.reason is CompactionReason.TOO_YOUNG


@pytest.mark.parametrize(("lag_ms", "is_due"), [(1999, True), (2000, False)])
def test_exceeding_the_maximum_lag_makes_a_log_due_whatever_its_ratio(
    lag_ms: int, is_due: bool
) -> None:
    log = summary(*THREE, checkpoint=20)
    settings = config(max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1)

    plan = plan_compaction(log, settings, now_ms=NOW)

    assert plan.is_due is is_due
    assert plan.overdue_ms == max(2000 - lag_ms, 0)


def test_force_overrides_ratio_and_minimum_lag() -> None:
    log = summary(*THREE, checkpoint=30)
    settings = config(min_compaction_lag_ms=60_000)

    plan = plan_compaction(log, settings, now_ms=NOW, force=True)

    assert plan.reason is CompactionReason.FORCED
    assert plan.first_uncleanable == 30


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    plan = plan_compaction(summary(*THREE), TopicConfig(), now_ms=NOW, force=True)

    assert plan.reason is CompactionReason.NOT_COMPACTED


def test_the_overdue_come_first_and_then_the_filthiest() -> None:
    half = plan_compaction(summary(*THREE, checkpoint=10), COMPACT, now_ms=NOW)
    whole = plan_compaction(summary(*THREE), COMPACT, now_ms=NOW)
    late = replace(half, overdue_ms=1)
    clean = plan_compaction(summary(*THREE, checkpoint=30), COMPACT, now_ms=NOW)

    assert filthiest_first([half, clean, whole, late]) == [late, whole, half]


# --- groups -----------------------------------------------------------------------------------


def grouped(*segments: SegmentSummary, bytes_max: int = 250, index_max: int = 1000) -> list[int]:
    groups = group_segments(segments, segment_bytes_max=bytes_max, index_bytes_max=index_max)
    assert [s for group in groups for s in group] == list(segments)
    return [len(group) for group in groups]


def test_segments_are_put_together_up_to_the_size_of_one() -> None:
    assert grouped(*THREE) == [2, 1]
    assert grouped(*THREE, bytes_max=300) == [3]
    assert grouped(*THREE, bytes_max=99) == [1, 1, 1]


def test_segments_are_put_together_up_to_the_size_of_an_index() -> None:
    assert grouped(*THREE, bytes_max=10_000, index_max=16) == [2, 1]


def test_offsets_of_a_group_fit_its_index() -> None:
    far = INT32_MAX
    first, second = segment(0, far), segment(far, far + 1)

    assert grouped(first, second) == [2]
    assert grouped(first, segment(far, far + 2)) == [1, 1]


def test_an_empty_segment_joins_however_far_its_offsets_are() -> None:
    empty = segment(10, INT32_MAX * 3, size=0, index=0)

    assert grouped(segment(0, 10), empty) == [2]


def test_a_group_is_not_so_long_that_its_files_cannot_be_held_open() -> None:
    segments = [segment(i, i + 1, size=1, index=0) for i in range(300)]

    assert grouped(*segments, bytes_max=10_000) == [128, 128, 44]
