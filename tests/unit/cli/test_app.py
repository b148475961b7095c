"""The command line: what it prints where, and how it ends."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.app import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    return code if isinstance(code, int) else 0 if code is None else 1


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0

    assert capsys.readouterr().out == f"cordwood {cordwood.__version__}\n"


@pytest.mark.parametrize("command", [["--help"], ["serve", "-h"], ["config", "show", "--help"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command) == 0

    assert "Usage: cordwood" in capsys.readouterr().out


def test_an_interrupt_before_the_command_runs_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cordwood.cli.app._typer_command", interrupted)

    assert run("topics", "list") == 130
    assert capsys.readouterr().err == ""


def test_without_a_command_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    run()

    captured = capsys.readouterr()
    assert "serve" in captured.out + captured.err


def test_the_configuration_is_shown_with_the_source_of_each_value(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "cordwood.toml").write_text("log.retention.ms = '7d'\n")
    monkeypatch.setenv("CORDWOOD_NUM_PARTITIONS", "3")

    assert run("config", "show", "--changed", "--set", "port=0") == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["key", "value", "source"],
        ["port", "0", "--set"],
        ["num.partitions", "3", "CORDWOOD_NUM_PARTITIONS"],
        ["log.retention.ms", "604800000", "cordwood.toml"],
    ]


def test_keys_can_be_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "show", "log.roll") == 0

    keys = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert keys == ["key", "log.roll.ms", "log.roll.jitter.ms"]


def test_as_json_everything_about_each_key_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "show", "fetch.max.bytes", "--json") == 0

    assert json.loads(capsys.readouterr().out) == {
        "key": "fetch.max.bytes",
        "value": "57671680",
        "source": "default",
        "default": "57671680",
        "type": "size",
        "environment": "CORDWOOD_FETCH_MAX_BYTES",
        "is_cordwoods_own": False,
        "doc": "The maximum size of the records in one Fetch response, "
        "unless a single batch is larger.",
    }


def test_keys_without_effect_are_named_on_the_side(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "server.properties").write_text("num.network.threads=3\n")

    assert run("config", "show", "--changed", "--config", "server.properties") == 0

    expected = "num.network.threads (from server.properties) is accepted but has no effect\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--set", "prot=1"], "cordwood: prot = 1: unknown key; did you mean port"),
        (["serve", "--port", "70000"], "cordwood: port = 70000: must be 0 to 65535 (from --port)"),
        (
            ["serve", "--durability", "ram"],
            "cordwood: log.durability = ram: must be one of disk, os",
        ),
        (
            ["config", "show", "--config", "none.toml"],
            "cordwood: config = none.toml: cannot be read",
        ),
        (["config", "show", "--set", "port"], "cordwood: --set = port: must be key=value"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


def test_a_wrong_command_line_has_exit_code_2() -> None:
    assert run("serve", "--no-such-flag") == 2
    assert run("no-such-command") == 2


def test_with_debug_an_error_shows_where_it_came_from() -> None:
    with pytest.raises(cordwood.errors.ConfigError):
        main(["--debug", "serve", "--set", "prot=1"])


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys; from cordwood.cli.command_list import app; "
        "print([m for m in ('rich', 'kio', 'prometheus_client', 'pyarrow', "
        "'cordwood.log.store.store', 'cordwood.settings', 'cordwood.broker.server') "
        "if m in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "command", ["config show", "config show --json", "doctor --at localhost:1", "topics --help"]
)
def test_that_nobody_reads_on_is_no_failure(command: str) -> None:
    cordwood_command = f"{shlex.quote(sys.executable)} -m cordwood {command}"

    done = subprocess.run(
        ["bash", "-c", f"{cordwood_command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_a_closed_standard_output_is_no_failure() -> None:
    cordwood_command = f"{shlex.quote(sys.executable)} -m cordwood config show"

    done = subprocess.run(
        ["bash", "-c", f"{cordwood_command} >&-"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_empty_answer_is_explained_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "show", "no.such.key") == 0

    assert capsys.readouterr().err == "no key contains 'no.such.key'\n"


def test_groups_of_commands_list_them_with_the_whole_of_their_first_paragraph(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("topics", "--help") == 0

    text = " ".join(capsys.readouterr().out.split())
    assert "Create topics. A data directory that does not exist is created too." in text
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize("option", ["--dir", "--at"])
def test_an_address_is_not_taken_for_a_directory_to_serve(
    option: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("serve", option, "localhost:9092") == 2

    assert "must be a directory, not an address" in capsys.readouterr().err
    assert list(workplace.iterdir()) == []
