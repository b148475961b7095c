"""Power cuts over seeds. `script/faults power` runs many more of them."""

from __future__ import annotations

import pytest

from crash.known_seeds import Known, read_known
from crash.power_cut import run_seed
from crash.scripts import SCRIPTS

pytestmark = pytest.mark.faults

SEEDS = 24


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("first", range(0, SEEDS, 8))
def test_what_was_acknowledged_outlives_a_power_cut(script: str, first: int) -> None:
    for seed in range(first, first + 8):
        try:
            run_seed(script, seed)
        except Exception as error:
            error.add_note(f"replay: script/faults replay {script} {seed}")
            raise


@pytest.mark.parametrize("known", read_known(), ids=lambda known: f"{known.kind} {known.what}")
def test_a_run_that_once_failed_holds(known: Known) -> None:
    known.run()
