"""A short run of a real cluster under faults; `script/faults cluster-processes` runs long ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crash.cluster_processes.campaign import why_not

TESTS = Path(__file__).resolve().parent.parent


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return subprocess.run(
        [sys.executable, "-m", "crash.cluster_processes.campaign", str(directory), *options],
        capture_output=True,
        text=True,
        timeout=420,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{TESTS.parent}/src", str(TESTS)])},
        check=False,
    )


def test_a_cluster_keeps_what_it_acknowledged_under_faults(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "--seed=1", "--faults=10", "--controllers=1", "--pause=2.5")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 violations" in ended.stdout


def test_a_cluster_that_does_not_sync_is_found_out_by_a_power_cut(tmp_path: Path) -> None:
    options = ("--durability=os", "--kinds", "all_power")

    ended = run(tmp_path / "run", "--faults=2", "--controllers=1", "--pause=6", *options)

    assert "acknowledged loss" in ended.stdout, ended.stdout + ended.stderr
