"""Resources used by a process and its descendants, from Linux's /proc."""

import os
from pathlib import Path

_PROC = Path("/proc")


def tree_cpu_seconds(pid: int) -> float | None:
    """Processor time of `pid` and its descendants, also ended ones; None if unknown."""
    used = _cpu_seconds_by_pid()
    if pid not in used:
        return None
    return sum(used[each][1] for each in _tree(pid, used))


def descendants_cpu_seconds(pid: int) -> float:
    """The same without `pid` itself: the part that `os.times` does not include yet."""
    used = _cpu_seconds_by_pid()
    return sum(used[each][1] for each in _tree(pid, used) if each != pid)


def tree_resident_mb(pid: int) -> float | None:
    """Memory of `pid` and its descendants; None if the system has no figures."""
    used = _cpu_seconds_by_pid()
    if pid not in used:
        return None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pages = 0
    for each in _tree(pid, used):
        try:
            pages += int((_PROC / str(each) / "statm").read_text().split()[1])
        except OSError:
            continue  # ended meanwhile
    return pages * page_bytes / 1e6


def _tree(root: int, used: dict[int, tuple[int, float]]) -> set[int]:
    """`root` and its descendants."""
    found = {root}
    while True:
        below = {pid for pid, (parent, _) in used.items() if parent in found} - found
        if not below:
            return found
        found |= below


def _cpu_seconds_by_pid() -> dict[int, tuple[int, float]]:
    """Parent and seconds of every process; empty without /proc."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    used: dict[int, tuple[int, float]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # ended meanwhile
        # The name, in brackets, may contain anything; the fields after it are numbers.
        fields = text[text.rindex(")") + 2 :].split()
        ticks = sum(map(int, fields[11:15]))  # user and system time, and both of ended children
        used[int(stat.parent.name)] = (int(fields[1]), ticks / ticks_per_s)
    return used
