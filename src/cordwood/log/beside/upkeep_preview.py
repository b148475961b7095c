"""What the owner of a log would do to it: its next retention and its next compaction.

A process that only reads the files makes the same plans as the owner; see `upkeep_outlook`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cordwood.log.beside.followed_files import LOOKS_MAX, FollowedFiles
from cordwood.log.beside.producer_listing import read_producers
from cordwood.log.partition.removal.upkeep_outlook import plan_retention_of, summarize_log
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.compaction_plan import CompactionPlan, plan_compaction
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.storage.segment_parts.segment_times import find_largest

if TYPE_CHECKING:
    from cordwood.log.compaction.compaction_forecast import CompactionForecast

Plan = TypeVar("Plan")


class UpkeepPreview:
    """Plans of the owner of one log. Changes nothing. Any thread may use it."""

    def __init__(self, topic: str, partition: int, files: FollowedFiles) -> None:
        self._topic = topic
        self._partition = partition
        self._files = files

    def plan_retention(self, config: TopicConfig, now_ms: TimestampMs) -> RetentionPlan:
        """What retention would do now."""

        def plan() -> RetentionPlan:
            view = self._files.view()
            return plan_retention_of(
                view,
                config,
                topic=self._topic,
                partition=self._partition,
                now_ms=now_ms,
                archived_up_to=self._files.archived_up_to,
                largest=lambda segment: _largest_of(view, segment),
            )

        return self._retried(plan)

    def plan_compaction(
        self,
        config: TopicConfig,
        now_ms: TimestampMs,
        *,
        cleaned_up_to: Offset | None,
        force: bool = False,
    ) -> CompactionPlan:
        """What compaction would do now. With `force` the owner rolls the log first.

        `cleaned_up_to` is the cleaner's checkpoint. Records that are not synced yet count as
        settled: the owner syncs them before it compacts.
        """

        def plan() -> CompactionPlan:
            view = self._files.local_view()
            summary = summarize_log(
                view,
                config,
                fs=self._files.fs,
                topic=self._topic,
                partition=self._partition,
                end_offset=view.high_watermark,
                settled=self._files.last_stable_offset,
                checkpoint=cleaned_up_to,
                is_rolled=force,
            )
            return plan_compaction(summary, config, now_ms=now_ms, force=force)

        return self._retried(plan)

    def forecast_compaction(
        self,
        config: TopicConfig,
        plan: CompactionPlan,
        now_ms: TimestampMs,
        *,
        pace: Callable[[int], None],
    ) -> "CompactionForecast":
        """What `plan` would leave of the log. Reads all of it; `pace` gets the bytes read."""
        # These modules take a while to load, and few readers ask for a forecast.
        from cordwood.log.compaction.compaction_forecast import forecast_compaction
        from cordwood.log.partition.removal.segment_replacement import CompactionSource

        def forecast() -> "CompactionForecast":
            files, view = self._files, self._files.local_view()
            producers = read_producers(files.fs, files.directory, view, now_ms)
            last_offsets, marker_epochs = producers.last_batches(now_ms)
            source = CompactionSource(
                name=files.name,
                directory=files.directory,
                fs=files.fs,
                config=config,
                limits=files.limits,
                segments=view.segments,
                start_offset=view.start,
                cut_count=0,
                last_offsets=last_offsets,
                marker_epochs=marker_epochs,
            )
            return forecast_compaction(source, plan, now_ms=now_ms, pace=pace)

        return self._retried(forecast)

    def _retried(self, plan: Callable[[], Plan]) -> Plan:
        """`plan()`, called again if the owner deletes or replaces a file meanwhile."""
        for _ in range(LOOKS_MAX):
            try:
                return plan()
            except FileNotFoundError:
                self._files.refresh()
        return plan()


def _largest_of(view: LogView, segment: ReadableSegment) -> TimestampMs:
    """The newest timestamp of a segment. The last one grows, so it is looked up each time."""
    if segment is view.segments.active:
        return find_largest(segment)[0]
    return segment.largest_timestamp[0]
