"""Keeps the cores awake during a measurement.

An idle core is halted, and waking it on a virtual machine needs the host's help. When the host was
slow to help, one answer in ten took 0.8 ms to send instead of 15 us, for minutes, and then no
longer. The result for a server that answers often then depended on how long its client's core had
slept.

So a process of the lowest priority runs on every core. It gets the time that nobody else uses, and
almost none (3 parts in 1024) of the time that others want. It runs for every subject of a row. It
does not run for rows that wait for the disk: the host needs processors too, and with all of ours
busy the disk of a virtual machine went from 7,500 syncs a second to 130.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.measure import Context, Row, RowMaker
from bench.pinning import CORES

_CPU_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")
# Arguments: the core, and the parent process; it ends with its parent.
_SPINNER: Final = """
import os, sys
core, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    sum(range(100_000))
"""


def kept_awake(make: RowMaker) -> RowMaker:
    """Measure the rows while no core sleeps."""

    def make_awake(context: Context) -> list[Row]:
        with cores_kept_awake() as is_awake:
            rows = "while rows of durability os are measured, except start and memory"
            context.facts["awake"] = rows if is_awake else "no: cores may sleep"
            return make(context)

    return make_awake


@contextmanager
def cores_kept_awake() -> Iterator[bool]:
    """Whether this is possible: the priority must exist, and must not count as used CPU time."""
    if not hasattr(os, "SCHED_IDLE") or has_cpu_limit():
        yield False
        return
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", _SPINNER, str(core), str(os.getpid())])
        for core in CORES
    ]
    try:
        yield True
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def has_cpu_limit(limit: Path = _CPU_LIMIT) -> bool:
    """Whether this container has a CPU quota, which spinning would use up."""
    with suppress(OSError):
        return not limit.read_text().startswith("max")
    return False
