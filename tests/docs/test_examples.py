"""Every program in `examples/` runs as a reader would run it, and succeeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(program: Path, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(program: Path, tmp_path: Path) -> None:
    finished = run(program, directory=tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout
    assert finished.stderr == ""


def test_a_view_is_rebuilt_from_the_events_a_former_run_left(tmp_path: Path) -> None:
    program = ROOT / "examples" / "event_sourcing.py"

    finished = run(program, str(tmp_path / "data"), directory=tmp_path)

    assert "refused: bob holds less than 50" in finished.stdout
    assert "rebuilt from 3 events: {'ada': 70, 'bob': 20}" in finished.stdout
    assert (tmp_path / "data" / "accounts-0" / "00000000000000000000.log").exists()
