"""Upkeep: what the housekeeping does to a log in the background."""

import logging
from collections.abc import Callable

from cordwood.errors import CorruptSegmentError, DiskFullError, FormatError
from cordwood.log.partition.removal.deletion import Deletion
from cordwood.log.partition.removal.upkeep_outlook import plan_retention_of
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.view.log_archive import LogArchive
from cordwood.log.partition.writing.rolling import Rolling
from cordwood.log.rules.retention import RetentionPlan, Verdict
from cordwood.quantities import TimestampMs

logger = logging.getLogger(__name__)


class Upkeep:
    """Applies retention to one log and builds its key indexes."""

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        rolling: Rolling,
        deletion: Deletion,
        archive: LogArchive,
    ) -> None:
        self._parts = parts
        self._holder = holder
        self._rolling = rolling
        self._deletion = deletion
        self._archive = archive
        self._unindexable: set[int] = set()  # by id: segments that no key index can be built for

    # --- retention ---------------------------------------------------------------------------

    def plan_retention(self, now_ms: TimestampMs) -> RetentionPlan:
        """What retention would do now, segment by segment, with its reasons. Changes nothing."""
        return plan_retention_of(
            self._archive.view(),
            self._holder.config,
            topic=self._parts.topic,
            partition=self._parts.partition,
            now_ms=now_ms,
            archived_up_to=self._archive.archived_up_to,
            largest=lambda segment: segment.largest_timestamp[0],
        )

    def apply_retention(self, now_ms: TimestampMs) -> RetentionPlan:
        """Do what `plan_retention` says at `now_ms`; return the plan. Durable on return.

        Safe to repeat, and to interrupt anywhere: the start is on the disk before a file is
        removed, and the next run, or the next start, removes what lies below it.
        """
        plan = self.plan_retention(now_ms)
        if not self._archive.may_forget:
            self._drop_archived(plan)
            return plan
        start = plan.start_offset
        if plan.must_roll and not self._roll_for_deletion(plan):
            start = plan.segments[-1].base_offset
        if start > self._archive.view().start or self._deletion.is_start_unsaved:
            self._deletion.delete_before(start)
        if any(segment.verdict is Verdict.DROP_LOCAL for segment in plan.segments):
            self._deletion.drop_local_before(plan.local_start_offset)
        self._deletion.drop_deleted_segments()
        return plan

    def _drop_archived(self, plan: RetentionPlan) -> None:
        """Drop local copies of archived segments that are not kept, from the oldest on.

        For a replica that does not lead: what is deleted for good is up to the leader, which
        tells it with its start.
        """
        archived_up_to = self._archive.archived_up_to or 0
        start = self._holder.state.start
        for segment in plan.segments:
            if not segment.is_local or segment.next_offset <= start:
                continue
            is_kept = segment.verdict is Verdict.KEEP or segment.is_active
            if is_kept or segment.next_offset > archived_up_to:
                break
            start = segment.next_offset
        if start > self._holder.state.start:
            self._deletion.drop_local_before(start)
        self._deletion.drop_deleted_segments()

    def _roll_for_deletion(self, plan: RetentionPlan) -> bool:
        """Seal the active segment that `plan` gives up; False if it must wait.

        It must if records came since the plan was made, and on a full disk, where the older
        segments have to be removed first.
        """
        with self._holder.lock:
            self._holder.check_writable()
            state = self._holder.state
            if state.end != plan.start_offset or state.high_watermark != state.end:
                return False
            try:
                self._rolling.roll(self._parts.clock.now_ms())
            except DiskFullError:
                return False
        return True

    # --- key indexes -------------------------------------------------------------------------

    def index_keys(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Build the key indexes that are missing; return how many.

        Off the append path, one segment at a time. A segment that cannot be read whole gets none,
        and is read when a key is looked up.
        """
        built = 0
        if not self._holder.config.key_index:
            return built
        state = self._holder.state
        for segment in state.segments:
            is_unsealed = segment is state.segments.active or segment in state.unsynced.segments
            if is_unsealed or should_stop():
                break
            if id(segment) in self._unindexable or segment.indexes.key.is_usable(segment.size):
                continue
            try:
                segment.build_key_index()
                built += 1
            except FileNotFoundError:
                continue  # deleted or replaced meanwhile
            except (CorruptSegmentError, FormatError) as error:
                logger.warning("%s gets no key index: %s", segment.name, error)
                self._unindexable.add(id(segment))
            if segment not in list(self._holder.state.segments):
                segment.indexes.key.remove()
        return built
