"""What a command makes of a change that was refused, or that it did not wait for."""

import sys

import pytest

import cordwood.library
from cordwood.cli.at.owner_changes import refused
from cordwood.cli.render import work_bar
from cordwood.errors import ChangeRefusedError, ConfigError, LogError
from fakes.command_line import CommandLine


def test_a_refused_setting_is_an_error_of_the_setting() -> None:
    error = refused(ChangeRefusedError("alter-topic", "ConfigError: retention.ms = x: is no time"))

    assert isinstance(error, ConfigError)
    assert (error.key, error.value, error.reason) == ("retention.ms", "x", "is no time")


@pytest.mark.parametrize("reason", ["StorageError: the disk: it is gone", "the disk: it is gone"])
def test_any_other_refusal_is_said_without_the_name_of_its_class(reason: str) -> None:
    error = refused(ChangeRefusedError("roll", reason))

    assert isinstance(error, LogError)
    assert str(error) == "the disk: it is gone"


def test_who_interrupts_is_told_that_an_owner_goes_on(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("topics", "create", "orders")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cordwood.library, "request_change", interrupted)
    ran = cli("roll", "orders")

    assert (ran.code, ran.out) == (130, "")
    assert "it continues the work" in ran.err


def test_work_is_shown_on_a_terminal_once_there_is_something_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with work_bar("copying"):
        pass
    assert "copying" not in capsys.readouterr().err

    with work_bar("copying") as show:
        show(512, 1024)
        show(1024, 1024)

    captured = capsys.readouterr()
    assert "copying" in captured.err
    assert captured.out == ""
