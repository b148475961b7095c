"""Wall time without jumps, for decisions that cannot be undone.

People, time servers and machines that wake up set the wall clock, sometimes wrongly and by years.
Data deleted at that moment does not come back when the clock is corrected. So time here follows
the monotonic clock, and the wall clock is trusted only while both run at the same pace. A jump in
either direction is trusted once it has lasted an hour: then it is no accident, and waiting longer
would delay deletion forever.

The monotonic clock does not run on while a store is closed. So the time is saved, and at opening
a wall clock that is more than a day ahead of it is doubted for an hour as well: the store was
closed for long, or the clock is wrong. The hour continues over openings. Time in which the store
was closed counts for at most half of it at each opening, so that a store that is only ever open
for seconds trusts the clock at the third opening. A clock that is behind is trusted at once:
it deletes less.
"""

import threading
from typing import Final

from cordwood.clock import Clock
from cordwood.quantities import TimestampMs
from cordwood.value_class import dataclass

DRIFT_MS_MAX: Final = 60_000  # between two readings of the clocks; more is a jump
DOUBT_S: Final = 3600.0
CLOSED_MS_MAX: Final = 24 * 3_600_000  # between two openings; more is doubted
CLOSED_CREDIT_MS_MAX: Final = 1_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyTime:
    """A reading of the clock, to be continued by the next opening of the store.

    now_ms      the time without jumps
    wall_ms     what the wall clock said; the same, unless it is doubted
    doubted_ms  for how long it has been doubted
    """

    now_ms: TimestampMs
    wall_ms: TimestampMs
    doubted_ms: int

    @property
    def is_doubted(self) -> bool:
        return self.wall_ms != self.now_ms


class SteadyClock:
    """Wall time without jumps. For any thread. Call it often: each call checks the clocks."""

    def __init__(self, clock: Clock, last: SteadyTime | None = None) -> None:
        """`last` was read when the store was open before; None: the wall clock is trusted."""
        self._clock = clock
        self._lock = threading.Lock()
        wall_ms = clock.now_ms()
        self._anchor_ms: float = wall_ms
        self._anchor_s = clock.monotonic()
        self._jump: tuple[float, float] | None = None  # size in ms, and when it was seen first
        if last is not None and wall_ms - last.now_ms > CLOSED_MS_MAX:
            self._anchor_ms = last.now_ms
            doubted_ms = _doubted_before_ms(last, wall_ms)
            self._jump = (wall_ms - last.now_ms, self._anchor_s - doubted_ms / 1000)

    def now_ms(self) -> TimestampMs:
        """The wall time; after a jump, the time as if the clock had not jumped."""
        return self.read().now_ms

    def read(self) -> SteadyTime:
        """The time, and how far the wall clock is trusted."""
        with self._lock:
            wall_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
            expected_ms = self._anchor_ms + (now_s - self._anchor_s) * 1000
            ahead_ms = wall_ms - expected_ms
            if abs(ahead_ms) <= DRIFT_MS_MAX or self._has_lasted(ahead_ms, now_s):
                self._anchor_ms, self._anchor_s, self._jump = wall_ms, now_s, None
                return SteadyTime(now_ms=wall_ms, wall_ms=wall_ms, doubted_ms=0)
            doubted_s = 0.0 if self._jump is None else now_s - self._jump[1]
            return SteadyTime(
                now_ms=TimestampMs(int(expected_ms)),
                wall_ms=wall_ms,
                doubted_ms=int(doubted_s * 1000),
            )

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


def _doubted_before_ms(last: SteadyTime, wall_ms: TimestampMs) -> int:
    """For how long a clock that is ahead at opening was doubted before; 0 after another jump.

    A clock that went back has jumped. So has one that went on by more than the doubted jump: at
    each restart of the hour the jump has doubled, so this cannot repeat for ever.
    """
    jump_ms, step_ms = last.wall_ms - last.now_ms, wall_ms - last.wall_ms
    if not -DRIFT_MS_MAX <= step_ms <= jump_ms:
        return 0
    return last.doubted_ms + min(max(step_ms, 0), CLOSED_CREDIT_MS_MAX)
