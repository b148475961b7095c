"""Moments and durations in the sentences that explain a plan."""

from datetime import UTC, datetime
from typing import Final

from cordwood.quantities import TimestampMs

_DATE_MS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999


def in_words(timestamp_ms: TimestampMs) -> str:
    """A moment as a date in UTC; as a number if it is outside the calendar."""
    if not 0 <= timestamp_ms <= _DATE_MS_MAX:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration_in_words(duration_ms: int) -> str:
    """A duration in the largest unit of which it has at least two."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if duration_ms >= 2 * size_ms:
            return f"{duration_ms // size_ms} {unit}"
    return f"{duration_ms} ms"
