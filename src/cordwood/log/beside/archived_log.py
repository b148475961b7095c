"""A log read from its archive alone: no directory, no writer, only what was archived."""

from cordwood.log.beside.followed_log import FollowedLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivedState
from cordwood.log.reading.log_reader import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.storage.segment import Segment


class ArchivedLog(FollowedLog):
    """One partition, as far as it is archived. Any thread may use it."""

    _PAUSE_S_MIN = 1.0  # archives change slowly, and each look reads the manifest
    _PAUSE_S_MAX = 30.0
    _PAUSE_GROWTH = 2.0

    def __init__(
        self, topic: str, partition: int, source: ArchivedSegments, *, allows_gaps: bool
    ) -> None:
        super().__init__(topic, partition, allows_gaps=allows_gaps)
        self._source = source
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

    def _bound(self, segment: Segment) -> int:
        return segment.size

    def _refresh(self) -> None:
        self._source.refresh()

    def _look_again(self) -> None:
        self._source.refresh()

    def refresh(self) -> None:
        """Take in what was archived since."""
        self._source.refresh()

    def close(self) -> None:
        self._is_closed = True
