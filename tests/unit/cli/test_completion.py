"""What the shell is offered to complete."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine, CommandTarget

SHELLS = ["bash", "zsh", "fish"]


def ask(variable: str, **environment: str) -> str:
    """What the command prints to a shell that asks."""
    done = subprocess.run(
        [sys.executable, "-m", "cordwood"],
        env={**os.environ, "_CORDWOOD_COMPLETE": variable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def complete(
    cli: CommandLine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> "Completion":
    return Completion(cli, monkeypatch)


class Completion:
    """Asks as bash does, in this process."""

    def __init__(self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cli = cli
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str) -> list[str]:
        """What the last word can become."""
        line = ["cordwood", *words]
        with self._monkeypatch.context() as patch:
            patch.setenv("_CORDWOOD_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", shlex.join(line[:-1]) + " " + line[-1])
            patch.setenv("COMP_CWORD", str(len(line) - 1))
            return self._cli().out.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_asks_us(shell: str) -> None:
    script = ask(f"source_{shell}")

    assert "_CORDWOOD_COMPLETE=complete_" + shell in script


def test_the_shell_we_run_in_is_noticed() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m cordwood --show-completion; true"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "complete -o default -F _cordwood_completion cordwood" in done.stdout


def test_the_script_of_bash_completes(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    launcher = tmp_path / "cordwood"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cordwood "$@"\n')
    launcher.chmod(0o755)
    steps = [
        'eval "$(_CORDWOOD_COMPLETE=source_bash cordwood)"',
        f"COMP_WORDS=(cordwood consume --at {shlex.quote(str(tmp_path / 'data'))} or)",
        "COMP_CWORD=4",
        "_cordwood_completion cordwood",
        'echo "${COMPREPLY[@]}"',
    ]

    done = subprocess.run(
        ["bash", "-c", "\n".join(steps)],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["orders"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_in_their_manner(shell: str) -> None:
    answer = ask(
        f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="cordwood serve --durability ",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )

    assert [word for word in ("disk", "os") if word in answer] == ["disk", "os"]


def test_topics_partitions_and_groups_of_the_target_are_completed(
    complete: Completion, target: CommandTarget
) -> None:
    with target.open_store() as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("other")
        store.group("billing").commit({("orders", 0): 0})

    at = ("--at", target.at)

    assert complete("consume", *at, "o") == ["orders", "other"]
    assert complete("consume", *at, "orders", "-p", "") == ["0", "1"]
    assert complete("topics", "describe", *at, "ord") == ["orders"]
    assert complete("groups", "describe", *at, "b") == ["billing"]
    assert complete("consume", *at, "orders", "--group", "") == ["billing"]


@pytest.mark.parametrize("at", ["nowhere", "127.0.0.1:1", "http://x"])
def test_a_target_that_is_not_there_offers_nothing(complete: Completion, at: str) -> None:
    assert complete("consume", "--at", at, "") == []
    assert complete("groups", "describe", "--at", at, "") == []


def test_commands_keys_and_choices_are_completed(complete: Completion) -> None:
    assert complete("to") == ["topics"]
    assert complete("topics", "cr") == ["create"]
    assert complete("topics", "create", "x", "-c", "retention.m") == ["retention.ms="]
    assert complete("serve", "--set", "num.part") == ["num.partitions="]
    assert complete("serve", "--log-level", "e") == ["error"]
    assert complete("bench", "--durability", "") == ["disk", "os"]


def test_a_directory_that_kafka_wrote_has_topics_too(complete: Completion, tmp_path: Path) -> None:
    (tmp_path / "kafka" / "orders-3").mkdir(parents=True)

    assert complete("consume", "--at", str(tmp_path / "kafka"), "") == ["orders"]
