"""The tree of commands: listed without being loaded, and what starting one of them costs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import cordwood
from cordwood.cli.command_list import COMMANDS
from cordwood.cli.command_tree import CommandPlace
from cordwood.cli.plain_parameters import skip_conversion
from fakes.command_line import CommandLine

HEAVY = (
    "asyncio",
    "deltalake",
    "kio",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "rich",
)
RUN = """
import json, sys
from cordwood.cli.app import main
try:
    main(sys.argv[2:])
except SystemExit as ended:
    assert not ended.code, ended.code
found = [name for name in json.loads(sys.argv[1]) if name in sys.modules]
print(json.dumps(found), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    with cordwood.open(path) as store:
        store.create_topic("orders", partitions=2).append(b"paid", key=b"1")
        store.group("billing").commit({("orders", 0): 0})
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["topics", "--help"],
        ["consume", "--help"],
        ["config", "show"],
        ["topics", "list", "--at", "STORE"],
        ["topics", "describe", "orders", "--at", "STORE"],
        ["groups", "list", "--at", "STORE"],
        ["groups", "describe", "billing", "--at", "STORE", "--json"],
        ["consume", "orders", "-n", "1", "--at", "STORE"],
        ["find", "orders", "1", "--at", "STORE"],
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str], store_path: Path) -> None:
    given = [str(store_path) if word == "STORE" else word for word in arguments]

    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(HEAVY), *given],
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stderr.splitlines()[-1]) == []


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from cordwood.cli.app import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in sys.modules if m.startswith('cordwood.cli.')], file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    known = (
        "app",
        "command_list",
        "command_tree",
        "failures",
        "habits",
        "plain_parameters",
        "serve_words",
        "signals",
        "terminal",
    )
    assert sorted(eval(done.stderr)) == [f"cordwood.cli.{name}" for name in known]


@pytest.mark.parametrize("place", COMMANDS, ids=lambda place: place.name)
def test_what_the_list_says_of_a_command_is_what_its_help_says_first(place: CommandPlace) -> None:
    command = place.load()

    first = command.help.split("\n\n")[0].replace("\n", " ")
    assert place.help == first


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(cli: CommandLine) -> None:
    ran = cli("topcs")

    assert ran.code == 2
    assert "No such command 'topcs'. Did you mean 'topics'?" in ran.err


def test_the_singular_of_a_command_is_understood_too(cli: CommandLine) -> None:
    ran = cli.ok("topic", "--help")

    assert ran.out.startswith("Usage: cordwood topic [OPTIONS] COMMAND")


class TestValues:
    """With and without Typer's own conversion the same comes out."""

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--text", "a", "--number", "3", "--many", "x", "--many", "y"],
            ["--number", "-0", "--path", "p", "--share", "0.5", "--flag", "--many", ""],
            ["--number", "11"],
            ["--number", "1_0"],
            ["--number", "x"],
            ["--number", "٣"],
            ["--several", "1", "--several", "2", "free", "words"],
            ["--no-such"],
        ],
    )
    @pytest.mark.parametrize("text", [None, "from the environment"])
    def test_values_are_what_typer_makes_of_them(
        self,
        arguments: list[str],
        text: str | None,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        if text is not None:
            monkeypatch.setenv("CLI_TEXT", text)

        assert outcome(arguments, capsys, is_plain=True) == outcome(
            arguments, capsys, is_plain=False
        )


def outcome(
    arguments: list[str], capsys: pytest.CaptureFixture[str], *, is_plain: bool
) -> tuple[list[Any], Any, str]:
    seen: list[Any] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    def run(
        words: Annotated[list[str] | None, typer.Argument()] = None,
        *,
        text: Annotated[str | None, typer.Option(envvar="CLI_TEXT")] = None,
        number: Annotated[int, typer.Option(min=-1, max=10)] = 7,
        several: Annotated[list[int] | None, typer.Option()] = None,
        many: Annotated[list[str] | None, typer.Option()] = None,
        share: float = 0.25,
        path: Path | None = None,
        flag: bool = False,
    ) -> None:
        seen.append((words, text, number, several, many, share, path, flag))

    command = typer.main.get_command(app)
    if is_plain:
        skip_conversion(command)
    with pytest.raises(SystemExit) as ended:
        command(args=arguments, prog_name="test")
    return seen, ended.value.code, capsys.readouterr().err
