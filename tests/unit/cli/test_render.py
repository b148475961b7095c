"""Tables for people, programs and pipes."""

import json

import pytest

from cordwood.cli.render import Column, JsonOutput, PlainOutput, PrettyOutput, output_for

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


NUMBERS = (
    "topic",
    Column(name="records", is_number=True),
    Column(name="end_offset", is_number=True),
    "config",
)


def test_a_terminal_that_is_too_narrow_for_a_table_gets_a_block_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    rows = [
        {"topic": "a" * 40, "records": 1234567, "end_offset": 1, "config": "-"},
        {"topic": "b", "records": 2, "end_offset": 2, "config": "-"},
    ]

    PrettyOutput().table(NUMBERS, rows)

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("topic       aaa")
    assert "records     1234567" in lines
    assert "".join(lines).count("a") == 40
    assert lines.count("") == 1


def test_numbers_are_never_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    row = {"topic": "t" * 50, "records": 1234567, "end_offset": 7654321, "config": "c" * 50}

    PrettyOutput().table(NUMBERS, [row])

    out = capsys.readouterr().out
    assert "1234567" in out
    assert "7654321" in out
    assert out.count("t") >= 50


def test_names_that_people_copy_are_never_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "group.consumer.heartbeat.interval.ms"
    columns = (Column(name="key", is_whole=True), "value", "source")

    PrettyOutput().table(columns, [{"key": name, "value": "5 " * 30, "source": "default"}])

    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(name) for line in lines)
    assert max(map(len, lines)) <= 60


def test_columns_move_closer_before_a_table_becomes_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    columns = [Column(name=f"column{n}", is_number=True) for n in range(7)]
    row = {column.name: n for n, column in enumerate(columns)}

    PrettyOutput().table(columns, [row])

    head, _, values = capsys.readouterr().out.splitlines()
    assert head.split() == [column.name for column in columns]
    assert values.split() == [*"0123456"]
