"""Runs the command `cordwood` as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

_TIMEOUT_S: Final = 120.0


class CommandFailedError(Exception):
    """The command failed; the message has its output."""


def run_cordwood(*arguments: str) -> list[dict[str, Any]]:
    """Run a command with --json; return its output, one object per line."""
    finished = subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments, "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if finished.returncode != 0:
        said = (finished.stdout + finished.stderr).strip()
        raise CommandFailedError(f"cordwood {' '.join(arguments)}: {said}")
    return [json.loads(line) for line in finished.stdout.splitlines()]
