"""Plots of a run, as SVG: ratios as bars, times as bars, growth as lines.

The bar of a ratio shows how many times better Cordwood is than the other system, on a logarithmic
scale: right of 1 Cordwood is ahead, left of 1 the other. The bar of a time shows that time: shorter
is better. A line shows the cost of a unit of work as something grows; it should be flat.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figures
from bench.measure import Row
from bench.report import render_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# By a word in the name of the other system; a name without any is a limit of the machine.
_COLOURS: Final = {
    "Cordwood": "#1f6f43",
    "Kafka": "#3d3d3d",
    "NATS": "#2f7f8f",
    "Redis": "#c9302c",
    "SQLite": "#5b6fa8",
    "Parquet": "#d98a2b",
}
_LIMIT_COLOUR: Final = "#a8a8a8"
_LIMIT: Final = "limit of the machine or of the client"
_BAR_INCHES: Final = 0.22
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text as text: small and searchable
    "svg.hashsalt": "bench",  # the same figures give the same file
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}
_TIME_UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure of a row, and the name of its system."""

    title: str
    name: str
    length: float
    told: str

    @property
    def kind(self) -> str:
        name = self.name.lower()
        return next((word for word in _COLOURS if word.lower() in name), _LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Bars that begin at `start`, in the order of the rows."""

    name: str
    axis: str
    start: float
    bars: tuple[Bar, ...]


# --- the charts -------------------------------------------------------------------------------


def charts_of(suite: str, rows: Sequence[Row]) -> list[Chart]:
    """Charts of ratios, of the server's processor time, and of times."""
    cpu = [row for row in rows if row.title.endswith("server's CPU")]
    times = [row for row in rows if row.unit in _TIME_UNITS_S and row.beside]
    charts = [
        _ratio_chart(suite, [row for row in rows if row not in cpu]),
        _ratio_chart(f"{suite}-cpu", cpu),
        Chart(
            name=f"{suite}-times",
            axis="seconds, shorter is better",
            start=0.0,
            bars=tuple(bar for row in times for bar in _time_bars(row)),
        ),
    ]
    return [chart for chart in charts if chart.bars]


def _ratio_chart(name: str, rows: Sequence[Row]) -> Chart:
    bars = (
        Bar(title=_title(row), name=other.name, length=ratio, told=f"{render_number(ratio)}x")
        for row in rows
        for other in row.beside
        if (ratio := row.ratio_to(other)) > 0
    )
    axis = "times better than what is named; left of 1 the other is ahead"
    return Chart(name=name, axis=axis, start=1.0, bars=tuple(bars))


def _time_bars(row: Row) -> Iterator[Bar]:
    for figure in (row.cordwood, *row.beside):
        if figure.median > 0:
            yield Bar(
                title=_title(row),
                name=figure.name,
                length=figure.median * _TIME_UNITS_S[row.unit],
                told=f"{render_number(figure.median)} {row.unit}",
            )


def _title(row: Row) -> str:
    return row.title if row.durability == "-" else f"{row.title} [{row.durability}]"


def lines_by_growth(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows that have a line, by what grows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.line is not None:
            found.setdefault(row.line.grows, []).append(row)
    return found


# --- drawing ----------------------------------------------------------------------------------


def draw_plots(figures: Figures, directory: Path) -> list[Path]:
    """Draw into `directory`; return the files. Only this needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    with matplotlib.rc_context(_SETTINGS):
        for name, figure in _pictures(figures.rows):
            path = directory / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")
            drawn.append(path)
    return drawn


def _pictures(suites: Mapping[str, Sequence[Row]]) -> "Iterator[tuple[str, Figure]]":
    for suite, rows in suites.items():
        for chart in charts_of(suite, rows):
            yield chart.name, _bar_figure(chart)
        if lines := lines_by_growth(rows):
            yield suite, _line_figure(lines)


def _bar_figure(chart: Chart) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    bars = chart.bars
    figure = Figure(figsize=(9.5, 1.0 + _BAR_INCHES * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(bars))
    axes.barh(
        places,
        [bar.length - chart.start for bar in bars],
        left=chart.start,
        height=0.72,
        color=[_COLOURS.get(bar.kind, _LIMIT_COLOUR) for bar in bars],
    )
    axes.set_xscale("log")
    _scale(axes, chart)
    axes.set_yticks(places, [_label(bars, number) for number in places])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlabel(chart.axis)
    axes.grid(axis="x", which="major", color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    kinds = dict.fromkeys(bar.kind for bar in bars)
    figure.legend(
        handles=[Patch(color=_COLOURS.get(kind, _LIMIT_COLOUR), label=kind) for kind in kinds],
        loc="outside upper right",
        ncols=len(kinds),
        frameon=False,
    )
    return figure


def _scale(axes: "Axes", chart: Chart) -> None:
    """Leave room at both ends for the figures beside the bars."""
    lengths = [bar.length for bar in chart.bars]
    start = chart.start or min(lengths)
    is_left = chart.start and min(lengths) < start
    axes.set_xlim(min(*lengths, start) / (8 if is_left else 1.5), max(*lengths, start) * 4)
    axes.xaxis.set_major_formatter(lambda value, _: render_number(value))
    if chart.start:
        axes.axvline(chart.start, color="black", linewidth=1)
    for number, bar in enumerate(chart.bars):
        is_right = bar.length >= chart.start
        axes.annotate(
            bar.told,
            (bar.length, number),
            xytext=(3 if is_right else -3, 0),
            textcoords="offset points",
            va="center",
            ha="left" if is_right else "right",
            fontsize=7,
        )


def _label(bars: Sequence[Bar], number: int) -> str:
    """The name of the bar's system; the first bar of a row also has the row's title."""
    bar = bars[number]
    is_first = number == 0 or bars[number - 1].title != bar.title
    return f"{bar.title}  |  {bar.name}" if is_first else bar.name


def _line_figure(lines: Mapping[str, Sequence[Row]]) -> "Figure":
    from matplotlib.figure import Figure

    rows_of_plots = -(-len(lines) // 2)
    figure = Figure(figsize=(9.5, 3.2 * rows_of_plots), layout="constrained")
    for number, (grows, rows) in enumerate(lines.items()):
        axes = figure.add_subplot(rows_of_plots, 2, number + 1)
        for row in rows:
            _draw_line(axes, row)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhline(1.0, color="black", linewidth=0.8)
        low, high = axes.get_ylim()
        axes.set_ylim(max(min(low, 0.1), 0.01), max(high, 10.0))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: render_number(value))
        axes.set_xlabel(grows)
        axes.set_ylabel("cost of a unit, at the start 1")
        axes.grid(which="major", color="#e0e0e0", linewidth=0.6)
        axes.legend(frameon=False, fontsize=7, loc="upper right", ncols=2)
    return figure


def _draw_line(axes: "Axes", row: Row) -> None:
    """Draw costs relative to the first, so that different units fit into one plot."""
    assert row.line is not None, row.title
    medians = row.line.medians
    start = next((cost for cost in medians if cost), 1.0)
    axes.plot(
        row.line.sizes,
        [cost / start for cost in medians],
        marker="o",
        markersize=3,
        linewidth=1.2,
        label=row.title.partition(", by ")[0],
    )
