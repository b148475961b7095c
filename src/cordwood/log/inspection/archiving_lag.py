"""How far an archive lags behind its log. The same for the log's writer and for readers."""

from typing import Any

from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs


def overdue_ms(
    view: LogView, config: TopicConfig, archived_up_to: Offset | None, now_ms: TimestampMs
) -> int:
    """How long ago the oldest sealed segment that is not archived became due; 0 if none is."""
    end = max(archived_up_to or 0, view.start)
    for index, segment in enumerate(view.segments):
        if segment is view.segments.active:
            break
        if not segment.is_archived and view.segments.end_of(index) > end and segment.size:
            return max(now_ms - segment.modified_ms() - (config.archive_after_ms or 0), 0)
    return 0


def archive_row(
    status: ArchiveStatus, view: LogView, archived_up_to: Offset | None
) -> dict[str, Any]:
    """The archive of one partition as plain values. `lag_*` counts what only the disk has."""
    end = max(archived_up_to or 0, view.start)
    behind = [
        segment
        for index, segment in enumerate(view.segments)
        if not segment.is_archived and view.segments.end_of(index) > end and segment.size
    ]
    return {
        "topic": status.topic,
        "partition": status.partition,
        "url": status.url,
        "start_offset": int(status.start_offset),
        "archived_up_to": int(status.archived_up_to),
        "end_offset": int(view.high_watermark),
        "segments": status.segment_count,
        "bytes": status.size_bytes,
        "lag_records": max(int(view.high_watermark - end), 0),
        "lag_bytes": sum(segment.size for segment in behind),
        "lag_segments": sum(1 for segment in behind if segment is not view.segments.active),
        "copied_segments": status.copied_segments,
        "copied_bytes": status.copied_bytes,
        "last_success_ms": status.last_success_ms,
        "last_error": status.last_error,
    }
