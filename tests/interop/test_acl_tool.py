"""Kafka's own ``kafka-acls`` at our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cordwood
from cordwood.security.access.acl_text import parse_kafka_list, rule_text
from cordwood.security.security_state import AclRule
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools


@pytest.fixture
def guarded() -> Iterator[cordwood.Broker]:
    config = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
    with cordwood.Broker(config=config) as broker:
        yield broker


@pytest.fixture
def tools(kafka: KafkaTools, quick_jvm: tuple[str, ...], guarded: cordwood.Broker) -> JavaTools:
    return JavaTools(kafka, guarded.bootstrap_servers, jvm_options=quick_jvm)


def rules_of(broker: cordwood.Broker) -> frozenset[AclRule]:
    assert broker._server is not None
    return broker._server.security_file.state.rules


def texts_of(broker: cordwood.Broker) -> set[str]:
    return {rule_text(rule) for rule in rules_of(broker)}


def test_rules_are_added_listed_and_removed(tools: JavaTools, guarded: cordwood.Broker) -> None:
    run = tools.attempt(
        *("acls", "--add", "--allow-principal", "User:alice", "--deny-principal", "User:eve"),
        *("--operation", "Read", "--operation", "DescribeConfigs", "--topic", "ord"),
        *("--resource-pattern-type", "prefixed", "--allow-host", "10.0.0.1"),
    )
    assert run.exit_code == 0, run.printed
    added = texts_of(guarded)
    listed = tools.attempt("acls", "--list")
    read = parse_kafka_list(listed.output.splitlines())

    assert added == {
        "ALLOW User:alice READ on TOPIC ord* from 10.0.0.1",
        "ALLOW User:alice DESCRIBE_CONFIGS on TOPIC ord* from 10.0.0.1",
        "DENY User:eve READ on TOPIC ord*",
        "DENY User:eve DESCRIBE_CONFIGS on TOPIC ord*",
    }
    assert set(read) == rules_of(guarded)

    removal = ("acls", "--remove", "--force", "--topic", "ord", "--resource-pattern-type")
    assert tools.attempt(*removal, "prefixed").exit_code == 0
    assert texts_of(guarded) == set()


def test_the_tools_recipes_are_ours(tools: JavaTools, guarded: cordwood.Broker) -> None:
    tools.attempt(
        *("acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders"),
        *("--transactional-id", "tx"),
    )
    tools.attempt(
        *("acls", "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders"),
        *("--group", "billing"),
    )

    assert texts_of(guarded) == {
        "ALLOW User:alice WRITE on TOPIC orders",
        "ALLOW User:alice DESCRIBE on TOPIC orders",
        "ALLOW User:alice CREATE on TOPIC orders",
        "ALLOW User:alice WRITE on TRANSACTIONAL_ID tx",
        "ALLOW User:alice DESCRIBE on TRANSACTIONAL_ID tx",
        "ALLOW User:bob READ on TOPIC orders",
        "ALLOW User:bob DESCRIBE on TOPIC orders",
        "ALLOW User:bob READ on GROUP billing",
    }


def test_without_an_authorizer_the_tool_says_so(
    kafka: KafkaTools, quick_jvm: tuple[str, ...]
) -> None:
    with cordwood.Broker() as broker:
        tools = JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick_jvm)
        run = tools.attempt("acls", "--list")

    assert "SecurityDisabledException" in run.printed
