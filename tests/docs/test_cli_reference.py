"""docs/cli.md is up to date and contains every command."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "build_support" / "cli_reference.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


REFERENCE = load_script()
COMMANDS = REFERENCE.documented_commands()


def test_the_reference_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    code = REFERENCE.main(["--check"])

    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_every_command_says_what_it_does_with_an_example(
    path: tuple[str, ...], command: Any
) -> None:
    text, examples = REFERENCE.split_help(command)

    assert text
    assert examples
    assert all(f"cordwood {' '.join(path)}" in example for example in examples)
    assert f"\n## cordwood {' '.join(path)}\n" in REFERENCE.REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_every_option_and_argument_says_what_it_is_for(path: tuple[str, ...], command: Any) -> None:
    silent = [parameter.name for parameter in command.params if not parameter.help]

    assert silent == []


def test_every_command_that_works_on_data_takes_a_target_and_gives_json() -> None:
    without_target = {"cluster controllers", "cluster format", "config show", "dump"}
    without_json = {"console", "serve"}

    for path, command in COMMANDS:
        options = {option for parameter in command.params for option in parameter.opts}
        name = " ".join(path)
        assert ("--at" in options) == (name not in without_target), name
        assert ("--json" in options) == (name not in without_json), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with --follow they", "with `--follow` they"),
        ("as `a --b` and _x_", "as `a --b` and \\_x\\_"),
        ("[log.dirs] a|b", "\\[log.dirs\\] a\\|b"),
    ],
)
def test_text_is_not_taken_as_markdown(text: str, expected: str) -> None:
    assert REFERENCE.escaped_text(text) == expected
