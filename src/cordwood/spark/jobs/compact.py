"""`compact`: compact a large topic on many machines.

A log of at most 2 GiB is compacted by one task, as the store's cleaner does it; see `whole_log`.
A larger one is spread over all tasks:

    1  scan      one task for each group of segments: the keys in it, with their newest offsets
    2  shuffle   the newest offset of each key over all groups: `transform`
    3  rewrite   one task for each group: write the kept records into staging
    4  swap      the owner of the store swaps the groups in, one by one, in the order of the log;
                 for both kinds

The result is, record by record, that of the store's own cleaner. The order of the swaps matters: a
tombstone may be dropped only after all records it covers. A job that is killed leaves a log that is
compacted up to some group, and staged files, which the owner of the store or the next run removes
after ten minutes; the next run continues from there.

Executors read and write the data directories, so these must be on storage that all of them share.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.clock import SystemClock
from cordwood.errors import ChangeRefusedError, ChangeTimeoutError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.library import request_change
from cordwood.log.compaction.compaction_transactions import WalkState
from cordwood.log.inbox.change_inbox import ChangeInbox
from cordwood.log.inbox.staging_run import StagingRun
from cordwood.log.inbox.store_change import StagedSegment, SwapSegments
from cordwood.quantities import Offset, ProducerId, TimestampMs
from cordwood.spark.jobs.compaction.group_plan import (
    CompactionScope,
    GroupPlan,
    PartitionPlan,
    plan_job,
)
from cordwood.spark.jobs.compaction.group_rewrite import RewrittenGroup, ScannedGroup, rewrite_group
from cordwood.spark.jobs.compaction.group_scan import SCAN_SCHEMA, parse_effect, scan_group
from cordwood.spark.jobs.compaction.group_walk import RunSecret
from cordwood.spark.jobs.compaction.whole_log import (
    WHOLE_BYTES_MAX,
    is_for_one_task,
    rewrite_log,
    state_before,
)
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.source.task_list import task_numbers
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import RealFileSystem
from cordwood.storage.replacement.file_copy import copy_file
from cordwood.value_class import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SWAP_TIMEOUT_S: Final = 600.0  # the owner reads all staged files before it answers

_RESULT_SCHEMA: Final = (
    "group int, files string, aborted string, records_read long, records_kept long, "
    "keyless_dropped long, bytes_read long, bytes_written long"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What to compact. No topics means all compacted ones. `paths` are the data directories."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    scope: CompactionScope = CompactionScope.DIRTY
    is_dry_run: bool = False
    timeout_s: float = SWAP_TIMEOUT_S
    whole_bytes_max: int = WHOLE_BYTES_MAX  # smaller logs are compacted by one task
    now_ms: TimestampMs | None = None  # None: now


def run_compact(
    spark: "SparkSession | None", options: CompactOptions, report: Report = report_nothing
) -> JobReport:
    """Compact, or report what a run would do. Only a dry run works without a session."""
    now_ms = options.now_ms if options.now_ms is not None else SystemClock().now_ms()
    paths = tuple(os.path.abspath(path) for path in options.paths)
    plans = plan_job(paths, options.topics, scope=options.scope, now_ms=now_ms)
    if options.is_dry_run:
        return JobReport(job="compact", rows=tuple(map(_plan_row, plans)), is_dry_run=True)
    assert spark is not None, "a session is needed for all but a dry run"
    fs = RealFileSystem(FileAccess.of_store(paths[0]))
    ChangeInbox(fs, paths[0]).sweep(SystemClock().now_ms())  # files of jobs that were killed
    with StagingRun(fs, paths[0]) as staging:
        run = RunSecret(secret=secrets.token_bytes(16), now_ms=now_ms, run_id=staging.run_id)
        return _CompactJob(spark, paths, options, run, JobProgress(spark, report)).run(plans)


def transform(df: "DataFrame") -> "DataFrame":
    """The keys of each group that have a newer record after it, with its newest offset.

    Input rows are (log, group, low, high, offset, is_dirty): a key in a group, with its newest
    offset there. Only dirty records supersede others: the rest was compacted before.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    by_key = Window.partitionBy("log", "low", "high")
    newest = fn.max(fn.when(fn.col("is_dirty"), fn.col("offset"))).over(by_key)
    return (
        df.select("log", "group", "low", "high", "offset", "is_dirty")
        .withColumn("newest", newest)
        .where(fn.col("newest") > fn.col("offset"))
        .select("group", "low", "high", "newest")
    )


