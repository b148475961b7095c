"""Messages on standard error, questions at the terminal, and a closed standard output."""

import contextlib
import os
import sys

import typer

from cordwood.cli.failures import UsageError


def say(text: str) -> None:
    """Print a message for people; standard output is for data."""
    typer.secho(text, err=True)


def warn(text: str) -> None:
    """Print a warning."""
    typer.secho(f"cordwood: {text}", err=True, fg="yellow")


def require_confirmation(question: str, *, is_given: bool) -> None:
    """Return if the user confirms, by ``--yes`` or at the terminal; else end the command.

    Without a terminal, ``--yes`` is required.
    """
    if is_given:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Not a terminal; pass --yes to confirm")
    if not typer.confirm(question, err=True):
        say("cordwood: nothing was changed")
        raise typer.Exit(1)


def discard_stdout() -> None:
    """Send further output nowhere: its reader has ended, as with ``| head``.

    Otherwise the interpreter fails when it flushes standard output at exit.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
