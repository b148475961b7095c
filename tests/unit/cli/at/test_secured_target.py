"""Commands on a protected broker: as its users, with what they may do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.format.small_files.meta_properties import render_properties
from cordwood.testing import Broker, allow
from fakes.command_line import CommandLine


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    rules = [
        allow("admin"),
        allow("admin", topic="*"),
        allow("admin", group="*"),
        allow("reader", "read", topic="orders"),
        allow("reader", "read", group="readers"),
    ]
    with cordwood.Broker(
        security="sasl_ssl",
        users={"admin": "a-secret", "reader": "r-secret"},
        acls=rules,
        topics={"orders": 2, "hidden": 1},
    ) as running:
        running.store.topic("orders").append(b"paid", key=b"42")
        yield running


@pytest.fixture
def options(broker: Broker, tmp_path: Path) -> dict[str, list[str]]:
    """The words that connect as each user."""
    found: dict[str, list[str]] = {}
    for user in ("admin", "reader"):
        path = tmp_path / f"{user}.properties"
        path.write_text(render_properties(broker.java_config(user)))
        found[user] = ["--at", broker.bootstrap_servers, "--command-config", str(path)]
    return found


def test_each_user_sees_what_it_may(cli: CommandLine, options: dict[str, list[str]]) -> None:
    admin = cli.ok("topics", "list", "--json", *options["admin"]).objects
    reader = cli.ok("topics", "list", "--json", *options["reader"]).objects

    assert {row["topic"] for row in admin} == {"orders", "hidden"}
    assert [row["topic"] for row in reader] == ["orders"]
    assert reader[0]["records"] == 1
    assert reader[0]["bytes"] is None  # a right on the cluster shows them


def test_a_reader_reads_and_does_not_write(cli: CommandLine, options: dict[str, list[str]]) -> None:
    read = cli.ok("consume", "orders", *options["reader"])
    found = cli.ok("find", "orders", "42", *options["reader"])
    described = cli.ok("topics", "describe", "orders", *options["reader"])
    written = cli("produce", "orders", *options["reader"], stdin=b"x\n")

    assert read.lines == ["paid"]
    assert "paid" in found.out
    assert "orders" in described.out
    assert written.code == 1
    assert "authorization" in written.err


def test_the_password_comes_from_a_file_or_a_variable(
    cli: CommandLine, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("r-secret\n")
    connection = ["--at", broker.bootstrap_servers, "--ca", broker.ca_file, "--user", "reader"]

    by_file = cli("topics", "list", *connection, "--password-file", "password")
    monkeypatch.setenv("CORDWOOD_PASSWORD", "r-secret")
    by_variable = cli(*connection, "topics", "list", "--mechanism", "scram-sha-512")
    monkeypatch.setenv("CORDWOOD_PASSWORD", "wrong")
    refused = cli("topics", "list", *connection)

    assert (by_file.code, by_variable.code, refused.code) == (0, 0, 1)
    assert "does not accept user 'reader'" in refused.err
    assert "wrong" not in refused.err


def test_names_are_completed_through_the_connection(
    broker: Broker, options: dict[str, list[str]], cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = " ".join(["cordwood", "consume", *options["admin"], ""])
    monkeypatch.setenv("_CORDWOOD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))

    completed = cli()

    assert "orders" in completed.out


def test_a_doctor_gets_in(cli: CommandLine, options: dict[str, list[str]], broker: Broker) -> None:
    healthy = cli("doctor", "--json", *options["admin"]).objects
    stranger = cli("doctor", "--json", "--at", broker.bootstrap_servers, "--ca", broker.ca_file)

    assert next(f for f in healthy if f["name"] == "answers")["verdict"] == "ok"
    refused = next(f for f in stranger.objects if f["name"] == "answers")
    assert refused["verdict"] == "problem"
    assert "require a user" in refused["value"]
