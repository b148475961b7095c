"""Calls to the disk that fail. `script/faults calls` fails every call in every way."""

from __future__ import annotations

from functools import cache

import pytest

from crash.io_faults import CallFault, all_faults, run_fault
from crash.scripts import SCRIPTS

pytestmark = pytest.mark.faults

PARTS = 2
FAULTS_PER_PART = 25


@cache  # a script runs once to list its calls, for all parts
def faults_of(script: str) -> list[CallFault]:
    return list(all_faults(script, seed=0))


def chosen(script: str, part: int) -> list[CallFault]:
    """A share of all faults of the script, the same in every run, spread over all its calls."""
    faults = faults_of(script)
    step = max(1, len(faults) // (PARTS * FAULTS_PER_PART))
    return faults[part * step :: step * PARTS]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_call_that_fails_breaks_no_promise(script: str, part: int) -> None:
    for fault in chosen(script, part):
        try:
            run_fault(fault)
        except Exception as error:
            error.add_note(f"replay: script/faults replay {fault}")
            raise
