"""The segments of a log as users see them."""

from cordwood.log.reading.log_source import LogSource
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One segment. A timestamp is None if no record of the segment has one."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    state: str  # active, sealed, compacted, archived
    created_ms: TimestampMs
    first_timestamp_ms: TimestampMs | None
    last_timestamp_ms: TimestampMs | None
    path: str


def describe_segments(source: LogSource) -> list[SegmentInfo]:
    """Every segment of the log, oldest first."""
    segments = source.view().segments
    return [_describe(source, segments, index) for index in range(len(segments))]


def _describe(source: LogSource, segments: SegmentList, index: int) -> SegmentInfo:
    segment = segments[index]
    last, _ = segment.largest_timestamp
    return SegmentInfo(
        base_offset=segment.base_offset,
        next_offset=segments.end_of(index),
        size_bytes=segment.size,
        state=_state(source, segments, index),
        created_ms=segment.created_ms if segment.created_ms >= 0 else segment.modified_ms(),
        first_timestamp_ms=segment.first_timestamp(),
        last_timestamp_ms=None if last == NO_TIMESTAMP else last,
        path=segment.name,
    )


def _state(source: LogSource, segments: SegmentList, index: int) -> str:
    if segments[index].is_archived:
        return "archived"
    if index == len(segments) - 1:
        return "active"
    compacted = source.compacted_up_to
    is_compacted = compacted is not None and segments.end_of(index) <= compacted
    return "compacted" if is_compacted else "sealed"
