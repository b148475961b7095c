"""Kafka's own tools, and our broker with TLS, users and access rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.format.small_files.meta_properties import render_properties
from cordwood.testing import Broker, BrokerSecurity, allow
from interop.kafka_peer import KafkaFailedError, KafkaTools

_USERS = {"alice": 'pen"cil\\, = 1', "bob": "x"}


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    rules = [allow("alice"), allow("alice", topic="*"), allow("alice", group="*")]
    with cordwood.Broker(security="sasl_ssl", users=_USERS, acls=rules) as running:
        yield running


def _file(path: Path, properties: dict[str, str]) -> str:
    path.write_text(render_properties(properties))
    return str(path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_the_tools_write_and_read_with_the_properties_that_we_write(
    kafka: KafkaTools, secured: Broker, tmp_path: Path, mechanism: str
) -> None:
    config = _file(tmp_path / "c.properties", secured.java_config("alice", mechanism=mechanism))
    topic = f"t-{mechanism}"
    servers = secured.bootstrap_servers

    kafka.topics(servers, "--create", "--topic", topic, "--command-config", config)
    kafka.console_produce(servers, topic, "one\ntwo\n", "--command-config", config)
    read = kafka.console_consume(servers, topic, 2, "--command-config", config)

    assert read.split() == ["one", "two"]


def test_a_user_without_rules_sees_nothing(
    kafka: KafkaTools, secured: Broker, tmp_path: Path
) -> None:
    secured.store.registry.find("hidden") or secured.create_topic("hidden")
    config = _file(tmp_path / "c.properties", secured.java_config("bob"))

    listed = kafka.topics(secured.bootstrap_servers, "--list", "--command-config", config)

    assert "hidden" not in listed


def test_a_wrong_password_is_refused(kafka: KafkaTools, secured: Broker, tmp_path: Path) -> None:
    properties = secured.java_config("alice")
    properties["sasl.jaas.config"] = secured.java_config("bob")["sasl.jaas.config"].replace(
        "bob", "alice"
    )
    config = _file(tmp_path / "c.properties", properties)

    with pytest.raises(KafkaFailedError, match="SaslAuthenticationException"):
        kafka.topics(secured.bootstrap_servers, "--list", "--command-config", config)


def test_certificates_of_clients(kafka: KafkaTools, tmp_path: Path) -> None:
    with cordwood.Broker(
        security=BrokerSecurity(protocol="ssl", acls=[allow("carol", topic="*")]),
        topics=["orders"],
    ) as broker:
        config = _file(tmp_path / "c.properties", broker.java_config("carol"))

        listed = kafka.topics(broker.bootstrap_servers, "--list", "--command-config", config)

    assert "orders" in listed
