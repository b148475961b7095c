"""The generated tables are up to date: keys, metrics, APIs, clients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_made_from_the_code_are_current() -> None:
    finished = subprocess.run(
        [sys.executable, str(ROOT / "build_support" / "config_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
