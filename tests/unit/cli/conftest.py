"""Commands run in this process, on directories and brokers alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine, CommandTarget, StoreLease
from fakes.prompt_owner import look_often

KINDS = ["directory", "owned directory", "broker", "directory of a broker"]


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Commands in a directory of their own, without a target."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORDWOOD_AT", raising=False)
    return CommandLine(capsys, monkeypatch)


@pytest.fixture(params=KINDS)
def target(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandTarget]:
    """An empty store in each of the ways that a command may find it."""
    look_often(monkeypatch)
    kind = request.param
    path = tmp_path / "data"
    if kind == "directory":
        path.mkdir()
        yield CommandTarget(
            kind=kind,
            at=str(path),
            open_store=lambda: StoreLease(cordwood.open(path), closes=True),
        )
    elif kind == "owned directory":
        with cordwood.open(path) as store:
            yield CommandTarget(
                kind=kind, at=str(path), open_store=lambda: StoreLease(store, closes=False)
            )
    else:
        with cordwood.Broker(path) as broker:
            yield CommandTarget(
                kind=kind,
                at=broker.bootstrap_servers if kind == "broker" else str(path),
                open_store=lambda: StoreLease(broker.store, closes=False),
            )


@pytest.fixture
def on_target(
    cli: CommandLine,
    target: CommandTarget,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    """Commands that work on the target."""
    return CommandLine(capsys, monkeypatch, at=target.at)
