from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import Figures
from bench.measure import Line, Row, Samples
from bench.plots import charts_of, draw_plots, lines_by_growth


def _row(title: str, unit: str = "MB/s", **beside: float) -> Row:
    return Row(
        title=title,
        durability="os",
        unit=unit,
        cordwood=Samples(name="Cordwood", values=(10.0,)),
        peers=tuple(Samples(name=name, values=(value,)) for name, value in beside.items()),
        is_lower_better=unit == "ms",
    )


def _growing(grows: str) -> Row:
    return Row(
        title=f"append, by {grows}",
        durability="os",
        unit="times",
        cordwood=Samples(name="Cordwood", values=(1.0,)),
        line=Line(grows=grows, unit="µs", sizes=(1.0, 10.0), costs=((2.0,), (2.1,))),
    )


def test_a_bar_is_the_ratio_to_what_it_is_beside() -> None:
    (chart,) = charts_of("broker", [_row("produce", Kafka=5.0, NATS=40.0)])

    assert [(bar.name, bar.length, bar.told) for bar in chart.bars] == [
        ("Kafka", 2.0, "2x"),
        ("NATS", 0.25, "0.25x"),
    ]
    assert (chart.name, chart.start) == ("broker", 1.0)


def test_what_is_no_peer_is_a_limit() -> None:
    (chart,) = charts_of("embedded", [_row("append", write=20.0, SQLite=1.0)])

    assert [bar.kind for bar in chart.bars] == ["limit of the machine or of the client", "SQLite"]


def test_times_are_drawn_as_times_too_with_cordwood_among_them() -> None:
    ratios, times = charts_of("broker", [_row("latency", "ms", Kafka=5.0)])

    assert [bar.length for bar in ratios.bars] == [0.5]
    assert [(bar.name, bar.length) for bar in times.bars] == [("Cordwood", 0.01), ("Kafka", 0.005)]


def test_the_cost_of_the_servers_core_has_a_picture_of_its_own() -> None:
    rows = [_row("produce", Kafka=5.0), _row("produce, server's CPU", "s/M records", Kafka=5.0)]

    charts = charts_of("broker", rows)

    assert [(chart.name, len(chart.bars)) for chart in charts] == [("broker", 1), ("broker-cpu", 1)]


def test_lines_are_gathered_by_what_grows() -> None:
    rows = [_growing("MiB"), _row("append"), _growing("segments"), _growing("MiB")]

    found = lines_by_growth(rows)

    assert {grows: len(lines) for grows, lines in found.items()} == {"MiB": 2, "segments": 1}


@pytest.mark.slow
def test_a_picture_is_a_small_file_and_the_same_figures_draw_the_same(tmp_path: Path) -> None:
    rows = {
        "broker": (_row("produce", Kafka=5.0),),
        "growth": (_growing("MiB"),),
    }
    figures = Figures(is_quick=True, machine={}, rows=rows)

    first = draw_plots(figures, tmp_path / "first")
    second = draw_plots(figures, tmp_path / "second")

    assert [path.name for path in first] == ["broker.svg", "growth.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(path.stat().st_size < 150_000 for path in first)
