"""The command `cordwood`: its options, its commands, and how it fails.

exit code   meaning
0           done
1           it could not be done: the message says why
2           the command line or a setting is wrong
130, 143    ended by a second interrupt or termination, without a clean stop
"""

import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from cordwood import __version__
from cordwood.cli.command_tree import CommandPlace, group_on_demand
from cordwood.cli.light_option_types import skip_conversion
from cordwood.errors import ConfigError, CordwoodError

# A command: its name, the module and the function or `typer.Typer`, the first line of its help.
COMMANDS: Final = tuple(
    CommandPlace(name=name, place=f"cordwood.cli.{place}", help=text)
    for name, place, text in (
        ("serve", "commands.serve:serve", "Serve a data directory to Kafka clients."),
        ("config", "commands.config_show:config_app", "Look at the configuration."),
        (
            "topics",
            "commands.topics:topics_app",
            "Topics: list, create, describe, alter, trim, delete.",
        ),
        (
            "produce",
            "commands.produce:produce",
            "Append lines to a topic: values, key:value, or JSON.",
        ),
        (
            "consume",
            "commands.consume:consume",
            "Show the records of a topic, the value of each on a line.",
        ),
        (
            "find",
            "commands.find:find",
            "Show the newest record of a key. Exit code 1 where there is none.",
        ),
        ("groups", "commands.groups:groups_app", "Consumer groups: list, describe, reset, delete."),
        (
            "segments",
            "commands.segments:segments",
            "Show the segments of a topic: offsets, bytes, times, state, and why each will go.",
        ),
        (
            "stats",
            "commands.stats:stats",
            "Count what is in a topic: sizes, rates, keys, duplicates, what compaction would save.",
        ),
        (
            "dump",
            "dump.dump_command:dump",
            "Show what is in the files of a log, and how far each is sound. "
            "Exit code 1 for damage.",
        ),
        (
            "verify",
            "commands.verify:verify",
            "Check a whole store: every checksum, record, index and checkpoint. "
            "Exit code 1 for damage.",
        ),
        (
            "retention",
            "commands.retention:retention_app",
            "Retention: what is deleted, when, and why.",
        ),
        (
            "compact",
            "commands.compact:compact",
            "Compact a topic now: of each key the newest record stays.",
        ),
        (
            "roll",
            "commands.roll:roll",
            "Seal the active segments of a topic now, so that new records go into new ones.",
        ),
        (
            "archive",
            "commands.archive:archive",
            "Copy what is due of the topics into their archives now, and show how far each is.",
        ),
        (
            "restore",
            "commands.restore:restore",
            "Bring topics back from their archive: whole, or up to a point in time.",
        ),
        (
            "snapshot",
            "commands.snapshot:snapshot",
            "Copy the store, as it is now, to a new directory that is a store of its own.",
        ),
        (
            "spark",
            "spark.spark_jobs:spark_app",
            "Jobs on Spark: compact, export, materialize, ingest, replay, verify, stats.",
        ),
        (
            "bench",
            "bench.bench_command:bench",
            "Measure appending and reading here: records/s, MB/s and latency, "
            "beside the bare disk's.",
        ),
        (
            "doctor",
            "doctor.doctor_command:doctor",
            "Look for what is wrong or missing here, and say how to mend it. "
            "Exit code 1 on a problem.",
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
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """A segmented commit log that speaks Kafka's protocol."""


def main(arguments: Sequence[str] | None = None) -> None:
    """What the installed command and ``python -m cordwood`` run. Ends in SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = given[: given.index("--")] if "--" in given else given
    is_debugging = "--debug" in options
    if is_debugging:
        given.remove("--debug")  # it may stand anywhere
    _prepare_output()
    try:
        command = typer.main.get_command(app)
        skip_conversion(command)
        command(prog_name="cordwood", args=given)
    except (CordwoodError, OSError) as error:
        if is_debugging:
            raise
        from cordwood.cli.error_text import error_text

        typer.secho(f"cordwood: {error_text(error)}", err=True, fg="red")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _prepare_output() -> None:
    """Whatever is to be said can be said; of reports that nobody has set up, only errors are."""
    if sys.stdout is None or sys.stderr is None:  # closed by who started us
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until the process ends
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know few characters
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.ERROR)
        logging.lastResort.setFormatter(logging.Formatter("cordwood: %(message)s"))
