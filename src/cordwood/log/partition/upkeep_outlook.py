"""A log as retention and compaction see it: alike for its writer and for a reader beside it.

Both take a view of the log and make from it what the plans ask for. What only the writer knows
(what is settled, the newest time of a segment that still grows) is handed in.
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
from cordwood.storage.readable_segment import ReadableSegment


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
    """What retention would do to the log that `view` shows. `largest`: of a segment's times."""
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
        return now_ms  # deleted or replaced meanwhile: the next plan knows


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
    """The log that `view` shows as compaction sees it; see `LogSummary`.

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
    """A sealed segment as planning sees it; `end_offset` is where the next begins."""
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
