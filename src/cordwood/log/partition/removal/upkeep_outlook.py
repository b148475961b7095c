"""Summaries of a log for the plans of retention and compaction.

The writer and a reader beside it make them from a view of the log, in the same way. Facts that
only the writer has (what is settled, the newest time of a growing segment) are arguments.
"""

from collections.abc import Callable

from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.format.file_names import FileKind
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.compaction_plan import LogSummary, SegmentSummary
from cordwood.log.rules.retention import RetentionPlan, SegmentHistory, plan_retention
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import INT64_MAX, NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.segment_parts.readable_segment import ReadableSegment


def plan_retention_of(
    view: LogView,
    config: TopicConfig,
    *,
    topic: str,
    partition: int,
    now_ms: TimestampMs,
    archived_up_to: Offset | None,
    largest: Callable[[ReadableSegment], TimestampMs],
) -> RetentionPlan:
    """The retention plan for `view`. `largest` gives the largest timestamp of a segment."""
    histories = [
        SegmentHistory(
            base_offset=segment.base_offset,
            next_offset=view.segments.end_of(index),
            size=segment.size,
            largest_timestamp=largest(segment),
            modified_ms=_modified_ms(segment, now_ms),
            is_active=segment is view.segments.active,
            is_local=not segment.is_archived,
        )
        for index, segment in enumerate(view.segments)
    ]
    return plan_retention(
        histories,
        config,
        start_offset=view.start,
        high_watermark=view.high_watermark,
        now_ms=now_ms,
        archived_up_to=archived_up_to,
        topic=topic,
        partition=partition,
    )


def _modified_ms(segment: ReadableSegment, now_ms: TimestampMs) -> TimestampMs:
    try:
        return segment.modified_ms()
    except FileNotFoundError:
        return now_ms  # deleted or replaced meanwhile; the next plan sees that


def summarize_log(
    view: LogView,
    config: TopicConfig,
    *,
    fs: FileSystem,
    topic: str,
    partition: int,
    end_offset: Offset,
    settled: Offset,
    checkpoint: Offset | None,
    is_rolled: bool = False,
) -> LogSummary:
    """The summary of `view` for a compaction plan; see `LogSummary`.

    With `is_rolled` as it will be once its active segment is sealed.
    """
    segments = view.segments
    sealed = [
        (index, segment)
        for index, segment in enumerate(segments)
        if segment is not segments.active or is_rolled
    ]
    return LogSummary(
        topic=topic,
        partition=partition,
        start_offset=view.start,
        end_offset=end_offset,
        settled=settled,
        active_base_offset=end_offset if is_rolled else segments.active.base_offset,
        checkpoint=checkpoint,
        segments=tuple(
            summarize_segment(fs, segment, segments.end_of(index), config, with_indexes=False)
            for index, segment in sealed
        ),
    )


def summarize_segment(
    fs: FileSystem,
    segment: ReadableSegment,
    end_offset: Offset,
    config: TopicConfig,
    *,
    with_indexes: bool,
) -> SegmentSummary:
    """The summary of a sealed segment; `end_offset` is where the next one begins."""
    return SegmentSummary(
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size=segment.size,
        index_bytes=_size(fs, segment.path(FileKind.INDEX)) if with_indexes else 0,
        time_index_bytes=_size(fs, segment.path(FileKind.TIMEINDEX)) if with_indexes else 0,
        largest_timestamp=segment.largest_timestamp[0],
        first_timestamp=(
            NO_TIMESTAMP
            if config.max_compaction_lag_ms == INT64_MAX or not segment.size
            else decode_batch_header(segment.file().read_at(0, HEADER_SIZE)).max_timestamp
        ),
    )


def _size(fs: FileSystem, path: str) -> int:
    try:
        return fs.size(path)
    except FileNotFoundError:
        return 0
