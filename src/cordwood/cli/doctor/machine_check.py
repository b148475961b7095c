"""Checks the machine: open files, memory, kernel features, clock."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Final

from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import shown_bytes
from cordwood.quantities import KIB, MIB

_AREA: Final = "machine"
_FILES_ENOUGH: Final = 4096
_AVAILABLE_MIN: Final = 256 * MIB
_MEMINFO: Final = "/proc/meminfo"
_EARLIEST_S: Final = 1_735_689_600  # 2025-01-01: Cordwood is younger than that
_LATEST_S: Final = 4_102_444_800  # 2100-01-01


def check_machine(files_needed: int | None) -> Iterator[Finding]:
    """`files_needed`: how many files the checked store may hold open; None without a store."""
    yield open_files_finding(*_open_files_limits(), files_needed)
    yield _memory()
    yield _kernel_syncs()
    yield _sendfile()
    yield clock_finding(time.time())


def _open_files_limits() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def open_files_finding(soft: int, hard: int, needed: int | None) -> Finding:
    """`cordwood serve` raises the soft limit to the hard one; other programs do not."""
    import resource

    limits = {resource.RLIM_INFINITY: "unlimited"}
    value = f"soft limit {limits.get(soft, soft)}, hard limit {limits.get(hard, hard)}"
    if needed is not None:
        value += f"; this store needs up to {needed:,}, plus one per client"
    hard_count = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    soft_count = sys.maxsize if soft == resource.RLIM_INFINITY else soft
    if needed is not None and hard_count < needed:
        verdict, advice = (
            Verdict.PROBLEM,
            f"raise the limit to {2 * needed} or more: LimitNOFILE= of the systemd unit, "
            "--ulimit nofile= of docker, or /etc/security/limits.conf",
        )
    elif hard_count < _FILES_ENOUGH:
        verdict, advice = Verdict.WARNING, f"raise the hard limit to {_FILES_ENOUGH} or more"
    elif needed is not None and soft_count < needed:
        verdict, advice = (
            Verdict.WARNING,
            f"`cordwood serve` raises it; for other programs run `ulimit -n {2 * needed}`",
        )
    else:
        verdict, advice = Verdict.OK, ""
    return Finding(area=_AREA, name="open files", value=value, verdict=verdict, advice=advice)


def _memory() -> Finding:
    found = _meminfo()
    if found is None:
        return Finding(area=_AREA, name="memory", value="unknown", verdict=Verdict.NOTE)
    total, available, cached = found
    value = (
        f"{shown_bytes(total)}, {shown_bytes(available)} available, "
        f"{shown_bytes(cached)} in the page cache"
    )
    if available >= _AVAILABLE_MIN:
        return Finding(area=_AREA, name="memory", value=value)
    return Finding(
        area=_AREA,
        name="memory",
        value=value,
        verdict=Verdict.WARNING,
        advice="recent records are read from the page cache, which needs free memory",
    )


def _meminfo() -> tuple[int, int, int] | None:
    """Total, available and page cache; None if unknown."""
    try:
        with open(_MEMINFO, encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        total, available, cached = (
            int(lines[name].split()[0]) * KIB for name in ("MemTotal", "MemAvailable", "Cached")
        )
    except (OSError, KeyError, ValueError):
        return None
    return total, available, cached


def _kernel_syncs() -> Finding:
    from cordwood.storage.disk.kernel_syncs import KernelSyncs

    syncs = KernelSyncs.open()
    if syncs is not None:
        syncs.close()
        return Finding(area=_AREA, name="kernel AIO", value="the broker syncs through the kernel")
    return Finding(
        area=_AREA,
        name="kernel AIO",
        value="not available: the broker syncs in threads",
        verdict=Verdict.NOTE,
        advice="a little slower under load; some containers forbid io_setup"
        if sys.platform == "linux"
        else "only available on Linux",
    )


def _sendfile() -> Finding:
    if hasattr(os, "sendfile"):
        return Finding(
            area=_AREA, name="sendfile", value="records are sent to clients without copying"
        )
    return Finding(
        area=_AREA, name="sendfile", value="not available: records are copied", verdict=Verdict.NOTE
    )


def clock_finding(now_s: float) -> Finding:
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if _EARLIEST_S <= now_s <= _LATEST_S:
        return Finding(area=_AREA, name="clock", value=shown)
    return Finding(
        area=_AREA,
        name="clock",
        value=shown,
        verdict=Verdict.PROBLEM,
        advice="set the clock: record timestamps and retention depend on it",
    )
