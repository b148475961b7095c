"""What to try next: commands that work as they stand on what a run left behind."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from demo.demo_plan import ACCOUNTS, GROUP, PAYMENTS
from demo.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A command and what it shows. One that `goes_on` runs until it is stopped."""

    command: str
    shows: str
    goes_on: bool = False


def next_steps(scene: Scene, root: Path) -> list[NextStep]:
    """Paths are relative to where the user is."""
    cordwood = _typed(Path(sys.executable).parent / "cordwood")
    store = _typed(scene.files.store)
    accounts = [key for key, value in scene.tally.accounts.items() if value is not None]
    account = accounts[0].decode() if accounts else "a-000000"
    steps = [
        NextStep(
            command=f"{cordwood} topics list --at {store}",
            shows="the topics, and what was set for them",
        ),
        NextStep(
            command=f"{cordwood} segments {PAYMENTS} --at {store}",
            shows="the segments, where each is and why it will go",
        ),
        NextStep(
            command=f"{cordwood} consume {PAYMENTS} --at {store} --from -10m -n 5",
            shows="the first events of the last ten minutes",
        ),
        NextStep(
            command=f"{cordwood} find {ACCOUNTS} {account} --at {store}",
            shows="the newest value of an account, by its key",
        ),
        NextStep(
            command=f"{cordwood} groups describe {GROUP} --at {store}",
            shows="how far the consumer group came",
        ),
        NextStep(
            command=f"{cordwood} verify --at {store}",
            shows="whether every checksum, record and index is sound",
        ),
        NextStep(
            command=f"{cordwood} serve --dir {store}",
            shows="a broker on port 9092, for Kafka clients of yours",
            goes_on=True,
        ),
        NextStep(command=_typed(root / "script" / "test"), shows="the tests", goes_on=True),
    ]
    return steps


def _typed(path: Path) -> str:
    """As short as it can be typed in the current directory."""
    # A virtual environment's programs are links: they must not be resolved.
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    return shlex.quote(absolute if relative.startswith("..") else relative)
