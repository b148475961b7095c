"""A log read from its archive alone: no directory, no writer, only what was archived."""

import time
from typing import Final

from varve.log.archived_segments import ArchivedSegments, ArchivedState
from varve.log.log_reader import LogReader, LogView
from varve.log.segment_list import SegmentList
from varve.quantities import Offset
from varve.storage.segment import Segment

_POLL_S_MIN: Final = 1.0
_POLL_S_MAX: Final = 30.0


class ArchivedLog(LogReader):
    """One partition, as far as it is archived. Any thread may use it."""

    def __init__(
        self, topic: str, partition: int, source: ArchivedSegments, *, allows_gaps: bool
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._source = source
        self._allows_gaps = allows_gaps
        self._is_closed = False
        self._seen: tuple[ArchivedState, LogView] | None = None

    def view(self) -> LogView:
        """Raises `OSError` when the manifest was never read and cannot be."""
        state = self._source.state()
        seen = self._seen
        if seen is None or seen[0] is not state:
            segments = SegmentList(state.segments)
            view = LogView(segments=segments, start=state.start, high_watermark=state.end)
            self._seen = seen = (state, view)
        return seen[1]

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not archived yet."""
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

    def _bound(self, segment: Segment) -> int:
        return segment.size

    def _refresh(self) -> None:
        self._source.refresh()

    def refresh(self) -> None:
        """Take in what was archived since."""
        self._source.refresh()

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        """By reading the manifest again, ever less often: archives change slowly."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _POLL_S_MIN
        while not self._is_closed:
            if self.view().high_watermark > offset:
                return True
            left_s = pause_s if deadline is None else min(pause_s, deadline - time.monotonic())
            if left_s <= 0:
                return False
            time.sleep(left_s)
            pause_s = min(pause_s * 2, _POLL_S_MAX)
            self._source.refresh()
        return False

    def close(self) -> None:
        self._is_closed = True
