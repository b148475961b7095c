"""What to try next: commands that work, without changes, on the files of a run."""

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
    """A command and what it shows. With `goes_on` it runs until it is stopped."""

    command: str
    shows: str
    goes_on: bool = False


def next_steps(scene: Scene, root: Path) -> list[NextStep]:
    """The commands, with paths relative to the current directory."""
    cordwood = _typed(Path(sys.executable).parent / "cordwood")
    store = _typed(scene.files.store)
    accounts = [key for key, value in scene.tally.accounts.items() if value is not None]
    account = accounts[0].decode() if accounts else "a-000000"
    steps = [
        NextStep(
            command=f"{cordwood} topics list --at {store}",
            shows="the topics and their configuration",
        ),
        NextStep(
            command=f"{cordwood} segments {PAYMENTS} --at {store}",
            shows="the segments, where each is and why it will expire",
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
            shows="the progress of the consumer group",
        ),
        NextStep(
            command=f"{cordwood} verify --at {store}",
            shows="whether every checksum, record and index is intact",
        ),
        NextStep(
            command=f"{cordwood} serve --dir {store}",
            shows="a broker on port 9092, for your own Kafka clients",
            goes_on=True,
        ),
        NextStep(
            command=f"{cordwood} console --at {store}",
            shows="all of it in a browser, on http://127.0.0.1:9480",
            goes_on=True,
        ),
        NextStep(command=_typed(root / "script" / "test"), shows="the tests", goes_on=True),
    ]
    return steps


def _typed(path: Path) -> str:
    """The shortest form of the path in the current directory."""
    # Programs of a virtual environment are links, so the path must not be resolved.
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    return shlex.quote(absolute if relative.startswith("..") else relative)
