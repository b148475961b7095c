"""The output for the viewer: titles, facts, checks and tables.

On a terminal it has colours and updates lines in place. Otherwise it prints fewer, plain lines of
at most 80 characters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.recording import Recording

_WIDTH: Final = 80
_PLAIN_INTERVAL_S: Final = 5.0
_REFRESHES_PER_S: Final = 8


class Screen:
    """Prints, and adds checks to the recording. Use it from one thread."""

    def __init__(self, recording: Recording, file: TextIO) -> None:
        self._recording = recording
        self._console = Console(file=file, highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console = Console(
                file=file,
                highlight=False,
                markup=False,
                emoji=False,
                width=_WIDTH,
                color_system=None,
            )

    @property
    def is_live(self) -> bool:
        return self._console.is_terminal

    def headline(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    @contextmanager
    def stage(self, number: int, title: str, what: str) -> Iterator[None]:
        """A numbered part of the run: title, one line of description, then its own output."""
        self._console.print()
        self._console.print(Text.assemble((f"{number}  {title}", "bold cyan")))
        self._console.print(Text(f"   {what}", style="dim"))
        with self._recording.span(title):
            yield

    def say(self, text: str) -> None:
        """Print a fact. Long lines are folded and stay indented."""
        for line in _folded(text, self._console.width - 3):
            self._console.print(f"   {line}", soft_wrap=True)

    def command(self, text: str) -> None:
        """Print a command to type, always in one line."""
        self._console.print(Text(f"   $ {text}", style="green"), soft_wrap=True)

    def check(self, rule: str, held: bool) -> None:
        """Print a promise and whether it held."""
        self._recording.check(rule, held)
        head, style = ("ok ", "bold green") if held else ("NOT", "bold red")
        first, *rest = _folded(rule, self._console.width - 4)
        self._console.print(Text.assemble((head, style), " ", first))
        for line in rest:
            self._console.print(f"    {line}")

    def trouble(self, text: str) -> None:
        for line in text.splitlines():
            self._console.print(Text(f"   {line}", style="yellow"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table. The first column is text, the others are numbers."""
        self._console.print(_table(columns, rows))

    def follow(
        self,
        line: Callable[[], str],
        is_over: Callable[[], bool],
        *,
        rows: Callable[[], tuple[Sequence[str], Sequence[Sequence[str]]]] | None = None,
        timeout_s: float,
        interval_s: float = 0.05,
    ) -> bool:
        """Show `line`, and a table below it, until it `is_over`; False after a timeout.

        Without a terminal the line is printed every few seconds, and both once at the end.
        """
        began_s = said_s = time.monotonic()

        def shown() -> RenderableType:
            text = Text(f"   {line()}")
            return text if rows is None else Group(text, _table(*rows()))

        def wait() -> bool:
            nonlocal said_s
            while not is_over():
                now_s = time.monotonic()
                if now_s - began_s > timeout_s:
                    return False
                if not self.is_live and now_s - said_s >= _PLAIN_INTERVAL_S:
                    said_s = now_s
                    self.say(line())
                time.sleep(interval_s)
            return True

        if not self.is_live:
            is_done = wait()
            self._console.print(shown())
            return is_done
        with Live(get_renderable=shown, console=self._console, refresh_per_second=_REFRESHES_PER_S):
            return wait()


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("  ", width=2)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row("", *row)
    return table


def _folded(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
