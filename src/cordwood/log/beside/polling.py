"""Waiting for a log that another process writes: by looking again, less and less often."""

import time

from cordwood.errors import LogClosedError
from cordwood.log.reading.log_source import LogSource
from cordwood.quantities import Offset
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The pauses between two looks: from `pause_s_min`, growing by `growth`, to `pause_s_max`.

    With `refreshes` each look calls `LogSource.refresh`, because a new view alone shows no news.
    """

    pause_s_min: float
    pause_s_max: float
    growth: float
    refreshes: bool

    def wait_beyond(self, source: LogSource, offset: Offset, timeout_s: float | None) -> bool:
        """Wait as `LogSource.wait_beyond` promises: no lock, no message, only looking."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = self.pause_s_min
        while not source.is_closed:
            try:
                if source.high_watermark > offset:
                    return True
            except LogClosedError:
                break  # closed by another thread
            left_s = pause_s if deadline is None else min(pause_s, deadline - time.monotonic())
            if left_s <= 0:
                return False
            time.sleep(left_s)
            pause_s = min(pause_s * self.growth, self.pause_s_max)
            if self.refreshes:
                source.refresh()
        return False
