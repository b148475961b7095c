"""The command `varve`: its options, its commands, and how it fails.

exit code   meaning
0           done
1           it could not be done: the message says why
2           the command line or a setting is wrong
130, 143    ended by a second interrupt or termination, without a clean stop
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from varve import __version__
from varve.cli.config_show import config_app
from varve.cli.serve import serve
from varve.errors import ConfigError, VarveError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
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


def main(arguments: Sequence[str] | None = None) -> None:
    """What the installed command and ``python -m varve`` run. Ends in SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(prog_name="varve", args=given)
    except (VarveError, OSError) as error:
        if "--debug" in given:
            raise
        lines = [str(error), *getattr(error, "__notes__", [])]
        typer.secho(f"varve: {'; '.join(lines)}", err=True, fg="red")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
