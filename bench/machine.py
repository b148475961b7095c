"""Describes the machine: figures without it mean nothing."""

import os
import platform
import sqlite3
import sys
import time
from pathlib import Path

from bench.process_tree import descendants_cpu_seconds
from cordwood.format import batch_scan
from cordwood.quantities import GIB


def describe_machine(directory: Path) -> dict[str, str]:
    """Facts in print order."""
    return {
        "cores": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "disk": _disk(directory),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernels": "compiled" if batch_scan.COMPILED else "plain Python",
        "sqlite": sqlite3.sqlite_version,
        "load": f"{load_now()} before the run",
    }


def load_now() -> str:
    """The load average over a minute: processes that run or wait for the disk."""
    return f"{os.getloadavg()[0]:.2f}"


class Neighbours:
    """The share of the machine that other processes have used since this was created.

    A single thread that syncs each record sleeps thousands of times a second. On a busy machine
    it waits longer for a processor than for the disk, and anything compared with it looks better
    than it is. So each row shows this share.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy_s, self._own_s = _busy_seconds(), _own_seconds()

    def share(self) -> float | None:
        """Share of all cores, 0 to 1; None if the system has no figures."""
        busy_s = _busy_seconds()
        if busy_s is None or self._busy_s is None:
            return None
        others_s = busy_s - self._busy_s - (_own_seconds() - self._own_s)
        whole_s = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        return min(max(others_s / whole_s, 0.0), 1.0)


def _busy_seconds() -> float | None:
    """Seconds that all cores were busy, including time stolen by the host."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, fields)
    ticks = user + nice + system + interrupts + soft_interrupts + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Our processor time, including children that ended and children that run."""
    return sum(os.times()[:4]) + descendants_cpu_seconds(os.getpid())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or sys.platform
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _disk(directory: Path) -> str:
    """File system and device of the innermost mount that contains `directory`."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    path = directory.resolve()
    holding = [m for m in mounts if path == Path(m[1]) or Path(m[1]) in path.parents]
    if not holding:
        return "unknown"
    device, _, kind, *_ = max(holding, key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"
