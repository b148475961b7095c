"""`export`: a topic as a Parquet, Delta or Iceberg table; each run adds the new records.

The table stores its offsets, with the topic's id, and changes them in the same commit as its rows.
So it contains each offset once, even if a run is killed. The table, and the log from those offsets
on, contain every record once: `table_and_tail`.

Keys, values and headers may be decoded. A row that does not fit goes unchanged, with the reason, to
a second table beside the first. `feed_steps` says how the two stay together.

With `follow` the job goes on: it commits what is new every few seconds, until it is stopped.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.quantities import MIB
from cordwood.spark.decoding.row_decoding import ENVELOPE_COLUMNS, RowDecoder
from cordwood.spark.jobs.feed_steps import StepKind
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.row_choice import (
    INFER,
    ColumnChoice,
    RowChoice,
    TableRows,
    kept_rows,
    new_rows,
    opened_evolution,
)
from cordwood.spark.jobs.table_feed import TableFeed, check_replayable
from cordwood.spark.jobs.topic_span import TopicSpan, plan_span
from cordwood.spark.tables.file_tasks import FileTasks
from cordwood.spark.tables.lake_table import TABLE_COLUMNS, TableState
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from cordwood.spark.tables.log_tasks import LogTasks
from cordwood.spark.tables.staging import Staged, StagePlan, grouped, run_tasks
from cordwood.spark.tables.table_upkeep import UpkeepPolicy, keep_up
from cordwood.value_class import dataclass, field, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

REJECTED_SUFFIX: Final = "_rejected"
COMMIT_RECORDS: Final = 100_000_000
EVERY_S: Final = 10.0
UPKEEP_COMMITS: Final = 100

_SAMPLE_RECORDS: Final = 10_000
_SAMPLE_BYTES_MAX: Final = 64 * MIB
_LOCAL_WIDTH: Final = 1
_NOTES_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Source and target. `value_schema` is short for a choice of JSON values with that schema.

    commit_records   a run commits after so many records: a long run that is killed loses only its
                     last part
    follow_s         go on until stopped, and commit what is new as often as that; None: once
    replays          decode the rejected rows again, and move those that fit
    upkeep           merge small files, expire snapshots and remove leftovers; None: never
    upkeep_commits   after so many commits, and at the end
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...]
    target: LakeTarget
    value_schema: str | None = None
    rows: RowChoice = field(default_factory=RowChoice)
    commit_records: int = COMMIT_RECORDS
    fails_on_data_loss: bool = True
    is_dry_run: bool = False
    follow_s: float | None = None
    replays: bool = False
    upkeep: UpkeepPolicy | None = None
    upkeep_commits: int = UPKEEP_COMMITS

    def __post_init__(self) -> None:
        if self.commit_records < 1:
            raise ConfigError("commit records", self.commit_records, "must be at least 1")
        if self.follow_s is not None and not 0.1 <= self.follow_s <= 86_400:
            raise ConfigError("every", self.follow_s, "must be 0.1 to 86400 seconds")
        if self.upkeep_commits < 1:
            raise ConfigError("upkeep commits", self.upkeep_commits, "must be at least 1")

    @property
    def choice(self) -> RowChoice:
        if self.value_schema is None:
            return self.rows
        if self.rows.value.is_given and self.rows.value.schema is not None:
            raise ConfigError("value schema", self.value_schema, "is there twice")
        return replace(self.rows, value=replace(self.rows.value, schema=self.value_schema))


def run_export(
    spark: "SparkSession | None",
    options: ExportOptions,
    report: Report = report_nothing,
    *,
    stop: threading.Event | None = None,
) -> JobReport:
    """Bring the table up to date, or report what that would do.

    Without a session the work is done in this process. With `follow_s`, return when `stop` is set,
    after the commit in progress.
    """
    job = _ExportJob(spark, options, report)
    if options.is_dry_run:
        return job.dry_run()
    return job.run(stop or threading.Event())


def table_and_tail(spark: "SparkSession", target: LakeTarget, paths: Sequence[str]) -> "DataFrame":
    """The rows of the table, then the later records of the log: each offset once."""
    table = target.open()
    state = table.load()
    if state is None:
        raise ConfigError("table", table.name, "unknown table")
    state.check_records(table.name)
    topics = sorted({topic for topic, _ in state.offsets})
    span = plan_span(paths, topics, state, table=table.name)
    rows = TableRows.from_settings(state.settings)
    tail = transform(span.load(spark, TABLE_COLUMNS), rows)
    files = table.files()
    if not files:
        return tail
    columns = [*TABLE_COLUMNS, *(ENVELOPE_COLUMNS if rows.form.is_debezium else ())]
    return read_files(spark, files).select(*columns).unionByName(tail, allowMissingColumns=True)


def transform(df: "DataFrame", rows: TableRows) -> "DataFrame":
    """The rows of the table, from rows of `format("cordwood")` with headers; misfits left out."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from cordwood.spark.source.arrow_rows import arrow_schema

    form = rows.form
    if not form.is_typed:
        return df.select(*TABLE_COLUMNS)
    schema = form.table_schema(arrow_schema(TABLE_COLUMNS))
    form = replace(form, looks_for_more=False)

    def decode(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        decoder = RowDecoder(form)
        wanted = arrow_schema(TABLE_COLUMNS)
        for batch in batches:
            for part in pa.Table.from_batches([batch]).cast(wanted).to_batches():
                yield decoder.decode(part).accepted

    return df.select(*TABLE_COLUMNS).mapInArrow(decode, from_arrow_schema(schema))


class _SparkStager:
    """Stages with Spark; without a session, in this process."""

    def __init__(self, spark: "SparkSession | None", progress: JobProgress | None) -> None:
        self._spark = spark
        self._progress = progress

    def _width(self) -> int:
        if self._spark is None:
            return _LOCAL_WIDTH
        try:
            return max(1, self._spark.sparkContext.defaultParallelism)
        except Exception:  # Spark Connect has no context, and its own error for that
            return 8

    def stage_span(self, span: TopicSpan, plan: StagePlan) -> Staged:
        tasks, ranges = LogTasks.over(span.paths, span.source_options())
        return self._run(tasks, grouped(ranges, width=self._width()), plan)

    def stage_files(self, files: Sequence[str], plan: StagePlan) -> Staged:
        return self._run(FileTasks(), [[path] for path in files], plan)

    def _run(self, read: Any, tasks: Sequence[Sequence[Any]], plan: StagePlan) -> Staged:
        if self._progress is None:
            return run_tasks(self._spark, read, tasks, plan)
        with self._progress.step("writing files"):
            return run_tasks(self._spark, read, tasks, plan)


class _ExportJob:
    """One run, of one or more commits."""

    def __init__(
        self, spark: "SparkSession | None", options: ExportOptions, report: Report
    ) -> None:
        self._options = options
        self._choice = options.choice
        self._target = options.target
        self._table = options.target.open()
        self._rejects = options.target.beside(REJECTED_SUFFIX).open()
        self._widens = options.target.format.can_widen
        self._progress = None if spark is None else JobProgress(spark, report)
        self._stager = _SparkStager(spark, self._progress)
        self._since_upkeep = 0
        self._upkeep: dict[str, int] = {}
        if options.replays:
            check_replayable(self._table, is_parquet=options.target.format is TableFormat.PARQUET)

    # --- planning ----------------------------------------------------------------------------

    def _plan(self, state: TableState | None) -> TopicSpan:
        options = self._options
        if state is not None:
            state.check_records(self._table.name)
        topics = dict.fromkeys((*options.topics, *({} if state is None else _topics(state))))
        return plan_span(
            options.paths,
            list(topics),
            state,
            table=self._table.name,
            fails_on_data_loss=options.fails_on_data_loss,
        )

    def _rows(self, state: TableState | None, span: TopicSpan) -> TableRows:
        """The rows of the table, as it is or as it will be."""
        if state is not None and state.offsets:
            return kept_rows(self._table.name, state.settings, self._choice, widens=self._widens)
        return new_rows(self._choice, lambda: sample_records(span))

    def dry_run(self) -> JobReport:
        """Do all that a run does before its first file, and change nothing."""
        state, rejected = self._table.load(), self._rejects.load()
        span = self._plan(state)
        rows = self._rows(state, span)
        rows, _ = opened_evolution(rows, _settings(state), self._choice, widens=self._widens)
        problems = self._target.obstacles()
        totals: dict[str, Any] = {
            "offsets": span.count,
            "commits": -(-span.count // self._options.commit_records),
            "table": "exists" if state is not None else "new",
        }
        if rejected is not None:
            totals["rejected_files"] = len(self._rejects.files())
        if rows.form.is_typed and (rows.form.value.schema or not rows.form.value.is_framed):
            totals["value"] = str(rows.form.value.type)
            totals["key"] = str(rows.form.key.type)
        return JobReport(
            job="export", rows=span.rows(), totals=totals, problems=problems, is_dry_run=True
        )

    # --- doing it ------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> JobReport:
        state, rejected = self._table.load(), self._rejects.load()
        first = self._plan(state)
        # A run that was killed between its two commits has stored its rows in the second table.
        held = state if state is not None and state.offsets else rejected or state
        rows = self._rows(held, first)
        rows, evolution = opened_evolution(rows, _settings(held), self._choice, widens=self._widens)
        feed = TableFeed(
            self._table,
            self._rejects,
            self._stager,
            rows=rows,
            evolution=evolution,
            open_rows=self._stored_rows,
        )
        span = first
        self._catch_up(feed, span, stop)
        if self._options.replays:
            feed.replay()
        while self._options.follow_s is not None and not stop.is_set():
            began = time.monotonic()
            last = self._plan(feed.held)
            if last.count:
                span = replace(last, starts={**last.starts, **span.starts})
                self._catch_up(feed, last, stop)
            stop.wait(max(0.0, self._options.follow_s - (time.monotonic() - began)))
        self._maybe_keep_up(feed, is_last=True)
        return self._report(feed, span, tuple(evolution.notes))

    def _stored_rows(self, state: TableState) -> TableRows:
        rows = TableRows.from_settings(state.settings)
        rows, _ = opened_evolution(rows, state.settings, self._choice, widens=self._widens)
        return rows

    def _catch_up(self, feed: TableFeed, whole: TopicSpan, stop: threading.Event) -> None:
        """Take steps until the table has the span, or the job is stopped."""
        span = whole
        while True:
            step = feed.next_step(span, commit_records=self._options.commit_records)
            if step.kind is StepKind.IDLE:
                return
            feed.take(step)
            if feed.held is not None:
                span = span.behind(feed.held)
            if self._progress is not None:
                self._progress.count("offsets", whole.count - span.count, whole.count)
            self._since_upkeep += 1
            self._maybe_keep_up(feed)
            if stop.is_set():
                return

    def _maybe_keep_up(self, feed: TableFeed, *, is_last: bool = False) -> None:
        policy = self._options.upkeep
        is_due = self._since_upkeep >= self._options.upkeep_commits or is_last
        if policy is None or not is_due:
            return
        self._since_upkeep = 0
        for table in (self._table, self._rejects):
            for name, count in keep_up(table, policy).items():
                self._upkeep[name] = self._upkeep.get(name, 0) + count
        feed.held = self._table.load()

    def _report(self, feed: TableFeed, span: TopicSpan, notes: tuple[str, ...]) -> JobReport:
        counts = feed.counts
        totals = {
            "records": counts.records,
            "rejected": counts.rejected,
            "files": counts.files,
            "commits": counts.commits,
        }
        if self._options.replays:
            totals["replayed"] = counts.replayed
        found: dict[str, Any] = {**totals, **self._upkeep}
        if notes:
            found["notes"] = "; ".join(notes[:_NOTES_MAX])
        return JobReport(job="export", rows=span.rows(), totals=found)


def sample_records(span: TopicSpan) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The first keys and values, for a schema to be inferred from."""
    if not span.count:
        raise ConfigError("value schema", INFER, "the topic has no records; set a schema")
    tasks, ranges = LogTasks.over(span.paths, span.source_options())

    def pairs() -> Iterator[tuple[bytes | None, bytes | None]]:
        size = 0
        for each in ranges:
            for batch in tasks.read(each):
                keys, values = batch.column("key"), batch.column("value")
                for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                    size += len(key or b"") + len(value or b"")
                    if size > _SAMPLE_BYTES_MAX:
                        return
                    yield key, value

    return islice(pairs(), _SAMPLE_RECORDS)


def _topics(state: TableState) -> list[str]:
    return sorted({topic for topic, _ in state.offsets})


def _settings(state: TableState | None) -> Mapping[str, str]:
    return {} if state is None else state.settings


__all__ = [
    "ColumnChoice",
    "ExportOptions",
    "RowChoice",
    "run_export",
    "table_and_tail",
    "transform",
]
