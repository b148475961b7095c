"""Tables for people, programs and pipes."""

import json

import pytest

from varve.cli.render import JsonOutput, PlainOutput, PrettyOutput, output_for

COLUMNS = ("key", "value")
ROWS = [
    {"key": "a", "value": 1, "more": True},
    {"key": "long.key", "value": "[red] y", "more": False},
]


def test_columns_stand_in_line_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    PlainOutput().table(COLUMNS, [*ROWS, {"key": "k", "value": "v" * 500}])

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["key       value", "a         1", "long.key  [red] y"]
    assert lines[3].endswith("v" * 500)


def test_json_has_what_the_columns_leave_out(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().table(COLUMNS, ROWS)

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_a_pretty_table_shows_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    PrettyOutput().table(COLUMNS, ROWS)

    assert "[red] y" in capsys.readouterr().out


def test_a_pipe_gets_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(output_for(as_json=False), PlainOutput)
    assert isinstance(output_for(as_json=True), JsonOutput)
