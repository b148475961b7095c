"""How far an archive lags behind its log: alike for the log's writer and for a reader."""

from typing import Any

from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.reading.log_source import LogView
from cordwood.quantities import Offset


def archive_row(
    status: ArchiveStatus, view: LogView, archived_up_to: Offset | None
) -> dict[str, Any]:
    """The archive of one partition as plain values. `lag_*` is what only the local disk has."""
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
