"""Two runs are compared in plain words, and only beyond the spread of their samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare import compare, main
from bench.figures import Figures, write_figures
from bench.measure import Row, Samples


def row(title: str, *values: float, lower: bool = False, unit: str = "MB/s") -> Row:
    return Row(
        title=title,
        durability="os",
        unit=unit,
        cordwood=Samples(name="Cordwood", values=values),
        is_lower_better=lower,
    )


def run(*rows: Row, quick: bool = False, cores: str = "2") -> Figures:
    return Figures(is_quick=quick, machine={"cores": cores}, rows={"embedded": rows})


def test_a_row_that_became_faster_is_better_and_a_slower_one_worse() -> None:
    old = run(row("append", 100, 110), row("scan", 100, 110))
    new = run(row("append", 150, 160), row("scan", 40, 50))

    lines = compare(old, new)

    assert lines == [
        "worse: embedded: scan (os): 105 ±5% -> 45 MB/s ±11%, 57% less",
        "better: embedded: append (os): 105 ±5% -> 155 MB/s ±3%, 48% more",
        "1 better, 1 worse, 0 within their spread, of 2 rows in both",
    ]


def test_of_a_latency_less_is_better() -> None:
    lines = compare(
        run(row("append p99", 10, 11, lower=True, unit="µs")),
        run(row("append p99", 30, 31, lower=True, unit="µs")),
    )

    assert lines[0].startswith("worse: embedded: append p99 (os): 10.5")
    assert lines[0].endswith("2.9 times as much")


@pytest.mark.parametrize("values", [(100, 130), (129, 140), (90, 101), (110, 120)])
def test_samples_that_overlap_are_no_change(values: tuple[float, float]) -> None:
    lines = compare(run(row("append", 100, 130)), run(row("append", *values)))

    assert lines == ["0 better, 0 worse, 1 within their spread, of 1 rows in both"]


@pytest.mark.parametrize(("value", "count"), [(105, 0), (95, 0), (112, 1), (89, 1)])
def test_one_sample_has_no_spread_and_needs_a_tenth(value: float, count: int) -> None:
    lines = compare(run(row("memory", 100)), run(row("memory", value)))

    assert len(lines) == 1 + count


def test_rows_of_one_side_are_listed() -> None:
    lines = compare(
        run(row("gone", 1, 2), row("same", 1, 2)), run(row("same", 1, 2), row("added", 1, 2))
    )

    assert lines == [
        "only in the old run: embedded: gone (os)",
        "only in the new run: embedded: added (os)",
        "0 better, 0 worse, 1 within their spread, of 1 rows in both",
    ]


def test_a_row_whose_unit_changed_is_not_compared() -> None:
    lines = compare(run(row("scan", 1, 2)), run(row("scan", 1000, 2000, unit="KB/s")))

    assert lines[0] == "not compared: embedded: scan (os): the unit was MB/s, it is KB/s"
    assert lines[-1].endswith("of 0 rows in both")


def test_what_else_differs_between_the_runs_is_said() -> None:
    lines = compare(run(row("a", 1, 2)), run(row("a", 1, 2), quick=True, cores="8"))

    assert "note: one of the runs is --quick, with smaller sizes" in lines
    assert "note: the runs differ in: cores" in lines


def test_a_figure_that_was_zero_is_no_division_by_zero() -> None:
    lines = compare(run(row("lost", 0, 0, lower=True)), run(row("lost", 5, 6, lower=True)))

    assert lines[0].endswith("was 0")


def test_the_command_reads_files_and_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_figures(old, run(row("append", 100, 110)))
    write_figures(new, run(row("append", 10, 11)))

    assert main([str(old), str(new)]) == 0

    assert "worse: embedded: append" in capsys.readouterr().out


def test_files_that_are_missing_or_something_else_are_named(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for arguments, message in (
        (["a"], "usage"),
        ([str(tmp_path / "no"), str(other)], "does not exist"),
        ([str(other), str(other)], "was not written by --json"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(arguments)
