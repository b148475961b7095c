"""Waiting for a log that another process writes."""

from types import SimpleNamespace

import pytest

from cordwood.log.beside.polling import Polling
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset
from fakes.numbered_log import fill, make

POLLING = Polling(pause_s_min=1.0, pause_s_max=5.0, growth=2.0, refreshes=False)


@pytest.fixture
def log() -> PartitionLog:
    return fill(make()[1], 3)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that were made; the clock moves with them."""
    made: list[float] = []
    clock = SimpleNamespace(sleep=made.append, monotonic=lambda: sum(made))
    # The one that other threads of the process have goes on.
    monkeypatch.setattr("cordwood.log.beside.polling.time", clock)
    return made


def test_a_log_that_is_beyond_already_is_not_waited_for(
    log: PartitionLog, pauses: list[float]
) -> None:
    assert POLLING.wait_beyond(log.source, Offset(2), None)

    assert pauses == []


def test_pauses_grow_to_a_limit_and_the_timeout_is_kept(
    log: PartitionLog, pauses: list[float]
) -> None:
    assert not POLLING.wait_beyond(log.source, Offset(3), 20.0)

    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 3.0]


def test_new_records_end_the_wait(
    log: PartitionLog, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.log.beside.polling.time.sleep", lambda pause_s: fill(log, 1))

    assert POLLING.wait_beyond(log.source, Offset(3), None)


def test_closing_the_log_ends_the_wait(
    log: PartitionLog, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.log.beside.polling.time.sleep", lambda pause_s: log.close())

    assert not POLLING.wait_beyond(log.source, Offset(3), None)
