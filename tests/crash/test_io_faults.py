"""Calls to the disk that fail. `script/faults calls` fails every call in every way."""

from __future__ import annotations

from functools import cache

import pytest

from crash.io_faults import CallFault, all_faults, run_fault
from crash.scripts import SCRIPTS

pytestmark = pytest.mark.faults

PARTS = 2
FAULTS_PER_PART = 25


@cache
def chosen(script: str) -> tuple[list[CallFault], ...]:
    """A share of all faults of the script for each part, spread over all its calls.

    They are the same in every run. The script runs once to list its calls.
    """
    faults = list(all_faults(script, seed=0))
    step = max(1, len(faults) // (PARTS * FAULTS_PER_PART))
    return tuple(faults[part * step :: step * PARTS] for part in range(PARTS))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_call_that_fails_breaks_no_promise(script: str, part: int) -> None:
    for fault in chosen(script)[part]:
        try:
            run_fault(fault)
        except Exception as error:
            error.add_note(f"replay: script/faults replay {fault}")
            raise
