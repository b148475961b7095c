"""How results look: a table for people, JSON for programs, plain columns for pipes.

Rich is imported here and nowhere else, and only for a terminal.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Output(Protocol):
    """Where a command puts its rows."""

    def table(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Show `columns` of the rows; JSON has everything that is in them."""
        ...


class JsonOutput:
    """A JSON array with one object per row."""

    def table(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        sys.stdout.write(json.dumps([dict(row) for row in rows], indent=2, default=str) + "\n")


class PlainOutput:
    """Columns in line, nothing cut off or coloured."""

    def table(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        lines = [tuple(columns), *(tuple(str(row[name]) for name in columns) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            sys.stdout.write("  ".join(cells).rstrip() + "\n")


class PrettyOutput:
    """A table as wide as the terminal."""

    def table(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(row[name])) for name in columns))  # never as markup
        Console().print(table)


def output_for(*, as_json: bool) -> Output:
    """JSON where it is asked for; else what suits the standard output."""
    if as_json:
        return JsonOutput()
    return PrettyOutput() if sys.stdout.isatty() else PlainOutput()
