"""An interrupt at any place of a change leaves a store that goes on, or says that it failed."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from crash.interrupts import SCENARIOS, Scenario, count_places, judge
from fakes.interrupter import interrupt, places

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
_SAMPLE = 6
_TRIALS = 6
_PARTS = 4


def _name(scenario: Scenario) -> str:
    return scenario.name


@pytest.mark.parametrize("scenario", SCENARIOS, ids=_name)
def test_an_interrupt_at_some_places(scenario: Scenario) -> None:
    count = count_places(scenario)
    for place in Random(scenario.name).sample(range(1, count + 1), _SAMPLE):
        judge(scenario, place)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=_name)
def test_an_interrupt_at_every_place(scenario: Scenario, part: int) -> None:
    """In parts, so that several processes can share the work: an opening has 9,500 places."""
    for place in range(1 + part, count_places(scenario) + 1, _PARTS):
        judge(scenario, place)


def _storm(directory: Path, trials: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{ROOT}/src", f"{ROOT}/tests"])}
    done = subprocess.run(
        [sys.executable, "-m", "crash.signal_storm", str(directory), str(trials)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 + 20 * trials,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_signals_while_four_threads_append(tmp_path: Path) -> None:
    _storm(tmp_path, _TRIALS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_signals_while_four_threads_append(tmp_path: Path) -> None:
    _storm(tmp_path, 400)


def test_the_interrupter_reaches_every_call_of_the_code_under_test() -> None:
    """And a signal that it stands for never comes between a lock and its `with`."""
    from cordwood.log.rules.lifetime import Lifetime

    lifetime = Lifetime("it")
    count = places(lifetime.end)
    reached = {interrupt(lifetime.end, place) for place in range(1, count + 2)}

    assert count >= 4
    assert None in reached, "past the last place, nothing is interrupted"
    assert len(reached) >= 4
