"""The words of `cordwood serve` mean the same with and without Typer."""

import inspect
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cordwood.cli import app as command
from cordwood.cli.command_list import COMMANDS
from cordwood.cli.commands import serve, serve_command
from cordwood.cli.serve_words import PLAIN_OPTIONS, plain_serve

NOTHING: Mapping[str, str] = {}


def through_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Typer passes to `run_serve`, as values of builtin types."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(serve_command, "run_serve", lambda **options: calls.append(options))
    with pytest.raises(SystemExit) as ended:
        command._run_with_typer(words)
    assert not ended.value.code
    (found,) = calls
    return {name: _builtin(value) for name, value in found.items()}


def _builtin(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return (list(value) or None) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "line",
    [
        "serve",
        "serve --dir data --port 9093",
        "serve --dir=data --port=0 --host=::1",
        "serve --at a --dir b --at c",
        "serve --set a=b --set=c=d=e",
        "serve --host a --host b",
        "serve --advertised-host log.example.org --advertised-port 19092",
        "serve --durability os --metrics-port 9600 --log-format json --log-level debug",
        "serve --otel-endpoint http://localhost:4318 --insecure",
        "serve --config etc/cordwood.toml --processes 4",
        "serve --host 'a b' --dir é",
        "serve --port 000009",
    ],
)
def test_plain_words_mean_what_typer_makes_of_them(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line)
    parameters = inspect.signature(serve.run_serve).parameters.values()
    defaults = {each.name: each.default for each in parameters}

    found = plain_serve(words, NOTHING)

    assert found is not None
    assert {**defaults, **found} == through_typer(words, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "topics list",
        "--at data serve",
        "serve --help",
        "serve -h",
        "serve data",
        "serve --port",
        "serve --port nine",
        "serve --port -1",
        "serve --port ٩",
        "serve --port 1_0",
        "serve --port ''",
        "serve --host --port 1",
        "serve --por 1",
        "serve -b a:1",
        "serve --insecure=yes",
        "serve --secure",
        "serve --console",
        "serve -- --port 1",
    ],
)
def test_all_other_words_are_left_to_typer(line: str) -> None:
    assert plain_serve(shlex.split(line), NOTHING) is None


def test_words_that_a_shell_completes_are_left_to_typer() -> None:
    assert plain_serve(["serve"], {"_CORDWOOD_COMPLETE": "complete_bash"}) is None


def test_every_plain_option_is_one_of_the_command() -> None:
    place = next(each for each in COMMANDS if each.name == "serve")
    known = {name: each.name for each in place.load().params for name in each.opts}

    assert {name: known[name] for name in PLAIN_OPTIONS} == dict(PLAIN_OPTIONS)


def test_an_interrupt_before_the_broker_handles_signals_ends_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(**options: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(serve, "run_serve", interrupted)

    with pytest.raises(SystemExit) as ended:
        command.main(["serve"])

    assert ended.value.code == 130
