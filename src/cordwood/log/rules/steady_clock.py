"""Wall time without jumps, for decisions that cannot be undone.

People, time servers and machines that wake up set the wall clock, sometimes wrongly and by years.
Data deleted at that moment does not come back when the clock is corrected. So time here follows
the monotonic clock, and the wall clock is trusted only while both run at the same pace. A jump in
either direction is trusted once it has lasted an hour: then it is no accident, and waiting longer
would delay deletion forever.
"""

import threading
from typing import Final

from cordwood.clock import Clock
from cordwood.quantities import TimestampMs

DRIFT_MS_MAX: Final = 60_000  # between two readings of the clocks; more is a jump
DOUBT_S: Final = 3600.0


class SteadyClock:
    """Wall time without jumps. For any thread. Call it often: each call checks the clocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._anchor_ms: float = clock.now_ms()
        self._anchor_s = clock.monotonic()
        self._jump: tuple[float, float] | None = None  # size in ms, and when it was seen first

    def now_ms(self) -> TimestampMs:
        """The wall time; after a jump, the time as if the clock had not jumped."""
        with self._lock:
            wall_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
            expected_ms = self._anchor_ms + (now_s - self._anchor_s) * 1000
            ahead_ms = wall_ms - expected_ms
            if abs(ahead_ms) <= DRIFT_MS_MAX or self._has_lasted(ahead_ms, now_s):
                self._anchor_ms, self._anchor_s, self._jump = wall_ms, now_s, None
                return wall_ms
            return TimestampMs(int(expected_ms))

    def monotonic(self) -> float:
        return self._clock.monotonic()

    @property
    def doubted_ms(self) -> int:
        """The size of a jump that is not trusted yet; 0 if there is none."""
        jump = self._jump
        return 0 if jump is None else int(jump[0])

    def _has_lasted(self, ahead_ms: float, now_s: float) -> bool:
        """Whether a jump of about this size has lasted long enough to be trusted."""
        if self._jump is None or abs(ahead_ms - self._jump[0]) > DRIFT_MS_MAX:
            self._jump = (ahead_ms, now_s)
            return False
        return now_s - self._jump[1] >= DOUBT_S
