"""One core for the server and another for the client, so that they do not compete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


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
    if not hasattr(os, "sched_getaffinity") or shutil.which("taskset") is None:
        return None
    usable = sorted(os.sched_getaffinity(0))
    return Cores(server=usable[0], client=usable[1]) if len(usable) > 1 else None


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
