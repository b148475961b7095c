"""Sessions: an id that is not heard of within its timeout expires, and costs one timer."""

import pytest

from cordwood.broker.groups.session_timers import SessionTimers
from fakes.manual_scheduler import ManualScheduler


class Sessions:
    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.expired: list[str] = []
        self.timers = SessionTimers(self.scheduler, self.expired.append)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def test_a_silent_member_expires_once(sessions: Sessions) -> None:
    sessions.timers.expect("a", 10_000)

    sessions.scheduler.advance(9)
    before = list(sessions.expired)
    sessions.scheduler.advance(30)

    assert (before, sessions.expired) == ([], ["a"])
    assert "a" not in sessions.timers


def test_each_call_moves_the_deadline_without_another_timer(sessions: Sessions) -> None:
    for _ in range(5):
        sessions.timers.expect("a", 10_000)
        sessions.scheduler.advance(9)

    assert sessions.expired == []
    assert (len(sessions.timers), sessions.scheduler.timer_count) == (1, 1)


def test_a_shorter_timeout_counts_at_once(sessions: Sessions) -> None:
    sessions.timers.expect("a", 300_000)

    sessions.timers.expect("a", 10_000)
    sessions.scheduler.advance(11)

    assert sessions.expired == ["a"]


def test_a_forgotten_member_does_not_expire(sessions: Sessions) -> None:
    sessions.timers.expect("a", 10_000)
    sessions.timers.expect("b", 10_000)

    sessions.timers.forget("a")
    sessions.timers.forget("nobody")
    sessions.scheduler.advance(11)

    assert sessions.expired == ["b"]


def test_no_timer_is_left_after_a_stop(sessions: Sessions) -> None:
    sessions.timers.expect("a", 10_000)

    sessions.timers.stop()

    assert sessions.scheduler.timer_count == 0
