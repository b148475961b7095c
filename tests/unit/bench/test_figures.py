from __future__ import annotations

from pathlib import Path

from bench.figures import Figures, joined, read_figures, write_figures
from bench.measure import Line, Row, Samples, Target


def _row(title: str = "append", **fields: object) -> Row:
    return Row(
        title=title,
        durability="os",
        unit="µs",
        cordwood=Samples(name="Cordwood", values=(2.0, 3.0)),
        limit=Samples(name="os.write", values=(1.0, 1.5)),
        peers=(Samples(name="SQLite", values=(4.0, 6.0)),),
        target=Target(bound=10.0),
        is_lower_better=True,
        note="two runs",
        others_share=0.01,
        **fields,  # type: ignore[arg-type]
    )


def _figures(suite: str, *rows: Row, **fields: object) -> Figures:
    return Figures(
        is_quick=True,
        machine={"cores": "2"},
        rows={suite: rows},
        **fields,  # type: ignore[arg-type]
    )


def test_what_was_written_is_read_again_with_every_sample(tmp_path: Path) -> None:
    line = Line(grows="segments", unit="ms", sizes=(1.0, 10.0), costs=((1.0, 2.0), (3.0, 4.0)))
    figures = _figures("growth", _row(), _row("open", line=line), broken={"growth: x": "no disk"})
    path = tmp_path / "figures.json"

    write_figures(path, figures)

    assert read_figures(path) == figures


def test_suites_are_joined_in_their_order_with_what_broke_in_each() -> None:
    first = _figures("embedded", _row("a"), broken={"embedded: b": "reason"})
    second = _figures("spark", _row("c"))

    both = joined([first, second])

    assert list(both.rows) == ["embedded", "spark"]
    assert [row.title for row in both.all_rows] == ["a", "c"]
    assert both.broken == {"embedded: b": "reason"}


def test_a_line_tells_the_median_of_each_size() -> None:
    line = Line(grows="MiB", unit="ms", sizes=(1.0, 10.0), costs=((3.0, 1.0, 2.0), (9.0, 7.0, 8.0)))

    assert line.medians == (2.0, 8.0)
