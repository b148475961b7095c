"""``cordwood acls``, on a directory and on a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from fakes.command_line import CommandLine

KAFKA_LIST = """\
Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:
 \t(principal=User:CN=alice, OU=x, host=*, operation=READ, permissionType=ALLOW)
\t(principal=User:bob, host=10.0.0.1, operation=DESCRIBE_CONFIGS, permissionType=DENY)

Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=bill, patternType=PREFIXED)`:
 \t(principal=User:*, host=*, operation=ALL, permissionType=ALLOW)
"""


@pytest.fixture(params=["directory", "broker"])
def acls(
    request: pytest.FixtureRequest,
    cli: CommandLine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CommandLine]:
    if request.param == "directory":
        (tmp_path / "data").mkdir()
        yield CommandLine(capsys, monkeypatch, at=str(tmp_path / "data"))
        return
    config = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
    with cordwood.Broker(config=config) as broker:
        yield CommandLine(capsys, monkeypatch, at=broker.bootstrap_servers)


def listed(acls: CommandLine, *options: str) -> list[tuple[str, ...]]:
    names = ("permission", "principal", "operation", "resource", "pattern", "name", "host")
    rules = acls.ok("acls", "list", "--json", *options).objects
    return [tuple(rule[name] for name in names) for rule in rules]


def test_a_consumer_gets_what_it_needs(acls: CommandLine) -> None:
    acls.ok(
        *("acls", "add", "--allow-principal", "User:alice", "--consumer"),
        *("--topic", "orders", "--group", "billing", "--allow-host", "::1"),
    )

    assert sorted(listed(acls)) == [
        ("ALLOW", "User:alice", "DESCRIBE", "TOPIC", "LITERAL", "orders", "::1"),
        ("ALLOW", "User:alice", "READ", "GROUP", "LITERAL", "billing", "::1"),
        ("ALLOW", "User:alice", "READ", "TOPIC", "LITERAL", "orders", "::1"),
    ]


def test_a_producer_gets_what_it_needs(acls: CommandLine) -> None:
    acls.ok(
        *("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "ord"),
        *("--transactional-id", "tx", "--cluster", "--resource-pattern-type", "prefixed"),
    )

    assert {(op, kind, pattern, name) for _, _, op, kind, pattern, name, _ in listed(acls)} == {
        ("WRITE", "TOPIC", "PREFIXED", "ord"),
        ("DESCRIBE", "TOPIC", "PREFIXED", "ord"),
        ("CREATE", "TOPIC", "PREFIXED", "ord"),
        ("WRITE", "TRANSACTIONAL_ID", "PREFIXED", "tx"),
        ("DESCRIBE", "TRANSACTIONAL_ID", "PREFIXED", "tx"),
        ("IDEMPOTENT_WRITE", "CLUSTER", "LITERAL", "kafka-cluster"),
    }


def test_without_an_operation_a_rule_is_about_all(acls: CommandLine) -> None:
    acls.ok("acls", "add", "--deny-principal", "User:eve", "--topic", "*")

    assert listed(acls) == [("DENY", "User:eve", "ALL", "TOPIC", "LITERAL", "*", "*")]


def test_rules_are_found_by_what_they_are_about(acls: CommandLine) -> None:
    add = ("acls", "add", "--allow-principal", "User:alice", "--operation", "describe-configs")
    acls.ok(*add, "--topic", "orders")
    acls.ok(*add, "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls.ok(*add, "--cluster")

    match = ("--topic", "orders", "--resource-pattern-type", "match")
    assert [rule[5] for rule in listed(acls, *match)] == ["orders", "ord"]
    assert [rule[5] for rule in listed(acls, "--topic", "orders")] == ["orders"]
    assert [rule[5] for rule in listed(acls, "--cluster")] == ["kafka-cluster"]
    assert listed(acls, "--principal", "User:bob") == []


def test_a_removal_is_confirmed_and_removes_what_matches(acls: CommandLine) -> None:
    add = ("acls", "add", "--allow-principal", "User:alice", "--allow-principal", "User:bob")
    acls.ok(*add, "--topic", "orders", "--operation", "read", "--operation", "write")
    remove = ("acls", "remove", "--allow-principal", "User:alice", "--topic", "orders")

    unconfirmed = acls(*remove)
    dry = acls.ok(*remove, "--dry-run")
    count = len(listed(acls))
    acls.ok(*remove, "--operation", "read", "--yes")

    assert unconfirmed.code == 2
    assert "remove 2 access rules?" in unconfirmed.err
    assert "nothing was changed" in dry.err
    assert count == 4
    assert sorted(rule[1:3] for rule in listed(acls)) == [
        ("User:alice", "WRITE"),
        ("User:bob", "READ"),
        ("User:bob", "WRITE"),
    ]
    assert acls("acls", "remove", "--topic", "missing", "--yes").code == 0


def test_a_dry_run_adds_nothing(acls: CommandLine) -> None:
    acls.ok("acls", "add", "--allow-principal", "User:alice", "--topic", "orders", "--dry-run")

    assert listed(acls) == []


def test_the_list_of_kafka_is_read(acls: CommandLine) -> None:
    acls.ok("acls", "add", "--from-list", "-", stdin=KAFKA_LIST.encode())

    assert listed(acls) == [
        ("ALLOW", "User:CN=alice, OU=x", "READ", "TOPIC", "LITERAL", "orders", "*"),
        ("DENY", "User:bob", "DESCRIBE_CONFIGS", "TOPIC", "LITERAL", "orders", "10.0.0.1"),
        ("ALLOW", "User:*", "ALL", "GROUP", "PREFIXED", "bill", "*"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "orders"), "name somebody with --allow-principal"),
        (("--allow-principal", "User:a"), "name a resource"),
        (("--allow-principal", "a", "--topic", "t"), "must be type:name"),
        (("--allow-principal", "User:a", "--topic", "t", "--operation", "x"), "'x' is not one of"),
        (("--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --group"),
        (("--allow-principal", "User:a", "--producer", "--group", "g"), "need --topic"),
        (
            ("--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
            "MATCH is for filters",
        ),
        (("--allow-principal", "User:a", "--topic", "t", "--allow-host", "x"), "IP address"),
        (("--from-list", "-"), "line 1: 'rubbish' is not a line of kafka-acls"),
    ],
)
def test_a_wrong_command_line_is_explained(
    cli: CommandLine, options: tuple[str, ...], message: str
) -> None:
    ran = cli("acls", "add", "--at", "data", *options, stdin=b"rubbish\n")

    assert ran.code == 2
    assert message in ran.err


def test_a_broker_without_an_authorizer_says_so(cli: CommandLine) -> None:
    with cordwood.Broker() as broker:
        ran = cli("acls", "list", "--at", broker.bootstrap_servers)

    assert ran.code == 1
    assert "authorizer.class.name" in ran.err


def test_a_directory_that_a_broker_serves_is_changed_through_the_broker(
    cli: CommandLine, tmp_path: Path
) -> None:
    with cordwood.Broker(tmp_path / "data"):
        ran = cli("acls", "list", "--at", str(tmp_path / "data"))

    assert ran.code == 1
    assert "--at host:port" in ran.err
