"""Messages on standard error, questions at the terminal, and a closed standard output."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import typer

from cordwood.cli.failures import UsageError


def say(text: str) -> None:
    """Print a message for people; standard output is for data."""
    _tell(text)


def warn(text: str) -> None:
    """Print a warning."""
    _tell(f"cordwood: {text}", fg="yellow")


def _tell(text: str, **style: Any) -> None:
    """A message that nobody reads any more, as with ``2>&1 | head``, ends no command."""
    try:
        typer.secho(text, err=True, **style)
    except BrokenPipeError:
        _discard(sys.stderr)


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
    _discard(sys.stdout)


@contextlib.contextmanager
def shown_before_a_change() -> Iterator[None]:
    """Around output that comes before the work of a command.

    If its reader has ended, the work is still done, and the exit code tells how it went.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def _discard(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
