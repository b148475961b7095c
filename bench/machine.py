"""What was measured on: figures without it mean nothing."""

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
    """Facts in the order in which they are printed."""
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
    """Processes that worked or waited for the disk, as the system averages it over a minute."""
    return f"{os.getloadavg()[0]:.2f}"


class Neighbours:
    """How much of the machine went to other processes, since this was made.

    A single thread that syncs each record sleeps thousands of times a second. On a busy machine
    it then waits longer for a processor than for the disk, and whatever is measured beside it
    looks better than it is. So a row says how much was taken from it.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy_s, self._own_s = _busy_seconds(), _own_seconds()

    def share(self) -> float | None:
        """Part of all cores, 0 to 1; None where the system does not tell."""
        busy_s = _busy_seconds()
        if busy_s is None or self._busy_s is None:
            return None
        others_s = busy_s - self._busy_s - (_own_seconds() - self._own_s)
        whole_s = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        return min(max(others_s / whole_s, 0.0), 1.0)


def _busy_seconds() -> float | None:
    """Seconds all cores worked for anyone, or were kept from working by the host."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, fields)
    ticks = user + nice + system + interrupts + soft_interrupts + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """With children, those that have ended and those that still run."""
    return sum(os.times()[:4]) + descendants_cpu_seconds(os.getpid())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or sys.platform
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _disk(directory: Path) -> str:
    """File system and device of the innermost mount that holds `directory`."""
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
