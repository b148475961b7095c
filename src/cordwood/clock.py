"""The only place that reads the clock.

Wall time dates records and decides retention; it may jump. Durations are measured with the
monotonic clock, which never goes back. Tests pass a clock that they move by hand.
"""

import time
from typing import Protocol

from cordwood.quantities import TimestampMs


class Clock(Protocol):
    """The wall clock and the monotonic clock."""

    def now_ms(self) -> TimestampMs:
        """Wall time in milliseconds since 1970, as in records."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    monotonic = staticmethod(time.monotonic)  # without a call in between: every sync asks for it
