"""The figures of a run, and their JSON file: every figure with its raw samples."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import Line, Row, Samples, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The rows of one or several suites, measured on one machine in one run."""

    is_quick: bool
    machine: Mapping[str, str]
    rows: Mapping[str, tuple[Row, ...]]  # by suite, in order of measurement
    broken: Mapping[str, str] = field(
        default_factory=dict
    )  # row that could not be measured -> reason

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]


def joined(runs: list[Figures]) -> Figures:
    """Join several runs on the same machine; if a fact occurs twice, the last one counts."""
    return Figures(
        is_quick=all(run.is_quick for run in runs),
        machine={name: fact for run in runs for name, fact in run.machine.items()},
        rows={suite: rows for run in runs for suite, rows in run.rows.items()},
        broken={name: reason for run in runs for name, reason in run.broken.items()},
    )


def write_figures(path: Path, figures: Figures) -> None:
    content = {
        "is_quick": figures.is_quick,
        "machine": dict(figures.machine),
        "broken": dict(figures.broken),
        "rows": [
            {"suite": suite} | _json_of(row) for suite, rows in figures.rows.items() for row in rows
        ],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def read_figures(path: Path) -> Figures:
    """Read the file of `write_figures`."""
    content = json.loads(path.read_text())
    rows: dict[str, tuple[Row, ...]] = {}
    for found in content["rows"]:
        suite = found["suite"]
        rows[suite] = (*rows.get(suite, ()), _row_of(found))
    return Figures(
        is_quick=content["is_quick"],
        machine=content["machine"],
        rows=rows,
        broken=content["broken"],
    )


def _json_of(row: Row) -> dict[str, object]:
    """The fields of the row, and the values computed from them."""
    return asdict(row) | {
        "median": row.cordwood.median,
        "spread": row.cordwood.spread,
        "ratios": {other.name: row.ratio_to(other) for other in row.beside},
        "is_reached": None if row.is_disturbed else row.is_reached,
        "is_disturbed": row.is_disturbed,
    }


def _row_of(found: Mapping[str, Any]) -> Row:
    limit, target, line = found["limit"], found["target"], found["line"]
    return Row(
        title=found["title"],
        durability=found["durability"],
        unit=found["unit"],
        cordwood=_samples_of(found["cordwood"]),
        limit=None if limit is None else _samples_of(limit),
        peers=tuple(_samples_of(peer) for peer in found["peers"]),
        target=None if target is None else Target(**target),
        is_lower_better=found["is_lower_better"],
        note=found["note"],
        others_share=found["others_share"],
        line=None if line is None else _line_of(line),
    )


def _samples_of(found: Mapping[str, Any]) -> Samples:
    return Samples(name=found["name"], values=tuple(found["values"]))


def _line_of(found: Mapping[str, Any]) -> Line:
    return Line(
        grows=found["grows"],
        unit=found["unit"],
        sizes=tuple(found["sizes"]),
        costs=tuple(tuple(values) for values in found["costs"]),
    )
