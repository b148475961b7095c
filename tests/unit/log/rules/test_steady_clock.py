"""Time for decisions that cannot be undone: no jump is believed before it has lasted."""

from __future__ import annotations

import pytest

from cordwood.log.rules.steady_clock import SteadyClock, SteadyTime
from cordwood.quantities import TimestampMs
from fakes.manual_clock import START_MS, ManualClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TEN_YEARS_MS = 3652 * 24 * HOUR_MS


def test_it_goes_along_with_a_wall_clock_that_runs_along() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)

    for _ in range(100):
        clock.advance(30_000)
        clock.set(clock.now_ms() + 500)  # runs fast: a second a minute

        assert steady.now_ms() == clock.now_ms()
    assert steady.doubted_ms == 0


@pytest.mark.parametrize(
    "jump_ms", [2 * MINUTE_MS, 5 * HOUR_MS, TEN_YEARS_MS, -2 * MINUTE_MS, -5 * HOUR_MS, -START_MS]
)
def test_a_jump_is_not_believed_for_an_hour_and_then_is(jump_ms: int) -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    clock.set(START_MS + jump_ms)
    expected = START_MS

    for _ in range(60):
        assert steady.now_ms() == expected
        assert steady.doubted_ms == jump_ms
        clock.advance(MINUTE_MS)
        expected += MINUTE_MS

    assert steady.now_ms() == clock.now_ms() == START_MS + jump_ms + HOUR_MS
    assert steady.doubted_ms == 0


@pytest.mark.parametrize("jump_ms", [5 * HOUR_MS, TEN_YEARS_MS, -TEN_YEARS_MS])
def test_a_jump_that_is_put_right_leaves_no_trace(jump_ms: int) -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    clock.set(START_MS + jump_ms)
    assert steady.now_ms() == START_MS
    clock.advance(59 * MINUTE_MS)
    assert steady.now_ms() == START_MS + 59 * MINUTE_MS

    clock.set(START_MS + 59 * MINUTE_MS)
    clock.advance(10 * HOUR_MS)

    assert steady.now_ms() == START_MS + 59 * MINUTE_MS + 10 * HOUR_MS
    assert steady.doubted_ms == 0


def test_a_second_jump_starts_the_hour_anew() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    clock.set(START_MS + TEN_YEARS_MS)
    steady.now_ms()
    clock.advance(50 * MINUTE_MS)
    clock.set(START_MS - TEN_YEARS_MS)
    steady.now_ms()

    clock.advance(50 * MINUTE_MS)

    assert steady.now_ms() == START_MS + 100 * MINUTE_MS
    clock.advance(10 * MINUTE_MS)
    assert steady.now_ms() == clock.now_ms()


def test_a_clock_that_keeps_jumping_is_never_believed() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)

    for step in range(1, 49):
        clock.advance(30 * MINUTE_MS)
        clock.set(START_MS + step * TEN_YEARS_MS)

        assert steady.now_ms() == START_MS + step * 30 * MINUTE_MS


# --- the next opening ------------------------------------------------------------------------

DAY_MS = 24 * HOUR_MS
LAST = SteadyTime(now_ms=TimestampMs(START_MS), wall_ms=TimestampMs(START_MS), doubted_ms=0)


@pytest.mark.parametrize("gap_ms", [-TEN_YEARS_MS, -HOUR_MS, 0, HOUR_MS, DAY_MS])
def test_an_opening_believes_a_clock_that_is_behind_or_a_day_ahead(gap_ms: int) -> None:
    steady = SteadyClock(ManualClock(START_MS + gap_ms), LAST)

    assert steady.now_ms() == START_MS + gap_ms
    assert not steady.read().is_doubted


def test_an_opening_doubts_a_clock_that_is_far_ahead_for_an_hour() -> None:
    clock = ManualClock(START_MS + TEN_YEARS_MS)
    steady = SteadyClock(clock, LAST)

    for minute in range(60):
        assert steady.now_ms() == START_MS + minute * MINUTE_MS
        clock.advance(MINUTE_MS)

    assert steady.now_ms() == clock.now_ms()


def test_the_hour_continues_over_openings() -> None:
    clock = ManualClock(START_MS + TEN_YEARS_MS)
    last = LAST
    for opening in range(12):
        steady = SteadyClock(clock, last)
        assert steady.now_ms() == START_MS + opening * 5 * MINUTE_MS
        clock.advance(5 * MINUTE_MS)
        last = steady.read()

    assert last.now_ms == clock.now_ms()


def test_a_jump_that_was_doubted_before_closing_is_doubted_after_it() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    clock.set(START_MS + TEN_YEARS_MS)
    steady.now_ms()
    clock.advance(40 * MINUTE_MS)

    again = SteadyClock(clock, steady.read())

    assert again.now_ms() == START_MS + 40 * MINUTE_MS
    clock.advance(20 * MINUTE_MS)
    assert again.now_ms() == clock.now_ms()


@pytest.mark.parametrize("wall_ms", [START_MS + 5 * DAY_MS, START_MS + TEN_YEARS_MS])
def test_another_jump_while_closed_starts_the_hour_anew(wall_ms: int) -> None:
    clock = ManualClock(START_MS + 30 * DAY_MS)
    steady = SteadyClock(clock, LAST)
    clock.advance(59 * MINUTE_MS)
    last = steady.read()
    clock.set(wall_ms)
    again = SteadyClock(clock, last)

    clock.advance(59 * MINUTE_MS)

    assert again.now_ms() == START_MS + 118 * MINUTE_MS
