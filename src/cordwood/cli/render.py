"""How results look: a table for people, JSON for programs, plain columns for pipes.

Rich is imported here and nowhere else, and only for a terminal.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cordwood.cli.readable_values import shown

Advance = Callable[[int], None]
ShowWork = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: which value of a row, and how people read it. JSON has it raw."""

    name: str
    show: Callable[[Any], str] = shown
    is_number: bool = False


_TEXT_WIDTH_MIN: Final = 12

Columns = Sequence[str | Column]
Row = Mapping[str, Any]


class Output(Protocol):
    """Where a command puts its rows."""

    def table(self, columns: Columns, rows: Sequence[Row]) -> None:
        """Show `columns` of the rows; JSON has everything that is in them."""
        ...

    def facts(self, columns: Columns, row: Row) -> None:
        """Show `columns` of one thing, a line for each; JSON has everything that is in it."""
        ...


class JsonOutput:
    """One JSON object per line, for each row."""

    def table(self, columns: Columns, rows: Sequence[Row]) -> None:
        for row in rows:
            self.facts(columns, row)

    def facts(self, columns: Columns, row: Row) -> None:
        sys.stdout.write(json.dumps(dict(row), default=str) + "\n")


class PlainOutput:
    """Columns in line, nothing cut off or coloured."""

    def table(self, columns: Columns, rows: Sequence[Row]) -> None:
        chosen = _columns(columns)
        lines = [[column.name for column in chosen], *(_cells(chosen, row) for row in rows)]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            aligned = (
                cell.rjust(width) if column.is_number else cell.ljust(width)
                for column, cell, width in zip(chosen, line, widths, strict=True)
            )
            sys.stdout.write("  ".join(aligned).rstrip() + "\n")

    def facts(self, columns: Columns, row: Row) -> None:
        chosen = _columns(columns)
        width = max(len(column.name) for column in chosen)
        for column, cell in zip(chosen, _cells(chosen, row), strict=True):
            sys.stdout.write(f"{column.name.ljust(width)}  {cell}".rstrip() + "\n")


class PrettyOutput:
    """A table as wide as the terminal; where that is too narrow for one, a block for each row."""

    def table(self, columns: Columns, rows: Sequence[Row]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console, chosen = Console(), _columns(columns)
        lines = [_cells(chosen, row) for row in rows]
        if rows and _least_width(chosen, lines) > console.width:
            for number, row in enumerate(rows):
                sys.stdout.write("\n" if number else "")
                self.facts(columns, row)
            return
        table = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            padding=(0, 1, 0, 0),  # and the box has another blank: two between columns
            header_style="bold cyan",
        )
        for column in chosen:
            justify: Any = "right" if column.is_number else "left"
            table.add_column(
                column.name, overflow="fold", justify=justify, no_wrap=column.is_number
            )
        for line in lines:
            table.add_row(*map(Text, line))  # never as markup
        console.print(table)

    def facts(self, columns: Columns, row: Row) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        chosen = _columns(columns)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for column, cell in zip(chosen, _cells(chosen, row), strict=True):
            table.add_row(Text(column.name), Text(cell))
        Console().print(table)


def _least_width(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> int:
    """How wide a table must be for numbers to stay whole and texts to be readable."""
    widths = []
    for index, column in enumerate(columns):
        natural = max(len(column.name), *(len(line[index]) for line in lines))
        narrowest = max(len(column.name), _TEXT_WIDTH_MIN)
        widths.append(natural if column.is_number else min(natural, narrowest))
    return sum(widths) + 2 * (len(widths) - 1)


def _columns(columns: Columns) -> list[Column]:
    return [Column(name=column) if isinstance(column, str) else column for column in columns]


def _cells(columns: Sequence[Column], row: Row) -> list[str]:
    return [column.show(row[column.name]) for column in columns]


def output_for(*, as_json: bool) -> Output:
    """JSON where it is asked for; else what suits the standard output."""
    if as_json:
        return JsonOutput()
    return PrettyOutput() if sys.stdout.isatty() else PlainOutput()


@contextmanager
def progress_bar(label: str, *, total: int | None, unit: str = "bytes") -> Iterator[Advance]:
    """A bar on standard error while the block runs, where that is a terminal.

    Yields `advance(count)`. `unit` is what is counted; bytes are shown as MB and MB/s. Without
    a `total` the bar says how much was done, not how much is left.
    """
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich import progress
    from rich.console import Console

    amounts: list[progress.ProgressColumn] = (
        [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        if unit == "bytes"
        else [progress.MofNCompleteColumn(), progress.TextColumn(unit)]
    )
    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        *amounts,
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def work_bar(label: str) -> Iterator[ShowWork]:
    """As `progress_bar`, for work that someone else does: yields `show(done, total)`, of bytes.

    Nothing is shown before the first call: most work is over by then.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(binary_units=True),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(label, total=None)

    def show(done: int, total: int | None) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
