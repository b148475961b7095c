"""Which segments go and which stay, why, and that what runs is what was explained."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.moments_in_words import duration_in_words, in_words
from cordwood.log.rules.retention import (
    RetentionPlan,
    RetentionRule,
    SegmentHistory,
    Verdict,
    plan_retention,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from fakes.manual_clock import START_MS, ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

NOW = TimestampMs(START_MS)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DIRECTORY = "/data/events-0"


def history(
    base: int,
    *,
    size: int = 100,
    age_ms: int = 0,
    written_ago_ms: int | None = None,
    timestamp: int | None = None,
    active: bool = False,
    local: bool = True,
) -> SegmentHistory:
    """A segment of ten offsets from `base` on."""
    return SegmentHistory(
        base_offset=Offset(base),
        next_offset=Offset(base + 10) if size else Offset(base),
        size=size,
        largest_timestamp=TimestampMs(NOW - age_ms if timestamp is None else timestamp),
        modified_ms=TimestampMs(NOW - (age_ms if written_ago_ms is None else written_ago_ms)),
        is_active=active,
        is_local=local,
    )


def plan(
    segments: list[SegmentHistory],
    *,
    start: int = 0,
    high_watermark: int | None = None,
    archived_up_to: int | None = None,
    **config: object,
) -> RetentionPlan:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return plan_retention(
        segments,
        TopicConfig.parse(settings),
        start_offset=Offset(start),
        high_watermark=Offset(
            segments[-1].next_offset if high_watermark is None else high_watermark
        ),
        now_ms=NOW,
        archived_up_to=None if archived_up_to is None else Offset(archived_up_to),
    )


def verdicts(made: RetentionPlan) -> list[str]:
    return [segment.verdict for segment in made.segments]


def rules(made: RetentionPlan) -> list[str | None]:
    return [segment.rule for segment in made.segments]


# --- age ---------------------------------------------------------------------------------------


def test_a_segment_whose_newest_record_is_older_than_retention_ms_goes() -> None:
    made = plan(
        [history(0, age_ms=8 * DAY_MS), history(10, age_ms=DAY_MS), history(20, active=True)]
    )

    assert verdicts(made) == ["delete", "keep", "keep"]
    assert made.start_offset == 10
    assert made.segments[0].rule is RetentionRule.AGE
    assert "8 d ago; retention.ms is 7 d" in made.segments[0].reason


@pytest.mark.parametrize(("age_ms", "verdict"), [(HOUR_MS, "keep"), (HOUR_MS + 1, "delete")])
def test_a_record_of_exactly_retention_ms_stays(age_ms: int, verdict: str) -> None:
    made = plan([history(0, age_ms=age_ms), history(10, active=True)], retention_ms="1h")

    assert verdicts(made) == [verdict, "keep"]


def test_a_kept_segment_says_when_age_takes_it() -> None:
    made = plan([history(0, age_ms=HOUR_MS), history(10, active=True)], retention_ms="3h")

    assert made.segments[0].expires_ms == NOW + 2 * HOUR_MS + 1
    assert "retention.ms" in made.segments[0].reason


def test_a_young_segment_keeps_older_looking_ones_behind_it() -> None:
    made = plan(
        [history(0), history(10, age_ms=30 * DAY_MS), history(20, active=True)], retention_ms="1d"
    )

    assert verdicts(made) == ["keep", "keep", "keep"]
    assert made.segments[1].expires_ms == made.segments[0].expires_ms
    assert "an older segment is kept" in made.segments[1].reason


def test_a_timestamp_in_the_future_pins_nothing_longer_than_its_append() -> None:
    made = plan(
        [
            history(0, timestamp=NOW + 3650 * DAY_MS, written_ago_ms=2 * DAY_MS),
            history(10, active=True),
        ],
        retention_ms="1d",
    )

    assert verdicts(made) == ["delete", "keep"]
    assert "have later timestamps" in made.segments[0].reason


def test_records_without_timestamps_are_as_old_as_the_last_append() -> None:
    made = plan(
        [
            history(0, timestamp=NO_TIMESTAMP, written_ago_ms=2 * DAY_MS),
            history(10, timestamp=NO_TIMESTAMP, written_ago_ms=HOUR_MS),
            history(20, active=True),
        ],
        retention_ms="1d",
    )

    assert verdicts(made) == ["delete", "keep", "keep"]
    assert "have no timestamps" in made.segments[0].reason


def test_a_file_dated_in_the_future_is_as_old_as_the_appends_behind_it() -> None:
    made = plan(
        [
            history(0, timestamp=NOW + 9 * DAY_MS, written_ago_ms=-9 * DAY_MS),
            history(10, age_ms=2 * DAY_MS),
            history(20, active=True, timestamp=NOW + 9 * DAY_MS, written_ago_ms=-DAY_MS),
        ],
        retention_ms="1d",
    )

    assert verdicts(made) == ["delete", "delete", "keep"]


@pytest.mark.parametrize("ahead_ms", [0, 5 * 60 * 1000, -6 * DAY_MS])
def test_a_file_dated_long_before_its_records_is_as_old_as_they_are(ahead_ms: int) -> None:
    """A copy without dates, or a clock that was reset to 1970 while it was written."""
    made = plan(
        [
            history(0, timestamp=NOW - 6 * DAY_MS, written_ago_ms=NOW),
            history(10, active=True, timestamp=NOW + ahead_ms, written_ago_ms=NOW),
        ],
    )

    assert verdicts(made) == ["keep", "keep"]
    assert made.segments[0].expires_ms == NOW + DAY_MS + 1


def test_a_file_dated_long_before_its_records_goes_when_they_are_old() -> None:
    made = plan(
        [
            history(0, timestamp=NOW - 8 * DAY_MS, written_ago_ms=NOW),
            history(10, active=True, written_ago_ms=NOW),
        ],
    )

    assert verdicts(made) == ["delete", "keep"]
    assert "its newest record is from" in made.segments[0].reason


def test_a_file_dated_before_the_one_before_it_is_no_older_than_that() -> None:
    made = plan(
        [
            history(0, age_ms=2 * DAY_MS),
            history(10, timestamp=NO_TIMESTAMP, written_ago_ms=NOW),
            history(20, timestamp=NOW + 3650 * DAY_MS, written_ago_ms=NOW),
            history(30, active=True),
        ],
        retention_ms="2d",
    )

    assert verdicts(made) == ["keep", "keep", "keep", "keep"]
    assert [s.expires_ms for s in made.segments[:3]] == [NOW + 1] * 3


def test_unlimited_retention_keeps_everything() -> None:
    made = plan([history(0, age_ms=9999 * DAY_MS), history(10, active=True)], retention_ms=-1)

    assert verdicts(made) == ["keep", "keep"]
    assert made.segments[0].expires_ms is None
    assert made.segments[0].reason == "no limit applies"


# --- bytes and count ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "deleted"), [(0, 4), (99, 3), (100, 3), (101, 2), (300, 1), (301, 0), (400, 0)]
)
def test_size_retention_never_leaves_less_than_retention_bytes(limit: int, deleted: int) -> None:
    made = plan(
        [history(0), history(10), history(20), history(30, active=True)],
        retention_bytes=limit,
        retention_ms=-1,
    )

    assert len(made.deleted) == deleted
    assert 400 - made.local_bytes_reclaimed >= limit
    assert made.must_roll == (deleted == 4)


def test_a_segment_kept_for_its_size_says_how_much_has_to_come() -> None:
    made = plan([history(0), history(10, active=True)], retention_bytes=150, retention_ms=-1)

    assert "after 50 more bytes (retention.bytes)" in made.segments[0].reason
    assert made.segments[0].after_bytes == 50


@pytest.mark.parametrize(("count", "deleted"), [(1, 3), (2, 2), (3, 1), (4, 0), (9, 0)])
def test_retention_segments_keeps_the_newest_that_hold_records(count: int, deleted: int) -> None:
    segments = [history(0), history(10), history(20), history(30)]
    empty_active = history(40, size=0, active=True)

    made = plan([*segments, empty_active], retention_segments=count, retention_ms=-1)

    assert rules(made)[:deleted] == [RetentionRule.COUNT] * deleted
    assert verdicts(made)[deleted:] == ["keep"] * (5 - deleted)


def test_rules_take_turns_so_that_a_second_run_finds_nothing() -> None:
    made = plan(
        [history(0), history(10, age_ms=9 * DAY_MS), history(20, active=True)],
        retention_bytes=200,
        retention_ms="1d",
    )

    assert rules(made) == [RetentionRule.SIZE, RetentionRule.AGE, None]


# --- policies, start and high watermark --------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "deleted"), [("delete", 3), ("compact,delete", 3), ("compact", 1), ("", 1)]
)
def test_only_policy_delete_deletes_more_than_what_lies_below_the_start(
    policy: str, deleted: int
) -> None:
    made = plan(
        [history(0), history(10), history(20), history(30, active=True)],
        start=10,
        retention_segments=1,
        cleanup_policy=policy,
    )

    assert verdicts(made) == ["delete"] * deleted + ["keep"] * (4 - deleted)
    assert made.segments[0].rule is RetentionRule.LOG_START


def test_a_segment_that_reaches_past_the_start_stays() -> None:
    made = plan([history(0), history(10, active=True)], start=9, retention_ms=-1)

    assert verdicts(made) == ["keep", "keep"]
    assert made.start_offset == 9


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    made = plan(
        [history(0, age_ms=9 * DAY_MS), history(10, age_ms=9 * DAY_MS), history(20, active=True)],
        high_watermark=19,
        retention_ms="1d",
    )

    assert verdicts(made) == ["delete", "keep", "keep"]
    assert "not all of it is readable" in made.segments[1].reason


def test_the_active_segment_goes_too_when_it_is_due() -> None:
    made = plan([history(0, age_ms=9 * DAY_MS, active=True)], retention_ms="1d")

    assert made.must_roll
    assert made.start_offset == 10


def test_an_empty_active_segment_stays_whatever_its_date() -> None:
    made = plan([history(0, size=0, age_ms=9999 * DAY_MS, active=True)], retention_bytes=0)

    assert verdicts(made) == ["keep"]
    assert not made.must_roll


# --- local copies ------------------------------------------------------------------------------


def test_local_copies_go_by_their_own_limits_once_the_archive_has_them() -> None:
    made = plan(
        [
            history(0, age_ms=5 * HOUR_MS),
            history(10, age_ms=4 * HOUR_MS),
            history(20, age_ms=3 * HOUR_MS),
            history(30, active=True),
        ],
        archived_up_to=20,
        local_retention_ms="1h",
    )

    assert verdicts(made) == ["drop local copy", "drop local copy", "keep", "keep"]
    assert made.start_offset == 0
    assert made.local_start_offset == 20
    assert "the archive keeps a copy" in made.segments[0].reason
    assert made.segments[0].expires_ms == NOW - 5 * HOUR_MS + 7 * DAY_MS + 1
    assert "local copy: not all of it is readable or archived yet" in made.segments[2].reason


def test_without_an_archive_the_local_limits_mean_nothing() -> None:
    made = plan([history(0, age_ms=HOUR_MS), history(10, active=True)], local_retention_ms=1)

    assert verdicts(made) == ["keep", "keep"]


def test_the_limits_of_the_log_count_what_only_the_archive_has() -> None:
    made = plan(
        [history(0, local=False), history(10, local=False), history(20), history(30, active=True)],
        archived_up_to=30,
        retention_bytes=300,
        local_retention_bytes=100,
        retention_ms=-1,
    )

    assert verdicts(made) == ["delete", "keep", "drop local copy", "keep"]
    assert made.local_bytes_reclaimed == 100


@pytest.mark.parametrize(("local", "dropped"), [(-2, 1), (-1, 0), (0, 2)])
def test_local_limits_follow_those_of_the_log_until_set(local: int, dropped: int) -> None:
    made = plan(
        [history(0, age_ms=HOUR_MS), history(10, age_ms=HOUR_MS // 4), history(20, active=True)],
        archived_up_to=20,
        cleanup_policy="",
        retention_ms="30m",
        local_retention_ms=local,
    )

    assert verdicts(made).count(Verdict.DROP_LOCAL) == dropped


# --- for every log -----------------------------------------------------------------------------

SEGMENTS = st.lists(
    st.tuples(
        st.integers(1, 1000),
        st.integers(-100, 100),
        st.integers(-100, 100),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(
    shapes=SEGMENTS,
    retention_ms=st.one_of(st.just(-1), st.integers(0, 80)),
    retention_bytes=st.one_of(st.just(-1), st.integers(0, 4000)),
    retention_segments=st.one_of(st.just(-1), st.integers(1, 12)),
    policy=st.sampled_from(["delete", "compact", "compact,delete", ""]),
    start=st.integers(0, 130),
    unreadable=st.integers(0, 40),
    archived=st.one_of(st.none(), st.integers(0, 130)),
)
def test_every_plan_is_a_prefix_below_the_high_watermark_and_final(
    shapes: list[tuple[int, int, int, bool]],
    retention_ms: int,
    retention_bytes: int,
    retention_segments: int,
    policy: str,
    start: int,
    unreadable: int,
    archived: int | None,
) -> None:
    segments = [
        SegmentHistory(
            base_offset=Offset(10 * index),
            next_offset=Offset(10 * index + 10),
            size=size,
            largest_timestamp=NO_TIMESTAMP if untimed else TimestampMs(NOW + timestamp),
            modified_ms=TimestampMs(NOW + written),
            is_active=index == len(shapes) - 1,
        )
        for index, (size, timestamp, written, untimed) in enumerate(shapes)
    ]
    end = segments[-1].next_offset
    high_watermark = max(end - unreadable, 0)
    config = TopicConfig.parse(
        {
            "retention.ms": retention_ms,
            "retention.bytes": retention_bytes,
            "retention.segments": retention_segments,
            "cleanup.policy": policy,
            "local.retention.bytes": 500,
        }
    )
    start = min(start, high_watermark)

    made = plan_retention(
        segments,
        config,
        start_offset=Offset(start),
        high_watermark=Offset(high_watermark),
        now_ms=NOW,
        archived_up_to=None if archived is None else Offset(archived),
    )

    order = [Verdict.DELETE, Verdict.DROP_LOCAL, Verdict.KEEP]
    found = [order.index(segment.verdict) for segment in made.segments]
    assert found == sorted(found)
    assert all(s.next_offset <= high_watermark for s in made.segments if s.verdict != "keep")
    assert start <= made.start_offset <= max(high_watermark, start)
    assert made.local_start_offset >= made.start_offset
    assert all(segment.reason for segment in made.segments)
    left = [s for s, d in zip(segments, made.segments, strict=True) if d.verdict == "keep"]
    deleted = segments[: len(segments) - len(left)]
    # The date of a deleted segment may have corrected that of a later one; now it cannot any more.
    are_dates_known = all(a.modified_ms <= b.modified_ms for a in deleted for b in left)
    if archived is None and are_dates_known:
        if made.must_roll:
            left = [
                SegmentHistory(
                    base_offset=end,
                    next_offset=end,
                    size=0,
                    largest_timestamp=NO_TIMESTAMP,
                    modified_ms=NOW,
                    is_active=True,
                )
            ]
        again = plan_retention(
            left,
            config,
            start_offset=made.start_offset,
            high_watermark=Offset(high_watermark),
            now_ms=NOW,
        )
        assert verdicts(again) == ["keep"] * len(left)
        assert again.start_offset == made.start_offset


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [(0, "0 ms"), (1999, "1999 ms"), (2000, "2 s"), (7 * DAY_MS, "7 d"), (90_000, "90 s")],
)
def test_durations_read_as_people_write_them(duration_ms: int, words: str) -> None:
    assert duration_in_words(duration_ms) == words


def test_a_moment_no_calendar_has_is_a_number() -> None:
    assert in_words(NOW) == "2023-11-14 22:13:20Z"
    assert in_words(TimestampMs(2**62)) == f"{2**62} ms"


# --- what runs ---------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=clock)


def filled_log(
    fs: SimulatedFileSystem, clock: ManualClock, segments: int = 3, **config: object
) -> PartitionLog:
    """A log of `segments` sealed segments of five records, an hour apart, and an active one."""
    settings: dict[str, object] = {key.replace("_", "."): value for key, value in config.items()}
    log = new_log(fs, settings, clock=clock)[1]
    for number in range(segments + 1):
        log.append_many([(b"k", b"%d-%d" % (number, n)) for n in range(5)])
        if number < segments:
            log.roll()
            log.sync()
        clock.advance(HOUR_MS)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments()]


def names(fs: SimulatedFileSystem) -> list[str]:
    return sorted(entry.name for entry in fs.list(DIRECTORY))


def test_what_was_explained_is_what_runs(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = filled_log(fs, clock, retention_ms="150m")
    explained = log.upkeep.plan_retention(clock.now_ms())

    done = log.upkeep.apply_retention(clock.now_ms())

    assert done == explained
    assert verdicts(done) == ["delete", "delete", "keep", "keep"]
    assert bases(log) == [10, 15]
    assert log.start_offset == 10
    assert log.end_offset == 20
    assert [record.offset for record in log.read()] == list(range(10, 20))


def test_deleted_files_wait_for_their_readers(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = filled_log(fs, clock, retention_segments=1, retention_ms=-1)
    store_files = [name for name in names(fs) if name.endswith(".log")]

    log.upkeep.apply_retention(clock.now_ms())

    left = [name for name in names(fs) if ".log" in name]
    assert len(store_files) == len(left) == 4
    assert sum(name.endswith(".deleted") for name in left) == 3
    assert all(name.endswith(".deleted") for name in names(fs) if name.startswith("0" * 20))


def test_retention_is_idempotent(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = filled_log(fs, clock, retention_bytes=0, retention_ms=-1)
    log.upkeep.apply_retention(clock.now_ms())
    calls = fs.calls

    again = log.upkeep.apply_retention(clock.now_ms())

    assert verdicts(again) == ["keep"]
    written = [call for call in fs.call_log[calls:] if call[0] in {"rename", "write", "remove"}]
    assert written == []


def test_the_active_segment_is_rolled_first_and_the_end_stays(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = filled_log(fs, clock, retention_ms="1m")

    log.upkeep.apply_retention(clock.now_ms())

    assert (log.start_offset, log.end_offset, log.high_watermark) == (20, 20, 20)
    assert bases(log) == [20]
    assert log.append(b"next").offset == 20


def test_records_that_came_after_the_plan_stay(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = filled_log(fs, clock, segments=1, retention_ms="1m")
    made = log.upkeep.plan_retention(clock.now_ms())
    log.append(b"new")

    rolled = log.upkeep._roll_for_deletion(made)

    assert made.must_roll
    assert not rolled


def test_deleted_segments_do_not_come_back(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    log = filled_log(fs, clock, retention_ms="150m")
    log.upkeep.apply_retention(clock.now_ms())

    again = log_of(open_store(fs.crash(random.Random(3)), clock=clock))

    assert again.start_offset == 10
    assert not again.damages
    assert [record.offset for record in again.read()] == list(range(10, 20))


@pytest.mark.parametrize("seed", range(5))
def test_an_interrupted_deletion_is_finished_at_the_next_start(
    fs: SimulatedFileSystem, clock: ManualClock, seed: int
) -> None:
    log = filled_log(fs, clock, retention_ms="150m")
    before = fs.calls
    log.upkeep.apply_retention(clock.now_ms())
    steps = fs.calls - before

    for step in range(1, steps + 1):
        other_clock = ManualClock()
        other = SimulatedFileSystem(clock=other_clock)
        log = filled_log(other, other_clock, retention_ms="150m")
        other.fail_at(step, OSError(errno.EIO, "pulled"))
        with contextlib.suppress(OSError):
            log.upkeep.apply_retention(other_clock.now_ms())
        after = other.crash(random.Random(seed))

        again = log_of(open_store(after, clock=other_clock))
        again.upkeep.apply_retention(other_clock.now_ms())

        assert again.start_offset == 10
        assert not again.damages, again.damages
        assert [record.offset for record in again.read()] == list(range(10, 20))


def test_deletion_works_on_a_disk_without_a_byte_left(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = filled_log(fs, clock, retention_bytes=0, retention_ms=-1)
    fs.capacity_bytes = 0

    log.upkeep.apply_retention(clock.now_ms())

    assert log.start_offset == 15
    after = fs.crash(random.Random(1))
    after.capacity_bytes = None
    again = log_of(open_store(after, clock=clock))
    assert again.start_offset == 15
    assert not again.damages


def test_epochs_and_producer_snapshots_follow_the_start(
    fs: SimulatedFileSystem, clock: ManualClock
) -> None:
    log = filled_log(fs, clock, retention_segments=1, retention_ms=-1)

    log.upkeep.apply_retention(clock.now_ms())

    assert [entry.start_offset for entry in log.epochs.known.entries] == [15]
    snapshots = [name for name in names(fs) if name.endswith(".snapshot")]
    assert all(int(name.split(".")[0]) >= 15 for name in snapshots)
