"""`verify`: check every batch, record and index of a store or an archive, in parallel.

Writes nothing. Each task checks a few segments; see `log.inspection.segment_check` for the checks.
Segments that retention or compaction removes meanwhile are skipped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.quantities import MIB, Offset
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.opened_source import OpenedSource, absolute_paths, open_source
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cordwood.log.reading.log_reader import LogReader

TASK_BYTES: Final = 256 * MIB
_SCHEMA: Final = (
    "topic string, partition int, base_offset long, next_offset long, size long, batches long, "
    "records long, problems string"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to check. No topics means all of them."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    is_dry_run: bool = False
    task_bytes: int = TASK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask:
    """The segments of one log, by base offset, that one task checks."""

    place: LogPlace
    base_offsets: tuple[int, ...]
    size: int


def run_verify(
    spark: "SparkSession | None", options: VerifyOptions, report: Report = report_nothing
) -> JobReport:
    """Check, or report what a run would check."""
    tasks = plan_checks(options)
    if options.is_dry_run:
        return JobReport(job="verify", rows=tuple(_planned(tasks)), is_dry_run=True)
    assert spark is not None, "a session is needed for all but a dry run"
    if not tasks:
        return JobReport(job="verify", totals=_totals([]))
    count = len(tasks)

    def check(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                assert number is not None
                yield from run_check(tasks[number])

    with JobProgress(spark, report).step("checking segments"):
        rows = spark.range(0, count, 1, count).mapInArrow(check, _SCHEMA).collect()
    return _report([row.asDict() for row in rows])


def plan_checks(options: VerifyOptions) -> list[CheckTask]:
    """List the segments and divide them into tasks."""
    wanted = frozenset(options.topics)
    paths = absolute_paths(options.paths)
    with open_source(paths, lambda topic, _number: not wanted or topic in wanted) as source:
        topics = source.look()
        _check_named(source, wanted - set(topics))
        return [
            task
            for name in sorted(topics)
            for number, log in sorted(topics[name].logs.items())
            for task in _share(topics[name].place(number), log, options.task_bytes)
        ]


def _check_named(source: OpenedSource, missing: frozenset[str]) -> None:
    for topic in sorted(missing):
        there = ", ".join(source.all_topics()) or "none"
        raise ConfigError("topic", topic, f"unknown topic; known are: {there}")


def _share(place: LogPlace, log: "LogReader", task_bytes: int) -> Iterator[CheckTask]:
    bases: list[int] = []
    size = 0
    for segment in log.view().segments:
        if bases and size + segment.size > task_bytes:
            yield CheckTask(place=place, base_offsets=tuple(bases), size=size)
            bases, size = [], 0
        bases.append(segment.base_offset)
        size += segment.size
    if bases:
        yield CheckTask(place=place, base_offsets=tuple(bases), size=size)


# --- in executors ------------------------------------------------------------------------------


def run_check(task: CheckTask) -> Iterator["pa.RecordBatch"]:
    """Check the segments of one task that still exist."""
    import pyarrow as pa

    from cordwood.log.inspection.segment_check import check_segment

    with task.place.open() as log:
        if log is None:
            return
        rows = [
            {
                "topic": task.place.topic,
                "partition": task.place.partition,
                "base_offset": found.base_offset,
                "next_offset": found.next_offset,
                "size": found.size,
                "batches": found.batches,
                "records": found.records,
                "problems": json.dumps([str(problem) for problem in found.problems]),
            }
            for base_offset in task.base_offsets
            if (found := check_segment(log, Offset(base_offset))) is not None
        ]
    if rows:
        batch = pa.RecordBatch.from_pylist(rows)
        partition = batch.schema.get_field_index("partition")
        yield batch.set_column(partition, "partition", batch.column(partition).cast(pa.int32()))


# --- what is said of it ------------------------------------------------------------------------


def _planned(tasks: Sequence[CheckTask]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield {
            "topic": task.place.topic,
            "partition": task.place.partition,
            "segments": len(task.base_offsets),
            "bytes": task.size,
        }


def _report(found: Sequence[Mapping[str, Any]]) -> JobReport:
    logs: dict[tuple[str, int], dict[str, Any]] = {}
    problems: list[str] = []
    for row in sorted(found, key=lambda row: (row["topic"], row["partition"], row["base_offset"])):
        name = (row["topic"], row["partition"])
        known = {"topic": name[0], "partition": name[1], **_totals([])}
        log = logs.setdefault(name, known)
        for key, value in _totals([row]).items():
            log[key] += value
        problems += [
            f"{name[0]}-{name[1]}, segment {row['base_offset']}: {problem}"
            for problem in json.loads(row["problems"])
        ]
    return JobReport(
        job="verify",
        rows=tuple(logs.values()),
        totals=_totals(found),
        problems=tuple(problems),
    )


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "segments": len(rows),
        "bytes": sum(row["size"] for row in rows),
        "batches": sum(row["batches"] for row in rows),
        "records": sum(row["records"] for row in rows),
        "problems": sum(len(json.loads(row["problems"])) for row in rows),
    }
