"""What ``--at`` names."""

from pathlib import Path

import pytest

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target, parse_target
from cordwood.errors import ConfigError
from fakes.command_line import CommandLine


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with some things in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("store", "second", "odd:9092", "a,b"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    return tmp_path


def directory(*paths: str) -> DirectoryTarget:
    return DirectoryTarget(paths=paths)


def broker(*addresses: tuple[str, int]) -> BrokerTarget:
    return BrokerTarget(addresses=addresses)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store", directory("store")),
        ("./store", directory("./store")),
        (" store ", directory("store")),
        ("store,second", directory("store", "second")),
        ("a,b", directory("a,b")),
        ("odd:9092", directory("odd:9092")),
        ("localhost:9092", broker(("localhost", 9092))),
        ("10.0.0.1:1", broker(("10.0.0.1", 1))),
        ("[::1]:9092", broker(("::1", 9092))),
        (":9092", broker(("127.0.0.1", 9092))),
        ("a:1, b:2", broker(("a", 1), ("b", 2))),
    ],
)
def test_a_target_is_a_directory_or_a_broker(text: str, expected: Target) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", "directory none does not exist; a broker is written as host:port"),
        ("./none", "directory ./none does not exist"),
        ("file", "file is a file, not a data directory"),
        ("store,none", "directory none does not exist"),
        ("localhost:70000", "port must be 1 to 65535"),
        ("localhost:0", "port must be 1 to 65535"),
        ("s3://bucket/orders", "not a URL"),
    ],
)
def test_what_is_neither_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_target(text)


def test_without_a_target_it_is_data_where_that_is_there(workplace: Path) -> None:
    with pytest.raises(ConfigError, match=r"\./data does not exist; pass a directory"):
        parse_target(None)

    (workplace / "data").mkdir()

    assert parse_target(None) == parse_target("") == directory("data")


def test_a_directory_may_be_new_for_who_creates_it() -> None:
    assert parse_target("./new", may_be_new=True) == directory("./new")
    assert parse_target(None, may_be_new=True) == directory("data")
    with pytest.raises(ConfigError, match=r"localhost:9092 for a broker"):
        parse_target("localhost", may_be_new=True)


def test_a_target_is_shown_as_it_was_given() -> None:
    assert str(parse_target("store,second")) == "store,second"
    assert str(parse_target("[::1]:9092,a:1")) == "[::1]:9092,a:1"


def test_the_environment_names_the_target(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("topics", "create", "orders", "--at", "./store")
    monkeypatch.setenv("CORDWOOD_AT", "store")

    assert [row["topic"] for row in cli.ok("topics", "list", "--json").objects] == ["orders"]
    cli.ok("config", "show", "--changed")  # the variable is no setting


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["produce", "orders"],
        ["consume", "orders"],
        ["find", "orders", "k"],
        ["groups", "list"],
    ],
    ids=" ".join,
)
def test_a_broker_that_does_not_answer_is_told_in_one_line(
    cli: CommandLine, command: list[str]
) -> None:
    ran = cli(*command, "--at", "127.0.0.1:1")

    assert ran.code == 1
    assert ran.err.startswith("cordwood: no broker answers at 127.0.0.1:1: Connection refused; ")
