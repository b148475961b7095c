"""`replay`: copy a range of a topic, by offset or time, filtered, to another topic or a table.

A topic receives one publication, with unchanged keys, headers and timestamps, in the order of each
partition; a table is created in one commit. Each run has a name, derived from its options unless
one is set, and a name is replayed once: running it again does nothing, even if the topic has grown.
"""

import logging
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.log.rules.isolation import READ_COMMITTED
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.jobs.topic_target import TopicTarget, name_of_run
from cordwood.spark.source.opened_source import absolute_paths, open_source
from cordwood.spark.source.row_schema import row_schema
from cordwood.spark.source.source_options import ISOLATION, SourceOptions
from cordwood.spark.source.source_plan import OffsetResolver, check_named, survey
from cordwood.spark.tables.lake_table import TABLE_COLUMNS
from cordwood.spark.tables.lake_target import LakeTarget
from cordwood.spark.where.condition_text import OPTION, parse_condition
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_RUN: Final = "replay"
_MENTIONS_PRUNED: Final = re.compile(r"\b(?:partition|offset|timestamp|key)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Source, filter and target.

    bounds          options of the source for start and end, such as startingTimestamp
    where           a SQL condition over the columns of the source; None for all rows. It prunes
                    the scan if it is one that the option `where` of the source takes
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


def needs_session(options: ReplayOptions) -> bool:
    """Whether Spark is needed: for a dry run only to check a condition that Spark evaluates."""
    return not options.is_dry_run or _evaluated(options.where) is not None


def run_replay(
    spark: "SparkSession | None", options: ReplayOptions, report: Report = report_nothing
) -> JobReport:
    """Replay, or report what a run would do. A dry run checks all that a run checks."""
    span = resolve_span(options)
    _check_where(spark, options.where)
    is_topic = isinstance(options.into, TopicTarget)
    is_done = _is_in_topic(options) if is_topic else _is_in_table(options)
    if is_done:
        return _report(span, options, "was already done", is_dry_run=options.is_dry_run)
    if options.is_dry_run:
        return _report(span, options, "would be done", is_dry_run=True)
    assert spark is not None, "a session is needed for all but a dry run"
    progress = JobProgress(spark, report)
    if isinstance(options.into, TopicTarget):
        return _into_topic(spark, span, options, options.into, progress)
    return _into_table(spark, span, options, options.into, progress)


def _pruning(where: str | None) -> dict[str, str]:
    """The condition as an option of the source, if it is one that prunes."""
    return {} if where is None or _evaluated(where) is not None else {OPTION: where}


def _evaluated(where: str | None) -> str | None:
    """The condition, if Spark must evaluate it for each row."""
    if where is None:
        return None
    try:
        parse_condition(where, now_ms=SystemClock().now_ms())
    except ConfigError:
        return where
    return None


def _check_where(spark: "SparkSession | None", where: str | None) -> None:
    """Raise `ConfigError` unless Spark understands the condition, before anything is read."""
    if where is None or _evaluated(where) is None:
        return
    assert spark is not None, "a session is needed to check a condition that does not prune"
    from pyspark.errors import AnalysisException, ParseException

    try:
        transform(spark.createDataFrame([], row_schema(TABLE_COLUMNS)), where).schema  # noqa: B018
    except (AnalysisException, ParseException) as error:
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ConfigError("where", where, f"is not a condition on a record: {said}") from error
    if _MENTIONS_PRUNED.search(where):
        logger.warning(
            "every record between the bounds is read to evaluate the condition %r; bounds by time "
            "or offset are found through the indexes, and so is a condition that compares only "
            "partition, offset, timestamp and key with values",
            where,
        )


def _is_in_topic(options: ReplayOptions) -> bool:
    """Whether the run was done before. Raises unless the topic can take its rows."""
    into = options.into
    assert isinstance(into, TopicTarget), into
    into.check()
    return into.was_written(options.name)


def _is_in_table(options: ReplayOptions) -> bool:
    """Whether the run was done before. Raises if the table holds something else."""
    assert isinstance(options.into, LakeTarget), options.into
    table = options.into.open()
    state = table.load()
    if state is None or not state.offsets:
        return False
    if state.settings.get(_RUN) == options.name:
        return True
    raise ConfigError("table", table.name, "already exists and holds something else")


def resolve_span(options: ReplayOptions) -> TopicSpan:
    """The offsets that the bounds resolve to now."""
    parsed = SourceOptions.for_batch(
        {
            "path": options.paths[0],
            "subscribe": options.topic,
            ISOLATION: READ_COMMITTED,
            **options.bounds,
        }
    )
    paths = absolute_paths(options.paths)
    with open_source(paths, parsed.topics.wants) as source:
        found = survey(source, parsed.isolation)
        check_named(source, parsed.topics, found)
        resolver = OffsetResolver(parsed, found, SystemClock().now_ms())
        starts, stops = resolver.starts(), resolver.stops()
        return TopicSpan(
            paths=paths,
            starts=starts,
            stops={place: max(stops[place], starts[place]) for place in starts},
            topic_ids=found.topic_ids,
            fails_on_data_loss=parsed.fails_on_data_loss,
            isolation=parsed.isolation,
        )


def _rows(spark: "SparkSession", span: TopicSpan, options: ReplayOptions) -> "DataFrame":
    rows = span.load(spark, TABLE_COLUMNS, _pruning(options.where))
    return transform(rows, _evaluated(options.where)).select(*TABLE_COLUMNS)


def _into_topic(
    spark: "SparkSession",
    span: TopicSpan,
    options: ReplayOptions,
    into: TopicTarget,
    progress: JobProgress,
) -> JobReport:
    rows = _rows(spark, span, options)
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
    from cordwood.spark.tables.lake_files import (
        FileKind,
        collect_files,
        table_schema,
        write_files,
    )

    table = into.open()
    table.load()
    rows = _rows(spark, span, options)
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
