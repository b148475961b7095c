"""The table that people read and the file that programs read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.measure import Row, Samples, Target

_HEADINGS = ("row", "durability", "Varve", "beside it", "ratio", "target", "others", "")


def render_table(rows: Sequence[Row]) -> str:
    """Plain text, a line for each row and one for each thing beside it."""
    lines = [line for row in rows for line in _lines(row)]
    widths = [max(len(line[n]) for line in [_HEADINGS, *lines]) for n in range(len(_HEADINGS))]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([_align(_HEADINGS, widths), rule, *(_align(line, widths) for line in lines)])


def render_markdown(rows: Sequence[Row]) -> str:
    """The same table for docs/performance.md."""
    lines = [_HEADINGS, ("---",) * len(_HEADINGS), *(line for row in rows for line in _lines(row))]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def render_notes(rows: Sequence[Row]) -> str:
    """What a row measures, where its title does not say all of it."""
    return "\n".join(f"  {row.title}: {row.note}" for row in rows if row.note)


def write_json(
    path: Path, machine: Mapping[str, str], rows: Sequence[Row], *, suite: str, is_quick: bool
) -> None:
    """Every figure, with the raw samples."""
    content = {
        "suite": suite,
        "is_quick": is_quick,
        "machine": dict(machine),
        "rows": [_figures(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _figures(row: Row) -> dict[str, object]:
    beside = [*([] if row.limit is None else [row.limit]), *row.peers]
    return asdict(row) | {
        "median": row.varve.median,
        "spread": row.varve.spread,
        "ratios": {other.name: row.ratio_to(other) for other in beside},
        "is_reached": None if row.is_disturbed else row.is_reached,
        "is_disturbed": row.is_disturbed,
    }


def _lines(row: Row) -> list[tuple[str, ...]]:
    beside = [*([] if row.limit is None else [row.limit]), *row.peers]
    first = beside[0] if beside else None
    lines: list[tuple[str, ...]] = [
        (
            row.title,
            row.durability,
            _figure(row.varve, row.unit),
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
    return f"{_number(figure.median)} {unit} ±{figure.spread / 2:.0%}"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _ratio(value: float) -> str:
    return f"{_number(value)}x"


def _target(row: Row) -> str:
    target: Target | None = row.target
    if target is None:
        return ""
    if target.is_ratio:
        return f">= {_number(target.bound)}x"
    return f"{'<' if row.is_lower_better else '>='} {_number(target.bound)} {row.unit}"


def _verdict(row: Row) -> str:
    if row.is_disturbed and row.target is not None:
        return "not judged"
    return {None: "", True: "reached", False: "FALLS SHORT"}[row.is_reached]


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()
