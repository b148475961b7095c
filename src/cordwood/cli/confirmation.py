"""Asking before something is gone for good."""

import sys

import typer

from cordwood.cli.usage_error import UsageError


def require_assent(question: str, *, is_given: bool) -> None:
    """Go on if it was given on the command line or at the terminal; else end, nothing done.

    Where nobody can be asked, it has to be on the command line.
    """
    if is_given:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here: give --yes to have it done")
    if not typer.confirm(question, err=True):
        typer.secho("cordwood: nothing was changed", err=True)
        raise typer.Exit(1)
