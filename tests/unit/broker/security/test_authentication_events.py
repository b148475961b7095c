"""Failures are counted and logged, a flood of them counted only."""

import logging

import pytest

from cordwood.broker.security.authentication_events import (
    Attempt,
    AttemptResult,
    AuthenticationCounts,
    EventGroup,
    FailureLog,
)
from cordwood.security.principal import Principal

ATTEMPT = Attempt(listener="L", client_host="1.2.3.4", mechanism="PLAIN", user="a\nb")


def test_everybody_hears_of_everything() -> None:
    counts, others = AuthenticationCounts(), AuthenticationCounts()
    group = EventGroup([counts])
    group.add(others)

    group.succeeded(ATTEMPT, Principal("User", "a"))
    group.failed(ATTEMPT, "why")
    group.failed(Attempt(listener="L", client_host="1.2.3.4"), "why")

    assert counts.view() == others.view()
    assert counts.view() == {
        ("L", "PLAIN", AttemptResult.SUCCEEDED): 1,
        ("L", "PLAIN", AttemptResult.FAILED): 1,
        ("L", "none", AttemptResult.FAILED): 1,
    }


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log of failures says: other brokers of the process report other things."""
    mine = FailureLog.__module__
    return [record.getMessage() for record in caplog.records if record.name == mine]


def test_a_failure_is_logged_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    FailureLog(lambda: 0.0).failed(ATTEMPT, "wrong password")

    assert lines(caplog) == [
        r"1.2.3.4: authentication of 'a\nb' on L by PLAIN failed: wrong password"
    ]


def test_ten_failures_a_second_are_logged_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now_s = 0.0
    log = FailureLog(lambda: now_s)

    for _ in range(100):
        log.failed(ATTEMPT, "why")
    now_s = 1.0
    log.failed(ATTEMPT, "why")

    found = lines(caplog)
    assert len(found) == 11
    assert found[-1].endswith("(90 more were not logged)")
