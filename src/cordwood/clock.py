"""The only place that asks what time it is.

Wall time dates records and decides retention; it may jump either way. Durations are taken
from the monotonic clock, which may not. Tests pass a clock they move by hand.
"""

import time
from typing import Protocol

from cordwood.quantities import TimestampMs


class Clock(Protocol):
    """What time it is, and how long something took."""

    def now_ms(self) -> TimestampMs:
        """Wall time in milliseconds since 1970, as records carry it."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()
