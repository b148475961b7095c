"""Tables for people."""

from collections.abc import Sequence

from bench.figures import Figures
from bench.measure import DISTURBED_SHARE, Row, Samples, Target

_HEADINGS = ("row", "durability", "Cordwood", "compared with", "ratio", "target", "others", "")


def render_machine(figures: Figures, *, runs: int) -> str:
    facts = dict(figures.machine) | {
        "runs": f"{runs} after a warm-up; median, ± half the spread; above 1: Cordwood is ahead"
    }
    return "\n".join(f"{name + ':':10}{fact}" for name, fact in facts.items())


def render_tables(figures: Figures, *, as_markdown: bool = False) -> str:
    """A table for each suite, with titles if there are several."""
    render = render_markdown if as_markdown else render_table
    if len(figures.rows) == 1:
        return render(figures.all_rows)
    heading = "### {}\n\n{}" if as_markdown else "{}\n\n{}"
    return "\n\n".join(heading.format(suite, render(rows)) for suite, rows in figures.rows.items())


def render_summary(figures: Figures, *, taken_s: float | None) -> str:
    """The number of reached targets, the rows not judged, and the failures."""
    aimed = [row for row in figures.all_rows if row.target is not None]
    judged = [row for row in aimed if not row.is_disturbed]
    lines = [
        f"{sum(row.is_reached is True for row in judged)} of {len(judged)} targets reached"
        + ("" if taken_s is None else f", in {taken_s:.0f} s")
        + (" (--quick: small sizes, rough figures)" if figures.is_quick else "")
    ]
    if len(judged) < len(aimed):
        lines.append(
            f"{len(aimed) - len(judged)} not judged: other processes took more than "
            f"{DISTURBED_SHARE:.0%} of the machine while they were measured"
        )
    lines += [f"BROKEN: {name}: {reason}" for name, reason in figures.broken.items()]
    return "\n".join(lines)


def render_table(rows: Sequence[Row]) -> str:
    """Plain text, one line per row and one for each further comparison."""
    lines = [line for row in rows for line in _lines(row)]
    widths = [max(len(line[n]) for line in [_HEADINGS, *lines]) for n in range(len(_HEADINGS))]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([_align(_HEADINGS, widths), rule, *(_align(line, widths) for line in lines)])


def render_markdown(rows: Sequence[Row]) -> str:
    """The same table for docs/performance.md."""
    lines = [_HEADINGS, ("---",) * len(_HEADINGS), *(line for row in rows for line in _lines(row))]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def render_notes(rows: Sequence[Row]) -> str:
    """Notes on rows whose title does not say everything."""
    return "\n".join(f"  {row.title}: {row.note}" for row in rows if row.note)


def _lines(row: Row) -> list[tuple[str, ...]]:
    beside = row.beside
    first = beside[0] if beside else None
    lines: list[tuple[str, ...]] = [
        (
            row.title,
            row.durability,
            _figure(row.cordwood, row.unit),
            "" if first is None else f"{first.name}: {_figure(first, row.unit)}",
            "" if first is None else _ratio(row.ratio_to(first)),
            _target(row),
            "" if row.others_share is None else f"{row.others_share:.0%}",
            _verdict(row),
        )
    ]
    lines += [
        (
            "",
            "",
            "",
            f"{other.name}: {_figure(other, row.unit)}",
            _ratio(row.ratio_to(other)),
            "",
            "",
            "",
        )
        for other in beside[1:]
    ]
    return lines


def _figure(figure: Samples, unit: str) -> str:
    return f"{render_number(figure.median)} {unit} ±{figure.spread / 2:.0%}"


def render_number(value: float) -> str:
    """A number with three significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _ratio(value: float) -> str:
    return f"{render_number(value)}x"


def _target(row: Row) -> str:
    target: Target | None = row.target
    if target is None:
        return ""
    if target.is_ratio:
        return f">= {render_number(target.bound)}x"
    return f"{'<' if row.is_lower_better else '>='} {render_number(target.bound)} {row.unit}"


def _verdict(row: Row) -> str:
    if row.is_disturbed and row.target is not None:
        return "not judged"
    return {None: "", True: "reached", False: "FALLS SHORT"}[row.is_reached]


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()
