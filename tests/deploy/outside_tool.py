"""Programs that judge the files in deploy/, if this machine has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def judge(*command: str | Path) -> str:
    """The output of a program, which must accept the file; skips the test if it is missing."""
    name = str(command[0])
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed; script/deploy-check gets it, if it can")
    finished = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr
