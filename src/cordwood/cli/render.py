"""Output: a table for people, JSON for programs, plain columns for pipes.

Rich is imported only here, and only for a terminal.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from cordwood.cli.readable_values import shown
from cordwood.value_class import dataclass

Advance = Callable[[int], None]
ShowWork = Callable[[int, int | None], None]
Row = dict[str, Any]  # the facts about one thing, by name: what JSON shows of it
ReadRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its heading, which field of a row it shows, and how.

    `field` is the name of the column unless given. JSON shows the raw values of all fields.
    Numbers, and texts that people copy (`is_whole`), are never broken into two lines.
    """

    name: str
    field: str | None = None
    show: Callable[[Any], str] = shown
    is_number: bool = False
    is_whole: bool = False


_TEXT_WIDTH_MIN: Final = 12
_GAPS: Final = (2, 1)  # blanks between columns; one if two do not fit

Columns = Sequence[str | Column]


class Output(Protocol):
    """Where a command prints its rows."""

    def table(self, columns: Columns, rows: Sequence[ReadRow]) -> None:
        """Print `columns` of the rows; JSON prints all fields."""
        ...

    def facts(self, columns: Columns, row: ReadRow) -> None:
        """Print `columns` of one row, each on its own line; JSON prints all fields."""
        ...


class JsonOutput:
    """Prints each row as one JSON object on one line."""

    def table(self, columns: Columns, rows: Sequence[ReadRow]) -> None:
        for row in rows:
            self.facts(columns, row)

    def facts(self, columns: Columns, row: ReadRow) -> None:
        sys.stdout.write(json.dumps(dict(row), default=str) + "\n")


class PlainOutput:
    """Prints aligned columns, without colours and without cutting anything off."""

    def table(self, columns: Columns, rows: Sequence[ReadRow]) -> None:
        chosen = _columns(columns)
        lines = [[column.name for column in chosen], *(_cells(chosen, row) for row in rows)]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            aligned = (
                cell.rjust(width) if column.is_number else cell.ljust(width)
                for column, cell, width in zip(chosen, line, widths, strict=True)
            )
            sys.stdout.write("  ".join(aligned).rstrip() + "\n")

    def facts(self, columns: Columns, row: ReadRow) -> None:
        chosen = _columns(columns)
        width = max(len(column.name) for column in chosen)
        for column, cell in zip(chosen, _cells(chosen, row), strict=True):
            sys.stdout.write(f"{column.name.ljust(width)}  {cell}".rstrip() + "\n")


class PrettyOutput:
    """Prints a table as wide as the terminal, or one block per row if that is too narrow."""

    def table(self, columns: Columns, rows: Sequence[ReadRow]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console, chosen = Console(), _columns(columns)
        lines = [_cells(chosen, row) for row in rows]
        least = _least_widths(chosen, lines)
        gap = next((gap for gap in _GAPS if _width(least, gap) <= console.width), None)
        if rows and gap is None:
            for number, row in enumerate(rows):
                sys.stdout.write("\n" if number else "")
                self.facts(columns, row)
            return
        table = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            padding=(0, (gap or 1) - 1, 0, 0),  # the box adds another blank
            header_style="bold cyan",
        )
        for column in chosen:
            justify: Any = "right" if column.is_number else "left"
            table.add_column(
                column.name,
                overflow="fold",
                justify=justify,
                no_wrap=column.is_number or column.is_whole,
            )
        for line in lines:
            table.add_row(*map(Text, line))  # never as markup
        console.print(table)

    def facts(self, columns: Columns, row: ReadRow) -> None:
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


def _least_widths(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[int]:
    """The widths at which numbers and names stay on one line and texts are readable."""
    widths = []
    for index, column in enumerate(columns):
        natural = max([len(column.name), *(len(line[index]) for line in lines)])
        narrowest = max(len(column.name), _TEXT_WIDTH_MIN)
        is_whole = column.is_number or column.is_whole
        widths.append(natural if is_whole else min(natural, narrowest))
    return widths


def _width(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _columns(columns: Columns) -> list[Column]:
    return [Column(name=column) if isinstance(column, str) else column for column in columns]


def _cells(columns: Sequence[Column], row: ReadRow) -> list[str]:
    return [column.show(row[column.field or column.name]) for column in columns]


def output_for(*, as_json: bool) -> Output:
    """JSON if requested; else a table for a terminal, plain columns for a pipe."""
    if as_json:
        return JsonOutput()
    return PrettyOutput() if sys.stdout.isatty() else PlainOutput()


@contextmanager
def progress_bar(label: str, *, total: int | None, unit: str = "bytes") -> Iterator[Advance]:
    """Show a progress bar on standard error while the block runs, if that is a terminal.

    Yields `advance(count)`. `unit` is what is counted; bytes are shown as MB and MB/s. Without
    a `total` the bar shows how much is done, not how much is left.
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
    """Like `progress_bar`, for work in another process: yields `show(done, total)`, in bytes.

    Nothing is shown before the first call, because most work is done by then.
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
