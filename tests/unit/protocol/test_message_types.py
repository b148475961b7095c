"""The types of messages that the type checker sees are those of the schemas."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_stubs_made_from_the_schemas_are_current() -> None:
    finished = subprocess.run(
        [sys.executable, str(ROOT / "build_support" / "message_types.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
