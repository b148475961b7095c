"""The segments of a log as users see them."""

from dataclasses import dataclass

from cordwood.log.reading.log_source import LogSource
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.segment import Segment


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
    segment, end = segments[index], segments.end_of(index)
    last, _ = segment.largest_timestamp
    return SegmentInfo(
        base_offset=segment.base_offset,
        next_offset=end,
        size_bytes=source.readable_bytes(segment),
        state=_state(segment, end, segments.active, source.compacted_up_to),
        created_ms=segment.created_ms if segment.created_ms >= 0 else segment.modified_ms(),
        first_timestamp_ms=segment.first_timestamp(),
        last_timestamp_ms=None if last == NO_TIMESTAMP else last,
        path=segment.name,
    )


def _state(segment: Segment, end: Offset, active: Segment, compacted_up_to: Offset | None) -> str:
    if segment.is_archived:
        return "archived"
    if segment is active:
        return "active"
    return "compacted" if compacted_up_to is not None and end <= compacted_up_to else "sealed"
