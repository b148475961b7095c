"""A run goes on when something breaks. The suites here are modules made for the test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import bench.suite_run
from bench.measure import Context, Row, Samples
from bench.suite_run import measure_suite, measure_suites


def _row(title: str) -> Row:
    return Row(
        title=title, durability="-", unit="s", cordwood=Samples(name="Cordwood", values=(1.0,))
    )


def _breaks(context: Context) -> list[Row]:
    raise OSError("the disk is gone")


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> str:
    """A suite of three makers, of which the second breaks."""
    makers: dict[str, Callable[[Context], list[Row]]] = {
        "first": lambda context: [_row("first")],
        "second": _breaks,
        "third": lambda context: [_row("third")],
    }
    module = ModuleType("bench.made_up")
    module.row_makers = lambda: makers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.made_up", module)
    # The memory of a whole run is more than a test should ask the machine for.
    monkeypatch.setattr(bench.suite_run, "warm_memory", lambda path, size: None)
    return "made_up"


def test_rows_after_one_that_breaks_are_measured(suite: str, tmp_path: Path) -> None:
    figures = measure_suite(suite, tmp_path, is_quick=True, only="")

    assert [row.title for row in figures.rows[suite]] == ["first", "third"]
    assert figures.broken == {"made_up: second": "OSError: the disk is gone"}


def test_only_the_rows_that_were_asked_for_are_measured(suite: str, tmp_path: Path) -> None:
    figures = measure_suite(suite, tmp_path, is_quick=True, only="ir")

    assert [row.title for row in figures.rows[suite]] == ["first", "third"]
    assert not figures.broken


def test_rows_that_do_not_exist_are_refused_with_those_that_do(suite: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="first, second, third"):
        measure_suite(suite, tmp_path, is_quick=True, only="fourth")


def test_a_suite_whose_process_fails_is_reported_and_the_next_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return 3

    monkeypatch.setattr(bench.suite_run, "_run", run)

    figures = measure_suites(["embedded", "growth"], tmp_path, is_quick=True)

    assert [command[3] for command in commands] == ["embedded", "growth"]
    assert all("--quick" in command for command in commands)
    assert set(figures.broken) == {"embedded", "growth"}
    assert "3" in figures.broken["growth"]
