"""``cordwood quotas``, on a directory without a broker and through a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine


@pytest.fixture(params=["directory", "broker"])
def quotas(
    request: pytest.FixtureRequest,
    cli: CommandLine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CommandLine]:
    path = tmp_path / "data"
    if request.param == "directory":
        path.mkdir()
        yield CommandLine(capsys, monkeypatch, at=f"{path}/")
        return
    with cordwood.Broker(path) as broker:
        yield CommandLine(capsys, monkeypatch, at=broker.bootstrap_servers)


def test_quotas_are_set_listed_and_removed(quotas: CommandLine) -> None:
    set_one = quotas.ok(
        "quotas", "set", "--user", "alice", "producer_byte_rate=10MiB", "request_percentage=12.5"
    )
    quotas.ok("quotas", "set", "--default-user", "--client-id", "etl", "consumer_byte_rate=1000")
    quotas.ok("quotas", "set", "--default-ip", "connection_creation_rate=20")

    listed = quotas.ok("quotas", "list", "--json").objects

    assert "user alice: producer_byte_rate set to 10485760" in set_one.err + set_one.out
    assert [
        (row["user"], row["client_id"], row["ip"], row["key"], row["limit"]) for row in listed
    ] == [
        (None, None, "", "connection_creation_rate", 20),
        ("", "etl", None, "consumer_byte_rate", 1000),
        ("alice", None, None, "producer_byte_rate", 10485760),
        ("alice", None, None, "request_percentage", 12.5),
    ]
    assert "<default>" in quotas.ok("quotas", "list").out
    quotas.ok("quotas", "remove", "--user", "alice", "request_percentage")
    quotas.ok("quotas", "remove", "--default-ip")
    left = quotas.ok("quotas", "list", "--json").objects
    assert [row["key"] for row in left] == ["consumer_byte_rate", "producer_byte_rate"]


def test_a_removed_quota_is_shown_as_json(quotas: CommandLine) -> None:
    quotas.ok("quotas", "set", "--ip", "::FFFF:10.0.0.1", "connection_creation_rate=5")

    [row] = quotas.ok("quotas", "remove", "--ip", "10.0.0.1", "--json").objects

    assert row == {
        "user": None,
        "client_id": None,
        "ip": "10.0.0.1",
        "limits": {"connection_creation_rate": None},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "alice", "speed=1"], "unknown key"),
        (["--user", "alice", "producer_byte_rate=0"], "at least 1"),
        (["--user", "alice", "request_percentage=-1"], "greater than 0"),
        (["--user", "alice", "request_percentage=much"], "must be a number"),
        (["--user", "alice", "producer_byte_rate"], "not KEY=LIMIT"),
        (["--user", "User:alice", "producer_byte_rate=1"], "without User:"),
        (["--user", "alice", "--default-user", "producer_byte_rate=1"], "not both"),
        (["--ip", "here", "connection_creation_rate=1"], "not an IP address"),
        (["--ip", "::1", "--user", "a", "connection_creation_rate=1"], "cannot be combined"),
        (["producer_byte_rate=1"], "whose quota"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(
    cli: CommandLine, tmp_path: Path, arguments: list[str], message: str
) -> None:
    ran = cli("quotas", "set", *arguments, "--at", f"{tmp_path}/data")

    assert ran.code != 0
    assert message in " ".join(ran.err.split())


def test_a_quota_that_does_not_exist_cannot_be_removed(quotas: CommandLine) -> None:
    quotas.ok("quotas", "set", "--user", "alice", "producer_byte_rate=1")

    unknown = quotas("quotas", "remove", "--user", "bob")
    other = quotas("quotas", "remove", "--user", "alice", "request_percentage")

    assert unknown.code == other.code == 2
    assert "no such quota" in unknown.err


def test_a_directory_with_a_broker_is_not_changed_behind_its_back(
    cli: CommandLine, tmp_path: Path
) -> None:
    with cordwood.Broker(tmp_path / "data"):
        ran = cli("quotas", "list", "--at", f"{tmp_path}/data")

    assert ran.code == 1
    assert "through the broker" in " ".join(ran.err.split())


def test_a_broker_without_quotas_says_so(quotas: CommandLine) -> None:
    ran = quotas.ok("quotas", "list")

    assert "no quotas yet" in ran.err + ran.out
