"""Numbers, times and sizes as people read them. Pure."""

from datetime import UTC, datetime
from typing import Final

from cordwood.quantities import GIB, KIB, MIB

NOTHING: Final = "–"

_SIZES: Final = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DURATIONS: Final = (
    (86_400_000, "day", "d"),
    (3_600_000, "hour", "h"),
    (60_000, "minute", "min"),
    (1_000, "second", "s"),
)
_DATE_MS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999


def size_in_words(size: float | None) -> str:
    """``1.5 MiB``"""
    if size is None:
        return NOTHING
    for unit, name in _SIZES:
        if abs(size) >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


def count_in_words(count: float | None) -> str:
    """``1,234,567``"""
    return NOTHING if count is None else f"{count:,.0f}"


def rate_in_words(rate: float | None) -> str:
    """``12.5``, ``1,250``"""
    if rate is None:
        return NOTHING
    if rate == 0:
        return "0"
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def duration_in_words(duration_ms: float | None) -> str:
    """``3 d 4 h``, ``250 ms``: at most two units"""
    if duration_ms is None:
        return NOTHING
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    for at, (unit, _, short) in enumerate(_DURATIONS):
        if duration_ms >= unit:
            whole = int(duration_ms // unit)
            if at + 1 == len(_DURATIONS):
                return f"{whole} {short}"
            smaller, _, smaller_short = _DURATIONS[at + 1]
            rest = int(duration_ms % unit // smaller)
            return f"{whole} {short} {rest} {smaller_short}" if rest else f"{whole} {short}"
    raise AssertionError("not reached")


def moment_in_words(time_ms: int | None) -> str:
    """``2026-11-17 05:40:12 UTC``; a number if it is outside of the calendar"""
    if time_ms is None:
        return NOTHING
    if not 0 <= time_ms <= _DATE_MS_MAX:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment_as_iso(time_ms: int | None) -> str:
    """For the attribute `datetime`; empty if it is outside of the calendar."""
    if time_ms is None or not 0 <= time_ms <= _DATE_MS_MAX:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_from_now(time_ms: int | None, now_ms: int) -> str:
    """``5 minutes ago``, ``in 3 days``"""
    if time_ms is None:
        return NOTHING
    apart = abs(time_ms - now_ms)
    for unit, name, _ in _DURATIONS:
        if apart >= unit:
            count = int(apart // unit)
            words = f"{count} {name}{'s' * (count != 1)}"
            return f"in {words}" if time_ms > now_ms else f"{words} ago"
    return "now"


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2,000 records``"""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
