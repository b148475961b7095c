"""What was measured on: figures without it mean nothing."""

import os
import platform
import sqlite3
import sys
from pathlib import Path

from varve.format import kernels
from varve.quantities import GIB


def describe_machine(directory: Path) -> dict[str, str]:
    """Facts in the order in which they are printed."""
    return {
        "cores": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "disk": _disk(directory),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernels": "compiled" if kernels.COMPILED else "plain Python",
        "sqlite": sqlite3.sqlite_version,
        "load": f"{os.getloadavg()[0]:.2f} before the run",
    }


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
