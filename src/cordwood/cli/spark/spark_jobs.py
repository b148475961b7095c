"""``cordwood spark``: jobs over whole topics and stores, on this machine or on a cluster."""

from typing import Annotated

import typer

from cordwood.cli.completion_names import TopicsArgument, complete_topic
from cordwood.cli.spark.spark_run import (
    ConfOption,
    DryRunOption,
    JsonOption,
    MasterOption,
    SourceAtOption,
    StoreAtOption,
    run_job,
    source_paths,
    spark_packages,
    store_paths,
)
from cordwood.cli.spark.spark_topics import ingest, replay
from cordwood.cli.spark.spark_transfer import export, materialize
from cordwood.cli.usage_error import UsageError

spark_app = typer.Typer(
    help="Jobs on Spark: compact, export, materialize, ingest, replay, verify, stats.",
    no_args_is_help=True,
)

TopicArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        autocompletion=complete_topic,
        show_default=False,
        help="Their names; else all.",
    ),
]


@spark_app.callback()
def spark() -> None:
    """Jobs on Spark: compact, export, materialize, ingest, replay, verify, stats."""


@spark_app.command("compact")
def compact(
    topics: TopicArguments = None,
    *,
    at: StoreAtOption = None,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Only logs that the store's own cleaner would compact.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="All that is sealed, clean or not, however young.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds the owner of the store has for each swap.")
    ] = 600.0,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compact topics: the newest record of each key stays, as with the store's own cleaner.

    All compacted topics when none is named. A broker that runs on the directory goes on meanwhile
    and puts the result in place itself.

    \b
    Examples:
      cordwood spark compact accounts --at /srv/data
      cordwood spark compact --if-due --master spark://host:7077
    """
    with spark_packages("compact"):  # it works with Arrow on this side too
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
    run_job(
        lambda spark, report: run_compact(spark, options, report),
        name="compact",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


@spark_app.command("verify")
def verify(
    topics: TopicArguments = None,
    *,
    at: SourceAtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check every batch, record and index of a store or an archive.

    All topics when none is named. Ends with exit code 1 when something is wrong.

    \b
    Examples:
      cordwood spark verify --at /srv/data
      cordwood spark verify orders --at s3://bucket/prefix --json
    """
    from cordwood.spark.jobs.verify import VerifyOptions, run_verify

    options = VerifyOptions(paths=source_paths(at), topics=tuple(topics or ()), is_dry_run=dry_run)
    run_job(
        lambda spark, report: run_verify(spark, options, report),
        name="verify",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


@spark_app.command("stats")
def stats(
    topics: TopicsArgument,
    *,
    at: SourceAtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count records, bytes, keys, duplicates and late records, by partition and hour.

    \b
    Examples:
      cordwood spark stats orders payments
    """
    from cordwood.spark.jobs.stats import StatsOptions, run_stats

    options = StatsOptions(paths=source_paths(at), topics=tuple(topics), is_dry_run=dry_run)
    run_job(
        lambda spark, report: run_stats(spark, options, report),
        name="stats",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


spark_app.command("export")(export)
spark_app.command("materialize")(materialize)
spark_app.command("ingest")(ingest)
spark_app.command("replay")(replay)
