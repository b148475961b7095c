"""The segments of a partition over time, on one line of text.

     0  |.....|.....|=====|==|=####
        2026-11-15 09:30     10:30

All partitions share one time axis. If two segments fall on the same character, because they are
short or hold late records, the newer one is drawn.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import typer

from cordwood.cli.readable_values import shown_time
from cordwood.cli.render import Row

LEGEND: Final = "| new segment  . archived  - compacted  = sealed  # active  x expires now"

_COLUMNS_MIN: Final = 20
_COLUMNS_MAX: Final = 160
_MARGIN: Final = 2


class _Look(NamedTuple):
    fill: str
    colour: str


_LOOKS: Final = {
    "archived": _Look(".", "blue"),
    "compacted": _Look("-", "magenta"),
    "sealed": _Look("=", "cyan"),
    "active": _Look("#", "green"),
}
_EXPIRED: Final = _Look("x", "red")


class Timeline:
    """A time axis over all `rows`, `columns` characters wide with its labels."""

    def __init__(self, rows: Sequence[Row], *, columns: int) -> None:
        self._rows = [row for row in rows if row["last_timestamp_ms"] is not None]
        starts = [_first_ms(row) for row in self._rows]
        self.has_times = bool(self._rows)
        self._start_ms = min(starts, default=0)
        self._end_ms = max((row["last_timestamp_ms"] for row in self._rows), default=0)
        self._label = max((len(str(row["partition"])) for row in rows), default=1)
        room = min(columns, _COLUMNS_MAX) - self._label - _MARGIN
        self._width = max(room, _COLUMNS_MIN)

    def line(self, partition: int, *, is_coloured: bool = False) -> str:
        """The segments of one partition."""
        cells: list[tuple[str, str]] = [(" ", "")] * self._width
        for row in self._rows:
            if row["partition"] != partition:
                continue
            look = _look(row)
            first, last = self._cell(_first_ms(row)), self._cell(row["last_timestamp_ms"])
            for cell in range(first, last + 1):
                is_start = cell == first and first < last
                cells[cell] = ("|" if is_start else look.fill, look.colour)
        text = (
            "".join(typer.style(c, fg=colour) if colour else c for c, colour in cells)
            if is_coloured
            else "".join(character for character, _ in cells)
        )
        return f"{partition:>{self._label}}{' ' * _MARGIN}{text.rstrip()}"

    def axis(self) -> str:
        """The first and the last time, at the two ends of the axis."""
        first, last = shown_time(self._start_ms)[:19], shown_time(self._end_ms)[:19]
        if last[:10] == first[:10]:
            last = last[11:]
        gap = max(self._width - len(first) - len(last), 1)
        return f"{' ' * (self._label + _MARGIN)}{first}{' ' * gap}{last}"

    def _cell(self, time_ms: int) -> int:
        span_ms = max(self._end_ms - self._start_ms, 1)
        return min((time_ms - self._start_ms) * self._width // span_ms, self._width - 1)


def _first_ms(row: Row) -> int:
    """Where the drawing starts: the first record may be newer than the rest, or have no time."""
    first: int | None = row["first_timestamp_ms"]
    last: int = row["last_timestamp_ms"]
    return last if first is None else min(first, last)


def _look(row: Row) -> _Look:
    return _EXPIRED if row["verdict"] == "delete" else _LOOKS[row["state"]]