class _CompactJob:
    """One run, with the state that its steps share."""

    def __init__(
        self,
        spark: "SparkSession",
        paths: tuple[str, ...],
        options: CompactOptions,
        run: RunSecret,
        progress: JobProgress,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._options = options
        self._progress = progress
        self._run = run

    def run(self, plans: Sequence[PartitionPlan]) -> JobReport:
        groups = {group.number: group for plan in plans for group in plan.groups}
        try:
            results = self._rewrite_all(plans)
            outcomes = [self._swap_all(plan, results) for plan in plans]
        finally:
            self._discard_staged(groups.values())
        return _report(plans, results, outcomes)

    # --- with Spark ----------------------------------------------------------------------------

    def _rewrite_all(self, plans: Sequence[PartitionPlan]) -> dict[int, RewrittenGroup]:
        bytes_max = self._options.whole_bytes_max
        due = [plan for plan in plans if plan.groups]
        whole = [plan for plan in due if is_for_one_task(plan.groups, bytes_max=bytes_max)]
        split = [group for plan in due if plan not in whole for group in plan.groups]
        results = self._rewrite_whole(whole) if whole else []
        results += self._rewrite_split(split) if split else []
        return {result.number: result for result in results}

    def _rewrite_whole(self, plans: Sequence[PartitionPlan]) -> list[RewrittenGroup]:
        """One task for each log. The largest come first, so that none is left for the end."""
        largest_first = sorted(
            (plan.groups for plan in plans), key=lambda groups: -sum(group.size for group in groups)
        )
        run, count = self._run, len(largest_first)

        def rewrite(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            for number in task_numbers(batches):
                for result in rewrite_log(largest_first[number], run):
                    yield _render_result(result)

        with self._progress.step("rewriting logs"):
            tasks = self._spark.range(0, count, 1, count)
            rows = tasks.mapInArrow(rewrite, _RESULT_SCHEMA).collect()
        return [_parse_result(row.asDict()) for row in rows]

    def _rewrite_split(self, chosen: Sequence[GroupPlan]) -> list[RewrittenGroup]:
        """One task for each group, with the keys of all groups shuffled between two passes."""
        from pyspark import StorageLevel

        groups = {number: replace(group, number=number) for number, group in enumerate(chosen)}
        keys = self._scan(groups).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with self._progress.step("reading keys"):
                found = keys.where("facts IS NOT NULL").select("group", "facts").collect()
            scanned = _scanned(groups, {row["group"]: json.loads(row["facts"]) for row in found})
            with self._progress.step("rewriting segments"):
                rows = self._rewrite(keys.where("facts IS NULL"), groups, scanned).collect()
        finally:
            keys.unpersist()
        results = [_parse_result(row.asDict()) for row in rows]
        return [replace(result, number=chosen[result.number].number) for result in results]

    def _scan(self, groups: Mapping[int, GroupPlan]) -> "DataFrame":
        run, count = self._run, len(groups)

        def scan(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            for batch in batches:
                for number in _numbers(batch, "id"):
                    yield from scan_group(groups[number], run)

        tasks = self._spark.range(0, count, 1, count)
        return tasks.mapInArrow(scan, SCAN_SCHEMA)

    def _rewrite(
        self,
        keys: "DataFrame",
        groups: Mapping[int, GroupPlan],
        scanned: Mapping[int, ScannedGroup],
    ) -> "DataFrame":
        from pyspark.sql import functions as fn

        run, count = self._run, len(groups)

        def rewrite(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            for number, superseded in _by_group(batches).items():
                result = rewrite_group(groups[number], run, scanned[number], superseded)
                yield _render_result(result)

        # A row for each group, so that a group without superseded keys has a task too.
        every = self._spark.range(0, count, 1, 1).select(
            fn.col("id").cast("int").alias("group"),
            fn.lit(None).cast("long").alias("low"),
            fn.lit(None).cast("long").alias("high"),
            fn.lit(None).cast("long").alias("newest"),
        )
        rows = transform(keys).unionByName(every)
        return rows.repartitionById(count, fn.col("group")).mapInArrow(rewrite, _RESULT_SCHEMA)

    # --- putting it in place -------------------------------------------------------------------

    def _swap_all(self, plan: PartitionPlan, results: Mapping[int, RewrittenGroup]) -> str:
        """Swap the groups of one log, in order; return the outcome."""
        if not plan.groups:
            return plan.decision.reason.value
        changed = [group for group in plan.groups if results[group.number].files]
        if not changed and plan.decision.first_uncleanable > (plan.checkpoint or 0):
            # Nothing is dropped. Swap in one unchanged segment, so that the log counts as clean.
            smallest = min(plan.groups, key=lambda group: group.size)
            return self._swap(plan, smallest, _copy_staged(smallest), results, is_last=True)
        for done, group in enumerate(changed):
            self._progress.count(f"swapping {plan.name}", done, len(changed))
            is_last = group is changed[-1]
            files = results[group.number].files
            outcome = self._swap(plan, group, files, results, is_last=is_last)
            if outcome != "done":
                return outcome
        self._progress.count(f"swapping {plan.name}", len(changed), len(changed))
        return "done"

    def _swap(
        self,
        plan: PartitionPlan,
        group: GroupPlan,
        files: tuple[StagedSegment, ...],
        results: Mapping[int, RewrittenGroup],
        *,
        is_last: bool,
    ) -> str:
        change = SwapSegments(
            topic=plan.decision.topic,
            topic_id=plan.topic_id,
            partition=plan.decision.partition,
            planned_on=group.segments,
            files=files,
            cleaned_up_to=Offset(group.upper) if is_last else None,
            aborted=results[group.number].aborted,
        )
        try:
            request_change(
                self._paths[0],
                change,
                request_id=group.request_id,
                timeout_s=self._options.timeout_s,
                data_dirs=self._paths[1:],
            )
        except (ChangeRefusedError, ChangeTimeoutError) as error:
            return f"stopped: {error}"
        return "done"

    def _discard_staged(self, groups: Iterable[GroupPlan]) -> None:
        fs = RealFileSystem()
        for group in groups:
            with contextlib.suppress(OSError):  # otherwise the store's owner removes it later
                fs.remove_tree(group.staging)


def _copy_staged(group: GroupPlan) -> tuple[StagedSegment, ...]:
    """Copy the only segment of a group, unchanged, into staging."""
    (place,) = group.segments
    fs = RealFileSystem(FileAccess.of_partition(group.directory))
    fs.make_directory(group.staging)
    name = f"{place.base_offset:020d}.log"
    copy_file(fs, os.path.join(group.directory, name), os.path.join(group.staging, name))
    return (StagedSegment(name=name, base_offset=place.base_offset, size=place.size),)


def _scanned(
    groups: Mapping[int, GroupPlan], facts: Mapping[int, Mapping[str, Any]]
) -> dict[int, ScannedGroup]:
    """Pass the state of transactions from group to group of each log, in order."""
    scanned: dict[int, ScannedGroup] = {}
    log, state = -1, WalkState()
    for number in sorted(groups):
        group = groups[number]
        if group.log != log:
            log, state = group.log, WalkState()
        state = state_before(group, state)
        scanned[number] = ScannedGroup(key_count=facts[number]["keys"], before=state)
        state = parse_effect(facts[number]).after(state)
    return scanned


def _by_group(batches: Iterable["pa.RecordBatch"]) -> dict[int, list["pa.RecordBatch"]]:
    """The rows of each group, without the row that only names the group."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        for number in _numbers(batch, "group"):
            is_of_group = pc.equal(batch.column("group"), pa.scalar(number, pa.int32()))
            of_group = batch.filter(is_of_group)
            keys = of_group.filter(pc.is_valid(of_group.column("newest")))
            superseded = found.setdefault(number, [])
            if keys.num_rows:
                superseded.append(keys)
    return found


def _numbers(batch: "pa.RecordBatch", name: str) -> list[int]:
    import numpy as np

    return [int(number) for number in np.unique(batch.column(name).to_numpy())]


def _render_result(result: RewrittenGroup) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "group": pa.array([result.number], pa.int32()),
            "files": [json.dumps([[f.name, f.base_offset, f.size] for f in result.files])],
            "aborted": [
                json.dumps(
                    [
                        [t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset]
                        for t in result.aborted
                    ]
                )
            ],
            "records_read": [result.records_read],
            "records_kept": [result.records_kept],
            "keyless_dropped": [result.keyless_dropped],
            "bytes_read": [result.bytes_read],
            "bytes_written": [result.bytes_written],
        }
    )


def _parse_result(row: Mapping[str, Any]) -> RewrittenGroup:
    return RewrittenGroup(
        number=row["group"],
        files=tuple(
            StagedSegment(name=name, base_offset=Offset(base_offset), size=size)
            for name, base_offset, size in json.loads(row["files"])
        ),
        aborted=tuple(
            AbortedTransaction(
                producer_id=ProducerId(producer_id),
                first_offset=Offset(first),
                last_offset=Offset(last),
                last_stable_offset=Offset(stable),
            )
            for producer_id, first, last, stable in json.loads(row["aborted"])
        ),
        records_read=row["records_read"],
        records_kept=row["records_kept"],
        keyless_dropped=row["keyless_dropped"],
        bytes_read=row["bytes_read"],
        bytes_written=row["bytes_written"],
    )


# --- what is said of it ------------------------------------------------------------------------


def _plan_row(plan: PartitionPlan) -> dict[str, Any]:
    decision = plan.decision
    return {
        "topic": decision.topic,
        "partition": decision.partition,
        "is_due": decision.is_due,
        "reason": decision.reason.value,
        "first_dirty": decision.first_dirty,
        "up_to": decision.first_uncleanable,
        "segments": sum(len(group.segments) for group in plan.groups),
        "groups": len(plan.groups),
        "bytes": sum(group.size for group in plan.groups),
    }


def _report(
    plans: Sequence[PartitionPlan],
    results: Mapping[int, RewrittenGroup],
    outcomes: Sequence[str],
) -> JobReport:
    rows: list[dict[str, Any]] = []
    problems = []
    for plan, outcome in zip(plans, outcomes, strict=True):
        found = [results[group.number] for group in plan.groups]
        changed = [result for result in found if result.files]
        rows.append(
            {
                "topic": plan.decision.topic,
                "partition": plan.decision.partition,
                "outcome": outcome,
                "up_to": plan.decision.first_uncleanable,
                "records_read": sum(result.records_read for result in found),
                "records_kept": sum(result.records_kept for result in found),
                "keyless_dropped": sum(result.keyless_dropped for result in found),
                "bytes_read": sum(result.bytes_read for result in found),
                "bytes_reclaimed": sum(r.bytes_read - r.bytes_written for r in changed),
            }
        )
        if plan.groups and outcome != "done":
            problems.append(f"{plan.name}: {outcome}")
    totals = {
        name: sum(int(row[name]) for row in rows)
        for name in ("records_read", "records_kept", "bytes_read", "bytes_reclaimed")
    }
    return JobReport(job="compact", rows=tuple(rows), totals=totals, problems=tuple(problems))
