"""A log read from its archive alone: no directory, no writer, only archived segments."""

from typing import Final

from cordwood.errors import LogClosedError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.beside.polling import Polling
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivedState
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import INT64_MAX, Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment

# Archives change slowly, and each look reads the manifest.
_POLLING: Final = Polling(pause_s_min=1.0, pause_s_max=30.0, growth=2.0, refreshes=True)


class ArchivedLog(LogReader):
    """One partition, as far as it is archived. Any thread may use it."""

    def __init__(
        self, topic: str, partition: int, archived: ArchivedSegments, *, allows_gaps: bool
    ) -> None:
        self._archive = _ArchiveSource(f"{topic}-{partition}", archived, allows_gaps=allows_gaps)
        super().__init__(topic, partition, self._archive)

    def refresh(self) -> None:
        """Take in the segments that were archived since."""
        self._archive.refresh()

    def close(self) -> None:
        self._archive.is_closed = True


class _ArchiveSource:
    """The archive of one partition as a `LogSource`."""

    def __init__(self, name: str, archived: ArchivedSegments, *, allows_gaps: bool) -> None:
        self.name = name
        self.allows_gaps = allows_gaps
        self.is_closed = False
        self.gaps_below = Offset(INT64_MAX if allows_gaps else 0)
        self.holes = ()
        self.compacted_up_to: Offset | None = None  # the manifest does not say
        self._archived = archived
        self._seen: tuple[ArchivedState, LogView] | None = None

    def view(self) -> LogView:
        if self.is_closed:
            raise LogClosedError(self.name)
        return self._view()

    def _view(self) -> LogView:
        """Raises `OSError` if the manifest was never read and cannot be read now."""
        state = self._archived.state()
        seen = self._seen
        if seen is None or seen[0] is not state:
            segments = SegmentList(state.segments)
            view = LogView(segments=segments, start=state.start, high_watermark=state.end)
            self._seen = seen = (state, view)
        return seen[1]

    @property
    def local_start_offset(self) -> Offset:
        return self.view().high_watermark  # nothing is local

    @property
    def high_watermark(self) -> Offset:
        return self.view().high_watermark

    @property
    def end_offset(self) -> Offset:
        return self.view().high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.view().high_watermark  # only what was decided is archived

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        return _POLLING.wait_beyond(self, offset, timeout_s)

    def refresh(self) -> None:
        self._archived.refresh()

    def replacements(self, *, look: bool) -> int:
        return 0  # what is archived is not compacted here

    def readable_bytes(self, segment: ReadableSegment) -> int:
        return segment.size

    def largest_timestamp(self, segment: ReadableSegment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def key_memory(self, view: LogView) -> int | None:
        return None

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        return self.view().segments.aborted_transactions(start, stop)
