"""``cordwood spark``: jobs over whole topics and stores, on this machine or on a cluster."""

from typing import Annotated

import typer

from cordwood.cli.completion import complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import TopicsArgument
from cordwood.cli.spark.job_run import (
    SourceAtOption,
    SparkJob,
    StoreAtOption,
    job_command,
    source_paths,
    store_paths,
)
from cordwood.cli.spark.pipeline_command import init_pipeline
from cordwood.cli.spark.table_commands import export, materialize
from cordwood.cli.spark.topic_commands import ingest, replay

_HELP = (
    "Run Spark jobs: compact, export, materialize, ingest, replay, verify, stats; init-pipeline."
)

spark_app = typer.Typer(help=_HELP, no_args_is_help=True)

TopicArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        autocompletion=complete_topic,
        show_default=False,
        help="Topic names. Default: all topics.",
    ),
]


@spark_app.callback(help=_HELP)
def spark() -> None:
    """Only groups the commands."""


@job_command
def compact(
    topics: TopicArguments = None,
    *,
    at: StoreAtOption = None,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only logs that the store's own cleaner would compact.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="All sealed segments, even clean or recent ones.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", help="Seconds to wait for the store's owner, for each log."),
    ] = 600.0,
    dry_run: bool,
) -> SparkJob:
    """Compact topics, keeping only the newest record of each key, like the store's own cleaner.

    Without names, all compacted topics. A broker that serves the directory keeps running and
    replaces the segments itself.

    \b
    Examples:
      cordwood spark compact accounts --at /srv/data
      cordwood spark compact --if-due --master spark://host:7077
    """
    from cordwood.spark.jobs.compact import CompactOptions, run_compact
    from cordwood.spark.jobs.compaction.group_plan import CompactionScope

    if if_due and force:
        raise UsageError("--if-due and --force exclude each other")
    scope = CompactionScope.DUE if if_due else CompactionScope.DIRTY
    options = CompactOptions(
        paths=store_paths(at),
        topics=tuple(topics or ()),
        scope=CompactionScope.ALL if force else scope,
        is_dry_run=dry_run,
        timeout_s=timeout_s,
    )
    return SparkJob(
        run=lambda spark, report: run_compact(spark, options, report), needs_spark=not dry_run
    )


@job_command
def verify(topics: TopicArguments = None, *, at: SourceAtOption = None, dry_run: bool) -> SparkJob:
    """Check every batch, record and index of a store or an archive.

    Without names, all topics. Exit code 1 if something is damaged.

    \b
    Examples:
      cordwood spark verify --at /srv/data
      cordwood spark verify orders --at s3://bucket/prefix --json
    """
    from cordwood.spark.jobs.verify import VerifyOptions, run_verify

    options = VerifyOptions(paths=source_paths(at), topics=tuple(topics or ()), is_dry_run=dry_run)
    return SparkJob(
        run=lambda spark, report: run_verify(spark, options, report), needs_spark=not dry_run
    )


@job_command
def stats(topics: TopicsArgument, *, at: SourceAtOption = None, dry_run: bool) -> SparkJob:
    """Count records, bytes, keys, duplicates and late records, by partition and hour.

    \b
    Examples:
      cordwood spark stats orders payments
    """
    from cordwood.spark.jobs.stats import StatsOptions, run_stats

    options = StatsOptions(paths=source_paths(at), topics=tuple(topics), is_dry_run=dry_run)
    return SparkJob(
        run=lambda spark, report: run_stats(spark, options, report), needs_spark=not dry_run
    )


for _command in (compact, verify, stats, export, materialize, ingest, replay):
    spark_app.command(_command.__name__)(_command)
spark_app.command("init-pipeline")(init_pipeline)
