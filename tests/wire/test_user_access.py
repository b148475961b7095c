"""Users with passwords and their rights: SASL and access rules together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import cordwood
from fakes.command_line import CommandLine
from wire.sasl_brokers import ALICE, PASSWORD, add_users, sasl_broker

Options = dict[str, str | int | float | bool]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[cordwood.Broker]:
    config = {"authorizer.class.name": "standard", "super.users": "User:admin"}
    with sasl_broker(tmp_path, config, topics=["orders", "other"]) as running:
        add_users(running, (ALICE, PASSWORD), ("admin", "admin-secret"))
        yield running


def options(broker: cordwood.Broker, user: str, password: str) -> Options:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def produced(client: Options, topic: str) -> int:
    """The error code of a produce; 0 if it was accepted. A producer remembers refusals."""
    producer = Producer(client)
    found: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(30) == 0
    [error] = found
    return 0 if error is None else error.code()


def test_a_user_may_do_what_the_super_user_allows(broker: cordwood.Broker) -> None:
    admin = AdminClient(options(broker, "admin", "admin-secret"))
    alice = options(broker, ALICE, PASSWORD)
    binding = AclBinding(
        ResourceType.TOPIC,
        "ord",
        ResourcePatternType.PREFIXED,
        f"User:{ALICE}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )

    before = produced(alice, "orders")
    admin.create_acls([binding])[binding].result(30)
    after = produced(alice, "orders")
    other = produced(alice, "other")

    assert before == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert after == 0
    assert other == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_rules_are_changed_by_a_command_that_logs_in(
    broker: cordwood.Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def client(user: str, password: str) -> tuple[str, ...]:
        file = tmp_path / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{password}";\n'
        )
        file.chmod(0o600)
        return "--command-config", str(file)

    command = CommandLine(capsys, monkeypatch, at=broker.bootstrap_servers)
    add = ("acls", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")

    refused = command(*add, *client(ALICE, PASSWORD))
    command.ok(*add, *client("admin", "admin-secret"))

    assert refused.code == 1
    assert "cluster_authorization_failed" in refused.err
    assert produced(options(broker, ALICE, PASSWORD), "orders") == 0
