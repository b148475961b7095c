"""Checks the disk of a directory: file system, free space, time of a sync."""

import os
import time
from collections.abc import Iterator
from typing import Final

from cordwood.cli.disk_probe import BareDisk
from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import counted, shown_bytes
from cordwood.quantities import GIB, KIB

_MOUNTS: Final = "/proc/self/mountinfo"
_PROBE_S: Final = 0.5
_PROBE_COUNT_MAX: Final = 100
_PROBE_BYTES: Final = 4 * KIB
_FAST_US: Final = 30  # only memory is faster, not a disk
_SLOW_US: Final = 20_000
_FREE_ENOUGH: Final = 1 * GIB
_SKEW_MAX_S: Final = 2.0
_NETWORK: Final = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "glusterfs", "lustre", "afs")
_MEMORY: Final = ("tmpfs", "ramfs")


def check_disk(path: str, *, free_bytes_min: int) -> Iterator[Finding]:
    """Appends are refused below `free_bytes_min`. Syncs are measured on an unnamed file."""
    area = f"disk of {path}"
    kind = file_system_of(path)
    yield _kind_finding(area, kind)
    yield _room(area, path, free_bytes_min)
    if not os.access(path, os.W_OK | os.X_OK):
        yield Finding(
            area=area,
            name="permissions",
            value="this user cannot write here",
            verdict=Verdict.WARNING,
            advice="reading works; run as the owner of the directory to append",
        )
        return
    yield from _probe(area, path, is_memory=kind in _MEMORY)


def file_system_of(path: str) -> str | None:
    """The name of the file system, for example ``ext4``; None if unknown."""
    try:
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open(_MOUNTS, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1]
    except (OSError, ValueError, IndexError):
        return None
    return None


def _kind_finding(area: str, kind: str | None) -> Finding:
    if kind is None:
        return Finding(area=area, name="file system", value="unknown", verdict=Verdict.NOTE)
    if kind in _MEMORY:
        return Finding(
            area=area,
            name="file system",
            value=f"{kind}, in memory",
            verdict=Verdict.WARNING,
            advice="all data is lost when the machine restarts; use it only for tests",
        )
    if kind.startswith(_NETWORK):
        return Finding(
            area=area,
            name="file system",
            value=f"{kind}, not local",
            verdict=Verdict.WARNING,
            advice="locks and syncs may not work, and other machines see changes late; "
            "use one writer on one machine, and archive to shared storage",
        )
    return Finding(area=area, name="file system", value=kind)


def _room(area: str, path: str, free_bytes_min: int) -> Finding:
    stats = os.statvfs(path)
    free, total = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    share = f" of {shown_bytes(total)}" if total else ""
    value = f"{shown_bytes(free)}{share} free"
    if stats.f_files and not stats.f_favail:
        value += ", no free inodes"
    if free < free_bytes_min or (stats.f_files and not stats.f_favail):
        verdict, advice = (
            Verdict.PROBLEM,
            f"appends are refused below {shown_bytes(free_bytes_min)} (log.dir.free.bytes.min): "
            "delete or move data, or lower retention (`cordwood topics alter`)",
        )
    elif free < _FREE_ENOUGH:
        verdict, advice = (
            Verdict.WARNING,
            f"appends are refused below {shown_bytes(free_bytes_min)} (log.dir.free.bytes.min); "
            "compaction needs space for the segments it rewrites",
        )
    else:
        verdict, advice = Verdict.OK, ""
    return Finding(area=area, name="free space", value=value, verdict=verdict, advice=advice)


def _probe(area: str, path: str, *, is_memory: bool) -> Iterator[Finding]:
    """How long a sync takes, and whether the clock of the disk's machine agrees with ours."""
    name = "fdatasync"
    try:
        times_us, skew_s = measure_syncs(path, seconds=_PROBE_S, count_max=_PROBE_COUNT_MAX)
    except OSError as error:
        yield Finding(
            area=area,
            name=name,
            value=f"failed: {error.strerror or error}",
            verdict=Verdict.PROBLEM,
            advice="data cannot be made durable here",
        )
        return
    yield sync_finding(area, times_us, is_memory=is_memory)
    if abs(skew_s) > _SKEW_MAX_S:
        yield Finding(
            area=area,
            name="clock",
            value=f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's",
            verdict=Verdict.WARNING,
            advice="synchronize the clocks of both machines (NTP)",
        )


def sync_finding(area: str, times_us: list[float], *, is_memory: bool) -> Finding:
    ordered = sorted(times_us)
    middle = ordered[len(ordered) // 2]
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    value = (
        f"median {_shown_us(middle)}, 99th percentile {_shown_us(late)}, "
        f"{counted(len(ordered), 'write')} of 4 KiB"
    )
    verdict, advice = Verdict.OK, ""
    if middle < _FAST_US and not is_memory:
        verdict = Verdict.WARNING
        advice = (
            "too fast for a disk: acknowledged records may not survive a power failure, "
            "for example on a virtual disk that caches writes"
        )
    elif middle > _SLOW_US:
        verdict = Verdict.WARNING
        advice = (
            "every acknowledgement waits for a sync: append from several threads, which share it, "
            "or set durability=os if losing the last records is acceptable"
        )
    return Finding(area=area, name="fdatasync", value=value, verdict=verdict, advice=advice)


def _shown_us(time_us: float) -> str:
    return f"{time_us / 1000:.1f} ms" if time_us >= 1000 else f"{time_us:.0f} µs"


def measure_syncs(
    path: str, *, seconds: float, count_max: int, size: int = _PROBE_BYTES
) -> tuple[list[float], float]:
    """The time of each synced append in µs, and how far the disk's clock is ahead of ours."""
    times_us: list[float] = []
    with BareDisk(path, os.urandom(size)) as disk:
        until = time.monotonic() + seconds
        while len(times_us) < count_max and (not times_us or time.monotonic() < until):
            begun = time.perf_counter()
            disk.append()
            times_us.append((time.perf_counter() - begun) * 1e6)
        return times_us, disk.modified_s - time.time()
