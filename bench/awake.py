"""Cores that do not fall asleep while something is measured.

A core with nothing to do is halted, and who has work for it wakes it. On a virtual machine that
takes the host's help: where the host is slow to give it, one answer in ten cost 0.8 ms to send
instead of 15 us, for minutes, and then no more. A server that answers often was then measured by
how long its client's core had slept.

So a process of the lowest priority runs on every core. It gets what nobody else wants, and next
to nothing (3 parts in 1024) of what somebody does. It is the same for all that is measured. Not
for rows that wait for the disk: the host needs processors too, and with all of ours busy the disk
of a virtual machine went from 7,500 syncs a second to 130.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.measure import Context, Row, RowMaker

_CPU_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")
# Arguments: the core, and the process to end with.
_SPINNER: Final = """
import os, sys
core, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    sum(range(100_000))
"""
# All there are, before this process goes to one of them. See `pinning`.
_CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def kept_awake(make: RowMaker) -> RowMaker:
    """The same rows, measured while no core sleeps."""

    def make_awake(context: Context) -> list[Row]:
        with cores_kept_awake() as is_awake:
            rows = "while rows of durability os are measured, but for start and memory"
            context.facts["awake"] = rows if is_awake else "no: cores may fall asleep"
            return make(context)

    return make_awake


@contextmanager
def cores_kept_awake() -> Iterator[bool]:
    """Whether they are: not where the system has no such priority, or counts it as work done."""
    if not hasattr(os, "SCHED_IDLE") or has_cpu_limit():
        yield False
        return
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", _SPINNER, str(core), str(os.getpid())])
        for core in _CORES
    ]
    try:
        yield True
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def has_cpu_limit(limit: Path = _CPU_LIMIT) -> bool:
    """Whether this container may use only so much of its cores: spinning would use it up."""
    with suppress(OSError):
        return not limit.read_text().startswith("max")
    return False
