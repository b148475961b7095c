"""`replay`: copy a range of a topic, by offset or time, filtered, to another topic or a table.

A topic receives one publication, with unchanged keys, headers and timestamps, in the order of each
partition; a table is created in one commit. Each run has a name, derived from its options unless
one is set, and a name is replayed once: running it again does nothing, even if the topic has grown.
"""

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.tables.lake_table import TABLE_COLUMNS
from cordwood.spark.jobs.tables.lake_target import LakeTarget
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.jobs.topic_target import TopicTarget, name_of_run
from cordwood.spark.source.opened_source import absolute_paths, open_source
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import OffsetResolver, check_named, survey
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RUN: Final = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Source, filter and target.

    bounds          options of the source for start and end, such as startingTimestamp
    where           a SQL condition over the columns of the source; None for all rows
    into            a topic or a table
    keeps_partition rows keep their partition number; otherwise their keys decide
    run_id          the name of the run; None: derived from all of the above
    """

    paths: tuple[str, ...]
    topic: str
    into: TopicTarget | LakeTarget
    bounds: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    keeps_partition: bool = False
    run_id: str | None = None
    is_dry_run: bool = False

    def __post_init__(self) -> None:
        into = self.into
        if (
            isinstance(into, TopicTarget)
            and into.topic == self.topic
            and absolute_paths(into.paths) == absolute_paths(self.paths)
        ):
            raise ConfigError("to topic", self.topic, "is the topic that is replayed")

    @property
    def name(self) -> str:
        if self.run_id is not None:
            return f"replay {self.run_id}"
        facts = {
            "paths": absolute_paths(self.paths),
            "topic": self.topic,
            "bounds": dict(self.bounds),
            "where": self.where,
            "into": repr(self.into),
            "keeps_partition": self.keeps_partition,
        }
        return name_of_run("replay", facts)


def transform(df: "DataFrame", where: str | None) -> "DataFrame":
    """The rows to replay."""
    return df if where is None else df.where(where)


def run_replay(
    spark: "SparkSession | None", options: ReplayOptions, report: Report = report_nothing
) -> JobReport:
    """Replay, or report what a run would do."""
    span = resolve_span(options)
    if options.is_dry_run:
        return _report(span, options, "would be done", is_dry_run=True)
    assert spark is not None, "a session is needed for all but a dry run"
    progress = JobProgress(spark, report)
    if isinstance(options.into, TopicTarget):
        return _into_topic(spark, span, options, options.into, progress)
    return _into_table(spark, span, options, options.into, progress)


def resolve_span(options: ReplayOptions) -> TopicSpan:
    """The offsets that the bounds resolve to now."""
    parsed = SourceOptions.for_batch(
        {"path": options.paths[0], "subscribe": options.topic, **options.bounds}
    )
    paths = absolute_paths(options.paths)
    with open_source(paths, parsed.topics.wants) as source:
        found = survey(source)
        check_named(source, parsed.topics, found)
        resolver = OffsetResolver(parsed, found, SystemClock().now_ms())
        starts, stops = resolver.starts(), resolver.stops()
        return TopicSpan(
            paths=paths,
            starts=starts,
            stops={place: max(stops[place], starts[place]) for place in starts},
            topic_ids=found.topic_ids,
            fails_on_data_loss=parsed.fails_on_data_loss,
        )


def _into_topic(
    spark: "SparkSession",
    span: TopicSpan,
    options: ReplayOptions,
    into: TopicTarget,
    progress: JobProgress,
) -> JobReport:
    if into.was_written(options.name):
        return _report(span, options, "was already done")
    rows = transform(span.load(spark, TABLE_COLUMNS), options.where)
    columns = ["key", "value", "timestamp", "headers"]
    before = into.ends()
    with progress.step(f"replaying into {into.topic}"):
        into.write(
            rows.select(*columns, *(["partition"] if options.keeps_partition else [])),
            application=options.name,
        )
    grown = sum(row["up_to"] - row["from"] for row in into.grown_since(before))
    return _report(span, options, "done", records=grown)


def _into_table(
    spark: "SparkSession",
    span: TopicSpan,
    options: ReplayOptions,
    into: LakeTarget,
    progress: JobProgress,
) -> JobReport:
    from cordwood.spark.jobs.tables.lake_files import (
        FileKind,
        collect_files,
        table_schema,
        write_files,
    )

    table = into.open()
    state = table.load()
    if state is not None and state.offsets:
        if state.settings.get(_RUN) == options.name:
            return _report(span, options, "was already done")
        raise ConfigError("table", table.name, "already exists and holds something else")
    rows = transform(span.load(spark, TABLE_COLUMNS), options.where).select(*TABLE_COLUMNS)
    schema = table_schema(rows.schema)
    run_id = uuid.uuid4().hex
    try:
        with progress.step(f"replaying into {table.name}"):
            kind = FileKind(name="rows", directory=table.staging(run_id), schema=schema)
            written = collect_files(write_files(rows, kind)).get("rows", [])
        settings = {_RUN: options.name}
        table.commit(span.state(None, settings), schema, run_id=run_id, added=written)
    finally:
        table.discard(run_id)
    return _report(span, options, "done", records=sum(file.rows for file in written))


def _report(
    span: TopicSpan,
    options: ReplayOptions,
    outcome: str,
    *,
    is_dry_run: bool = False,
    **totals: Any,
) -> JobReport:
    return JobReport(
        job="replay",
        rows=span.rows(),
        totals={"outcome": outcome, "run": options.name, "offsets": span.count, **totals},
        is_dry_run=is_dry_run,
    )
