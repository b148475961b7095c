from __future__ import annotations

import pytest

from bench.figures import Figures
from bench.measure import Row, Samples, Target
from bench.report import render_number, render_summary, render_tables


def _row(title: str, value: float, *, others_share: float = 0.0) -> Row:
    return Row(
        title=title,
        durability="disk",
        unit="MB/s",
        cordwood=Samples(name="Cordwood", values=(value,)),
        peers=(Samples(name="Kafka", values=(10.0,)), Samples(name="NATS", values=(40.0,))),
        target=Target(bound=15.0),
        others_share=others_share,
    )


def _figures(**rows: tuple[Row, ...]) -> Figures:
    return Figures(is_quick=False, machine={}, rows=rows)


def test_everything_beside_a_row_has_a_line_and_a_ratio() -> None:
    table = render_tables(_figures(broker=(_row("produce", 20.0),)))

    assert "Kafka: 10 MB/s" in table
    assert "2x" in table
    assert "NATS: 40 MB/s" in table
    assert "0.5x" in table


def test_several_suites_have_a_table_each_under_their_names() -> None:
    figures = _figures(broker=(_row("a", 1.0),), spark=(_row("b", 1.0),))

    table = render_tables(figures, as_markdown=True)

    assert table.index("### broker") < table.index("| a |") < table.index("### spark")


def test_the_summary_counts_targets_and_leaves_disturbed_rows_unjudged() -> None:
    rows = (_row("a", 20.0), _row("b", 10.0), _row("c", 20.0, others_share=0.5))

    said = render_summary(_figures(broker=rows), taken_s=12.3)

    assert said.startswith("1 of 2 targets reached, in 12 s")
    assert "1 not judged" in said


def test_the_summary_names_what_broke_and_why() -> None:
    figures = Figures(is_quick=True, machine={}, rows={}, broken={"broker: start": "no port"})

    assert "BROKEN: broker: start: no port" in render_summary(figures, taken_s=None)


@pytest.mark.parametrize(
    ("value", "told"), [(12345.6, "12,346"), (123.4, "123"), (1.234, "1.23"), (0.01234, "0.0123")]
)
def test_a_number_is_told_with_three_digits(value: float, told: str) -> None:
    assert render_number(value) == told
