"""One scheduler for all background work of a store."""

from __future__ import annotations

import threading

import pytest

from cordwood.log.store.housekeeping import Housekeeping
from fakes.manual_clock import ManualClock
from fakes.scarcity import refuse_threads


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# --- the scheduler -----------------------------------------------------------------------------


def test_a_task_runs_when_its_interval_has_passed_and_not_before(clock: ManualClock) -> None:
    ran: list[float] = []
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("note", 10.0, lambda: ran.append(clock.monotonic()))

    for _ in range(25):
        clock.advance(1000)
        housekeeping.run_due()

    assert ran == [10.0, 20.0]


def test_what_a_task_gave_back_is_added_up(clock: ManualClock) -> None:
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("give", 10.0, lambda: 7)

    housekeeping.run_all()
    housekeeping.run_all()

    [status] = housekeeping.status()
    assert (status.name, status.runs, status.bytes_reclaimed) == ("give", 2, 14)
    assert status.last_run_ms == clock.now_ms()
    assert status.last_error is None
    assert not status.is_running


def test_a_task_that_fails_says_so_waits_longer_and_stops_no_other(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[float] = []

    def fail() -> None:
        ran.append(clock.monotonic())
        raise OSError("no luck")

    others: list[float] = []
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("fail", 1.0, fail)
    housekeeping.add("go on", 1.0, lambda: others.append(0.0))

    for _ in range(16):
        clock.advance(1000)
        housekeeping.run_due()

    assert ran == [1.0, 3.0, 7.0, 15.0]
    assert len(others) == 16
    failed = housekeeping.status()[0]
    assert failed.failures == 4
    assert failed.last_error == "OSError: no luck"
    assert [record.name for record in caplog.records].count(Housekeeping.__module__) == 1


def test_run_all_runs_every_task_and_then_raises_the_first_failure(clock: ManualClock) -> None:
    def fail() -> None:
        raise OSError("no luck")

    ran: list[str] = []
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("fail", 1.0, fail)
    housekeeping.add("go on", 1.0, lambda: ran.append("went on"))

    with pytest.raises(OSError, match="no luck"):
        housekeeping.run_all()

    assert ran == ["went on"]


def test_what_takes_long_is_not_begun_while_it_is_not_needed(clock: ManualClock) -> None:
    is_needed, ran = [False], threading.Event()
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("long", 1.0, ran.set, takes_long=True, is_needed=lambda: is_needed[0])

    clock.advance(1000)
    housekeeping.run_due()
    assert not ran.is_set()
    is_needed[0] = True
    clock.advance(1000)
    housekeeping.run_due()

    assert ran.wait(60)
    housekeeping.stop()


def test_what_takes_long_keeps_nothing_waiting_and_never_runs_twice_at_once(
    clock: ManualClock,
) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)
    quick: list[int] = []

    def long() -> None:
        begun.release()
        assert go_on.wait(60)

    housekeeping = Housekeeping("test", clock)
    housekeeping.add("long", 1.0, long, takes_long=True)
    housekeeping.add("quick", 1.0, lambda: quick.append(1))
    clock.advance(1000)
    housekeeping.run_due()
    assert begun.acquire(timeout=60)
    for _ in range(3):
        clock.advance(1000)
        housekeeping.run_due()

    status = housekeeping.status()[0]

    assert status.is_running
    assert len(quick) == 4
    go_on.set()
    housekeeping.stop()
    assert housekeeping.status()[0].runs == 1


def test_the_next_run_is_known_only_while_a_thread_runs(clock: ManualClock) -> None:
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("note", 60.0, lambda: None)
    assert housekeeping.status()[0].next_run_ms is None

    housekeeping.start()
    try:
        assert housekeeping.status()[0].next_run_ms == clock.now_ms() + 60_000
    finally:
        housekeeping.stop()

    assert housekeeping.status()[0].next_run_ms is None


def test_a_check_that_fails_does_not_end_the_scheduler(clock: ManualClock) -> None:
    ran: list[int] = []
    others: list[int] = []
    housekeeping = Housekeeping("test", clock)

    def fail() -> bool:
        raise ValueError("injected")

    housekeeping.add("long", 1.0, lambda: ran.append(1), takes_long=True, is_needed=fail)
    housekeeping.add("go on", 1.0, lambda: others.append(1))

    clock.advance(1000)
    housekeeping.run_due()
    housekeeping.stop()

    assert (ran, others) == ([1], [1])


def test_a_thread_that_cannot_be_started_does_not_end_the_scheduler(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    others: list[int] = []
    housekeeping = Housekeeping("test", clock)
    housekeeping.add("long", 1.0, lambda: ran.append(1), takes_long=True)
    housekeeping.add("go on", 1.0, lambda: others.append(1))

    with monkeypatch.context() as patched:
        refuse_threads(patched)
        clock.advance(1000)
        housekeeping.run_due()
    assert (ran, others) == ([], [1])

    clock.advance(1000)
    housekeeping.run_due()
    housekeeping.stop()
    assert (ran, others) == ([1], [1, 1])


def test_housekeeping_that_could_not_be_started_can_be_stopped(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    housekeeping = Housekeeping("test", clock)
    with monkeypatch.context() as patched:
        refuse_threads(patched)
        with pytest.raises(RuntimeError):
            housekeeping.start()

    housekeeping.stop()
