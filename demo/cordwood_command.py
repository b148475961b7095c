"""The command `cordwood`, run as a user would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

_TIMEOUT_S: Final = 120.0


class CommandFailedError(Exception):
    """The command ended with an error; the message has what it said."""


def run_cordwood(*arguments: str) -> list[dict[str, Any]]:
    """What the command prints with --json, an object for each line."""
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
