"""The command `cordwood`: reads its words and runs what they say."""

import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from cordwood.cli.failures import EXIT_INTERRUPTED, error_text, exit_code
from cordwood.cli.plain_parameters import skip_conversion
from cordwood.cli.serve_words import plain_serve
from cordwood.cli.signals import interrupt_surely
from cordwood.errors import CordwoodError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always ends in SystemExit."""
    if arguments is None:  # this process is ours
        interrupt_surely()
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = given[: given.index("--")] if "--" in given else given
    is_debugging = "--debug" in options
    if is_debugging:
        given.remove("--debug")  # it may be anywhere on the line
    _prepare_output()
    try:
        serve = plain_serve(given, os.environ)
        if serve is None:
            _run_with_typer(given)
        else:
            _run_serve(serve)
    except KeyboardInterrupt:  # before the command could handle it
        sys.exit(EXIT_INTERRUPTED)
    except (CordwoodError, OSError) as error:
        if is_debugging:
            raise
        import typer

        typer.secho(f"cordwood: {error_text(error)}", err=True, fg="red")
        sys.exit(exit_code(error))


def _run_with_typer(words: Sequence[str]) -> None:
    _typer_command()(prog_name="cordwood", args=words)


@cache
def _typer_command() -> Any:
    """The tree of commands. Built once: programs and tests run many commands in one process."""
    from typer.main import get_command

    from cordwood.cli.command_list import app

    command = get_command(app)
    skip_conversion(command)
    return command


def _run_serve(options: Mapping[str, Any]) -> None:
    """Run a broker. Typer takes longer to load than the broker takes to open a store."""
    from cordwood.cli.commands.serve import run_serve

    try:
        run_serve(**options)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)


def _prepare_output() -> None:
    """Make every text printable, and log errors only unless logging is configured."""
    if sys.stdout is None or sys.stderr is None:  # closed by the process that started us
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until the process ends
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack characters
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.ERROR)
        logging.lastResort.setFormatter(logging.Formatter("cordwood: %(message)s"))
