"""One core for the server and another for the client, so that they do not compete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

# Those of this process before it is pinned to one of them: a second stage pins servers, too.
CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    server: int
    client: int

    @property
    def server_prefix(self) -> tuple[str, ...]:
        """The prefix of a server's command line."""
        return ("taskset", "--cpu-list", str(self.server))


def choose_cores() -> Cores | None:
    """The first two cores of this process; None if it has fewer, or cannot choose."""
    if len(CORES) < 2 or shutil.which("taskset") is None:
        return None
    return Cores(server=CORES[0], client=CORES[1])


@contextmanager
def client_pinned(cores: Cores | None) -> Iterator[None]:
    """Pin this process, and those it starts from now on, to the client's core."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores.client})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
