"""The command `varve`: its options, its commands, and how it fails.

exit code   meaning
0           done
1           it could not be done: the message says why
2           the command line or a setting is wrong
130, 143    ended by a second interrupt or termination, without a clean stop
"""

import io
import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from varve import __version__
from varve.cli.config_show import config_app
from varve.cli.consume import consume
from varve.cli.find import find
from varve.cli.groups import groups_app
from varve.cli.produce import produce
from varve.cli.serve import serve
from varve.cli.spark_jobs import spark_app
from varve.cli.topics import topics_app
from varve.errors import ConfigError, VarveError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"varve {__version__}")
        raise typer.Exit


@app.callback()
def varve(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """A segmented commit log that speaks Kafka's protocol."""


app.command("serve")(serve)
app.add_typer(config_app, name="config")
app.add_typer(topics_app, name="topics")
app.command("produce")(produce)
app.command("consume")(consume)
app.command("find")(find)
app.add_typer(groups_app, name="groups")
app.add_typer(spark_app, name="spark")


def main(arguments: Sequence[str] | None = None) -> None:
    """What the installed command and ``python -m varve`` run. Ends in SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = given[: given.index("--")] if "--" in given else given
    is_debugging = "--debug" in options
    if is_debugging:
        given.remove("--debug")  # it may stand anywhere
    _prepare_output()
    try:
        app(prog_name="varve", args=given)
    except (VarveError, OSError) as error:
        if is_debugging:
            raise
        lines = [str(error), *getattr(error, "__notes__", [])]
        typer.secho(f"varve: {'; '.join(lines)}", err=True, fg="red")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _prepare_output() -> None:
    """Whatever is to be said can be said; of reports that nobody has set up, only errors are."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know few characters
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.ERROR)
        logging.lastResort.setFormatter(logging.Formatter("varve: %(message)s"))
