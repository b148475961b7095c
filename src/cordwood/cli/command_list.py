"""The commands of `cordwood`, and its own options."""

from typing import Annotated, Final

import typer

from cordwood import __version__
from cordwood.cli.command_tree import CommandPlace, group_on_demand

# Name, module and function (or `typer.Typer`), first paragraph of the help.
COMMANDS: Final = tuple(
    CommandPlace(name=name, place=f"cordwood.cli.{place}", help=text)
    for name, place, text in (
        ("serve", "commands.serve_command:serve", "Serve a data directory to Kafka clients."),
        (
            "console",
            "commands.console:console",
            "Serve a web page about a store or a broker: messages, segments, groups, plans.",
        ),
        ("config", "commands.config_show:config_app", "Show the configuration."),
        (
            "topics",
            "commands.topics:topics_app",
            "List, create, describe, alter, trim and delete topics.",
        ),
        (
            "produce",
            "commands.produce:produce",
            "Append lines to a topic as records: values, key:value pairs, or JSON.",
        ),
        (
            "consume",
            "commands.consume:consume",
            "Print the records of a topic, one value per line.",
        ),
        (
            "find",
            "commands.find:find",
            "Print the newest record of a key. Exit code 1 if there is none.",
        ),
        (
            "groups",
            "commands.groups:groups_app",
            "List, describe, reset and delete consumer groups.",
        ),
        ("acls", "commands.acls:acls_app", "List, add and remove access rules."),
        (
            "transactions",
            "commands.transactions:transactions_app",
            "List, describe and abort transactions, and find those that hang.",
        ),
        (
            "users",
            "commands.users:users_app",
            "List, add and remove users and their passwords.",
        ),
        (
            "cluster",
            "cluster.cluster_command:cluster_app",
            "Set up a cluster, show its state, and move its partitions.",
        ),
        (
            "quotas",
            "commands.quotas:quotas_app",
            "List, set and remove quotas of users, client ids and addresses.",
        ),
        (
            "client-metrics",
            "commands.client_metrics:client_metrics_app",
            "List, set and remove subscriptions to the metrics of clients.",
        ),
        (
            "segments",
            "commands.segments:segments",
            "Show the segments of a topic: offsets, bytes, times, state, and when each expires.",
        ),
        (
            "stats",
            "commands.stats:stats",
            "Show statistics of a topic: sizes, rates, keys, duplicates, compaction savings.",
        ),
        (
            "dump",
            "dump.dump_command:dump",
            "Print the contents of log files and check them. Exit code 1 if one is damaged.",
        ),
        (
            "verify",
            "commands.verify:verify",
            "Check every checksum, record, index and checkpoint of a store. "
            "Exit code 1 if something is damaged.",
        ),
        (
            "retention",
            "commands.retention:retention_app",
            "Explain what retention deletes, when, and why.",
        ),
        (
            "compact",
            "commands.compact:compact",
            "Compact a topic now, keeping only the newest record of each key.",
        ),
        (
            "roll",
            "commands.roll:roll",
            "Seal the active segments of a topic now; new records go into new segments.",
        ),
        (
            "archive",
            "commands.archive:archive",
            "Archive all segments that are due now, and show the progress of each partition.",
        ),
        (
            "restore",
            "commands.restore:restore",
            "Restore topics from an archive, completely or up to a point in time.",
        ),
        (
            "snapshot",
            "commands.snapshot:snapshot",
            "Copy the store, as it is now, to a new directory.",
        ),
        (
            "spark",
            "spark.spark_command:spark_app",
            "Run Spark jobs: compact, export, materialize, ingest, replay, verify, stats; "
            "init-pipeline.",
        ),
        (
            "bench",
            "bench.bench_command:bench",
            "Measure how fast this machine or broker appends and reads, compared with the bare "
            "disk.",
        ),
        (
            "doctor",
            "doctor.doctor_command:doctor",
            "Look for problems with the installation, the machine, a store or a broker, and say "
            "how to fix them. Exit code 1 if there is a problem.",
        ),
    )
)

app = typer.Typer(
    cls=group_on_demand(COMMANDS),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"cordwood {__version__}")
        raise typer.Exit


@app.callback()
def cordwood(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """A segmented commit log that speaks Kafka's protocol."""
