"""What `cordwood doctor` finds out, and how it is shown: by area, with a verdict and advice."""

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final

import typer

from cordwood.value_class import dataclass


class Verdict(StrEnum):
    """OK: as it should be. NOTE: worth knowing. WARNING: works, less well. PROBLEM: fix it."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked. `advice` says what to do; it is empty if nothing is to do."""

    area: str
    name: str
    value: str
    verdict: Verdict = Verdict.OK
    advice: str = ""


_COLORS: Final = {
    Verdict.OK: "green",
    Verdict.NOTE: "cyan",
    Verdict.WARNING: "yellow",
    Verdict.PROBLEM: "red",
}
_MARK_WIDTH: Final = max(len(verdict) for verdict in Verdict)
_WIDTH_MIN: Final = 60


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> bool:
    """Show all findings; return whether one of them is a problem."""
    if as_json:
        _show_json(findings)
    else:
        width = _line_width()
        for area, members in groupby(findings, key=lambda finding: finding.area):
            typer.secho(area, bold=True)
            _show_area(list(members), width)
            typer.echo()
        _show_summary(findings)
    return any(finding.verdict is Verdict.PROBLEM for finding in findings)


def _show_json(findings: Sequence[Finding]) -> None:
    from cordwood.cli.render import JsonOutput

    rows = [
        {
            "area": finding.area,
            "name": finding.name,
            "verdict": finding.verdict.value,
            "value": finding.value,
            "advice": finding.advice,
        }
        for finding in findings
    ]
    JsonOutput().table((), rows)


def _line_width() -> int:
    """The width of the terminal; lines to a pipe are not wrapped."""
    if not sys.stdout.isatty():
        return sys.maxsize
    return max(shutil.get_terminal_size().columns, _WIDTH_MIN)


def _show_area(findings: Sequence[Finding], width: int) -> None:
    name_width = max(len(finding.name) for finding in findings)
    indent = 2 + _MARK_WIDTH + 2 + name_width + 2
    for finding in findings:
        mark = typer.style(finding.verdict.ljust(_MARK_WIDTH), fg=_COLORS[finding.verdict])
        texts = [finding.value, *([f"→ {finding.advice}"] if finding.advice else [])]
        lines = [line for text in texts for line in _wrapped(text, width - indent)]
        typer.echo(f"  {mark}  {finding.name.ljust(name_width)}  {lines[0]}")
        for line in lines[1:]:
            typer.echo(" " * indent + line)


def _wrapped(text: str, width: int) -> list[str]:
    if width > len(text):
        return [text]
    return textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False) or [""]


def _show_summary(findings: Sequence[Finding]) -> None:
    counts = Counter(finding.verdict for finding in findings)
    problems, warnings = counts[Verdict.PROBLEM], counts[Verdict.WARNING]
    if not problems and not warnings:
        typer.secho("no problems found", fg="green")
        return
    parts = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((problems, "problem"), (warnings, "warning"))
        if count
    ]
    typer.secho(", ".join(parts), fg="red" if problems else "yellow")
