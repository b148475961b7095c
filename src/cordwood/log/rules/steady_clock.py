"""Time for decisions that cannot be undone, which a jumping wall clock does not fool.

The wall clock is set by people, by time servers and by machines waking up, sometimes wrongly
and by years. What is deleted in that moment does not come back when the clock is put right. So
time goes on here by the monotonic clock, and the wall clock is believed only as long as it runs
along with it. A jump, either way, is believed once it has lasted an hour: then it is not a
mishap, and nothing stays behind for ever.
"""

import threading
from typing import Final

from cordwood.clock import Clock
from cordwood.quantities import TimestampMs

DRIFT_MS_MAX: Final = 60_000  # between two looks at the clocks; more is a jump
DOUBT_S: Final = 3600.0


class SteadyClock:
    """Wall time without its jumps. Any thread may ask; ask often: each answer is a check."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._anchor_ms: float = clock.now_ms()
        self._anchor_s = clock.monotonic()
        self._jump: tuple[float, float] | None = None  # how far in ms, and since when

    def now_ms(self) -> TimestampMs:
        """What time it is; on a jump, what it would be had the clock not jumped."""
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
        """How far the wall clock has jumped without being believed yet; 0 when it runs along."""
        jump = self._jump
        return 0 if jump is None else int(jump[0])

    def _has_lasted(self, ahead_ms: float, now_s: float) -> bool:
        """Whether the wall clock has run along since a jump of about this size for long enough."""
        if self._jump is None or abs(ahead_ms - self._jump[0]) > DRIFT_MS_MAX:
            self._jump = (ahead_ms, now_s)
            return False
        return now_s - self._jump[1] >= DOUBT_S
