"""The owner's side of requested upkeep: rolling, compaction, archiving, copies, restores."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from cordwood.errors import LogClosedError, LogError, UnknownTopicError
from cordwood.log.compaction.cleaner import LogCleaning
from cordwood.log.compaction.compaction_run import CompactionOutcome, CompactionResult
from cordwood.log.inbox.store_change import DONE, ChangeAnswer
from cordwood.log.inbox.topic_change_service import ReadableTopics, same_topic
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
    UpkeepChange,
)
from cordwood.log.inspection.archiving_lag import archive_row
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.work_progress import WorkDone, WorkProgress
from cordwood.log.topics.topic import Topic

logger = logging.getLogger(__name__)

_ROUNDS_MAX = 1000  # of a compaction whose keys do not fit into the map at once


class CleanerStatus(Protocol):
    def status(self) -> list[LogCleaning]: ...


class FinishedCopy(Protocol):
    """A finished copy of a store; see `StoreSnapshot`."""

    @property
    def path(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def linked_bytes(self) -> int: ...
    @property
    def copied_bytes(self) -> int: ...


class MaintainedStore(ReadableTopics, Protocol):
    """A store that can be maintained on request; see `Store`."""

    @property
    def is_closed(self) -> bool: ...
    @property
    def cleaner(self) -> CleanerStatus: ...
    def topics(self, *, include_internal: bool = False) -> list[str]: ...
    def explain_compaction(self, topic: str, *, force: bool = False) -> list[CompactionPlan]: ...
    def compact(
        self, topic: str, *, force: bool = False, partitions: Sequence[int] | None = None
    ) -> list[CompactionResult]: ...
    def archive_now(self, topics: Sequence[str] | None = None) -> list[ArchiveStatus]: ...
    def archive_status(self) -> list[ArchiveStatus]: ...
    def snapshot(
        self,
        path: str | os.PathLike[str],
        *,
        progress: WorkProgress | None = None,
        directory_id: UUID | None = None,
        include_security: bool = False,
    ) -> FinishedCopy: ...
    def restore_topic(
        self,
        name: str,
        url: str,
        *,
        to_timestamp_ms: int | None = None,
        topic_id: UUID | None = None,
        new_name: str | None = None,
        config: Mapping[str, object] | None = None,
        new_id: UUID | None = None,
        take_over: bool = False,
        progress: WorkProgress | None = None,
    ) -> Topic[PartitionLog]: ...


class UpkeepChangeService:
    """Runs upkeep in one store. For the thread that serves the inbox and those of long changes.

    Work that ends early because the store is closing raises `LogClosedError`; the next owner
    then does it.
    """

    def __init__(self, store: MaintainedStore) -> None:
        self._store = store

    def make(self, change: UpkeepChange, progress: WorkProgress, made_id: UUID) -> ChangeAnswer:
        """Make the change. A copy or a renamed topic gets `made_id`: it tells who made it."""
        match change:
            case RollTopic():
                facts = self._roll(change)
            case CompactTopic():
                facts = self._compact(change, progress)
            case ArchiveTopics():
                facts = self._archive(change, progress)
            case SnapshotStore():
                facts = self._snapshot(change, progress, made_id)
            case RestoreTopic():
                facts = self._restore(change, progress, made_id)
        return ChangeAnswer(outcome=DONE, facts=facts)

    def _check_running(self) -> None:
        if self._store.is_closed:
            raise LogClosedError("the store")

    # --- rolling and compacting --------------------------------------------------------------

    def _roll(self, change: RollTopic) -> dict[str, Any]:
        topic = same_topic(self._store, change.topic, change.topic_id)
        logs = _chosen(topic, change.partitions)
        rows = []
        for log in logs:
            before = log.state.segments.active
            base_offset = log.roll()
            log.syncing.sync_pending()
            is_rolled = base_offset != before.base_offset
            rows.append(
                {
                    "partition": log.partition,
                    "is_rolled": is_rolled,
                    "sealed_offset": int(before.base_offset) if is_rolled else None,
                    "sealed_bytes": before.size if is_rolled else 0,
                    "records": int(base_offset - before.base_offset),
                    "active_offset": int(base_offset),
                }
            )
        logger.info("rolled topic %s as requested", change.topic)
        return {"partitions": rows}

    def _compact(self, change: CompactTopic, progress: WorkProgress) -> dict[str, Any]:
        topic = same_topic(self._store, change.topic, change.topic_id)
        if not topic.config.is_compacted:
            raise LogError(
                f"topic {change.topic} is not compacted: its cleanup.policy is "
                f"{','.join(topic.config.cleanup_policy)}; set cleanup.policy=compact first"
            )
        logs = _chosen(topic, change.partitions)
        numbers = [log.partition for log in logs]
        sizes = {log.partition: log.state.segments.size for log in logs}
        progress.look = lambda: self._compacted_so_far(change.topic, sum(sizes.values()))
        results: dict[int, list[CompactionResult]] = {number: [] for number in numbers}
        again, force = numbers, change.force
        for _ in range(_ROUNDS_MAX):
            done = self._store.compact(change.topic, force=force, partitions=again)
            self._check_running()
            for result in done:
                results[result.partition].append(result)
            again = [r.partition for r in done if r.outcome is CompactionOutcome.MAP_FULL]
            if not again:
                break
            force = True  # finish what was begun, however little is left
        logger.info("compacted topic %s as requested", change.topic)
        explained = self._store.explain_compaction(change.topic, force=change.force)
        plans = {plan.partition: plan for plan in explained}
        return {
            "partitions": [
                _compaction_row(number, sizes[number], results[number], plans[number])
                for number in numbers
            ]
        }

    def _compacted_so_far(self, topic: str, size: int) -> WorkDone:
        """The progress of the compactions that run now, in bytes of log."""
        running = [s for s in self._store.cleaner.status() if s.topic == topic and s.is_running]
        if not running:
            return WorkDone(0, size)
        return WorkDone(int(size * sum(s.progress or 0.0 for s in running) / len(running)), size)

    # --- archive and copies ------------------------------------------------------------------

    def _archive(self, change: ArchiveTopics, progress: WorkProgress) -> dict[str, Any]:
        store = self._store
        for name in change.topics or ():
            if store.topic(name).config.archive_url is None:
                raise LogError(f"topic {name} has no archive; set its archive.url first")
        names = [n for n in store.topics() if store.topic(n).config.archive_url is not None]
        if not names:
            raise LogError("no topic has an archive; set archive.url of a topic first")
        before = {(s.topic, s.partition): s for s in store.archive_status()}
        copied = sum(s.copied_bytes for s in before.values())
        progress.look = lambda: WorkDone(
            max(sum(s.copied_bytes for s in store.archive_status()) - copied, 0)
        )
        after = store.archive_now(change.topics)
        self._check_running()
        rows = []
        for status in after:
            if change.topics is not None and status.topic not in change.topics:
                continue
            log = self._log(status.topic, status.partition)
            if log is None:
                continue  # deleted meanwhile
            row = archive_row(status, log.view(), log.archive.archived_up_to)
            old = before.get((status.topic, status.partition))
            row["copied_segments"] -= 0 if old is None else old.copied_segments
            row["copied_bytes"] -= 0 if old is None else old.copied_bytes
            rows.append(row)
        return {"partitions": rows}

    def _log(self, topic: str, partition: int) -> PartitionLog | None:
        try:
            found = self._store.topic(topic)
        except UnknownTopicError:
            return None
        return found.partition(partition) if found.has_partition(partition) else None

    def _snapshot(
        self, change: SnapshotStore, progress: WorkProgress, made_id: UUID
    ) -> dict[str, Any]:
        made = self._store.snapshot(
            change.path,
            progress=progress,
            directory_id=made_id,
            include_security=change.include_security,
        )
        logger.info("copied the store to %s as requested", made.path)
        return {
            "path": made.path,
            "partitions": made.partitions,
            "linked_bytes": made.linked_bytes,
            "copied_bytes": made.copied_bytes,
        }

    def _restore(
        self, change: RestoreTopic, progress: WorkProgress, made_id: UUID
    ) -> dict[str, Any]:
        topic = self._store.restore_topic(
            change.topic,
            change.url,
            to_timestamp_ms=change.to_timestamp_ms,
            topic_id=change.archived_id,
            new_name=change.new_name,
            new_id=made_id,
            config=change.config,
            take_over=change.take_over,
            progress=progress,
        )
        return restored_facts(topic)


def restored_facts(topic: Topic[PartitionLog]) -> dict[str, Any]:
    rows = []
    for log in topic.partitions:
        view = log.archive.local_view
        rows.append(
            {
                "partition": log.partition,
                "start_offset": int(view.start),
                "end_offset": int(view.high_watermark),
                "segments": sum(1 for segment in view.segments if segment.size),
                "bytes": view.segments.size,
            }
        )
    return {
        "topic": topic.name,
        "is_archived": topic.config.archive_url is not None,
        "partitions": rows,
    }


def _chosen(topic: Topic[PartitionLog], numbers: Sequence[int] | None) -> list[PartitionLog]:
    if numbers is None:
        return topic.partitions
    return [topic.partition(number) for number in sorted(set(numbers))]


def _compaction_row(
    number: int, size: int, results: Sequence[CompactionResult], plan: CompactionPlan
) -> dict[str, Any]:
    """The sum of all rounds of one partition; if there was none, the reason."""
    reclaimed = sum(result.bytes_reclaimed for result in results)
    last = results[-1] if results else None
    if last is not None:
        outcome, reason = last.outcome.name.lower(), str(last.error or last.outcome)
    elif plan.is_due:
        outcome, reason = "left alone", "another compaction of this log is under way"
    else:
        outcome, reason = "nothing to do", str(plan.reason)
    return {
        "partition": number,
        "outcome": outcome,
        "reason": reason,
        "bytes_before": size,
        "bytes_after": size - reclaimed,
        "records_read": sum(result.records_read for result in results),
        "records_removed": sum(r.records_read - r.records_kept for r in results),
        "keys": sum(result.keys for result in results),
        "segments_before": results[0].segments_before if results else None,
        "segments_after": None if last is None else last.segments_after,
        "cleaned_up_to": None if last is None else int(last.cleaned_up_to),
        "seconds": round(sum(result.duration_s for result in results), 3),
    }
