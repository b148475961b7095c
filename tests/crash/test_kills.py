"""Real processes killed with SIGKILL. `script/faults kills` kills a thousand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_writer_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """In a process of its own, which forks: pytest's workers have threads."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{ROOT}/src", f"{ROOT}/tests"])}

    run = subprocess.run(
        [sys.executable, "-m", "crash.kills", str(tmp_path), str(KILLS), str(seed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
