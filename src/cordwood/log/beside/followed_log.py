"""What logs share that are read without their writer: from its files, or from an archive."""

import time
from abc import abstractmethod
from typing import ClassVar

from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import Offset


class FollowedLog(LogReader):
    """One partition that someone else writes. It ends where reading must: at the high watermark.

    Waiting is looking again, ever less often: the pause starts at `_PAUSE_S_MIN` and grows by
    `_PAUSE_GROWTH` up to `_PAUSE_S_MAX`.
    """

    _PAUSE_S_MIN: ClassVar[float]
    _PAUSE_S_MAX: ClassVar[float]
    _PAUSE_GROWTH: ClassVar[float]

    def __init__(self, topic: str, partition: int, *, allows_gaps: bool) -> None:
        self.topic = topic
        self.partition = partition
        self._allows_gaps = allows_gaps
        self._is_closed = False

    @property
    def end_offset(self) -> Offset:
        """The first offset that cannot be read yet: what lies behind is the writer's affair."""
        return self.view().high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.view().high_watermark

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def allows_gaps(self) -> bool:
        return self._allows_gaps

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        """By looking again until the time is up: no lock, no message."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = self._PAUSE_S_MIN
        while not self._is_closed:
            if self.view().high_watermark > offset:
                return True
            left_s = pause_s if deadline is None else min(pause_s, deadline - time.monotonic())
            if left_s <= 0:
                return False
            time.sleep(left_s)
            pause_s = min(pause_s * self._PAUSE_GROWTH, self._PAUSE_S_MAX)
            self._look_again()
        return False

    @abstractmethod
    def _look_again(self) -> None:
        """Fetch what a new view needs, where `view` alone does not."""
