"""Kafka's tool for users, and Java's clients as users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.protocol.api_catalog import API_CATALOG
from cordwood.security.security_state import ScramMechanism, UserCredential
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools
from wire.sasl_brokers import add_users, sasl_broker

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
MODULES = "org.apache.kafka.common.security"
DESCRIBE_CLIENT_QUOTAS = 48


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cordwood.Broker]:
    """In place of the one that needs no password."""
    config = {"connections.max.reauth.ms": 2000}
    with sasl_broker(tmp_path_factory.mktemp("sasl"), config, topics=["t"]) as running:
        add_users(running, ("admin", "a"))
        yield running


def client_config(
    directory: Path, mechanism: str, user: str, password: str, module: str = "scram.Scram"
) -> Path:
    """A file as ``--command-config`` takes it."""
    path = directory / f"{user}-{mechanism}.properties"
    jaas = f'{MODULES}.{module}LoginModule required username="{user}" password="{password}";'
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
    )
    return path


@pytest.fixture
def admin(tmp_path: Path) -> Path:
    return client_config(tmp_path, "SCRAM-SHA-512", "admin", "a")


@pytest.fixture(scope="module")
def tools(kafka: KafkaTools, quick_jvm: tuple[str, ...], broker: cordwood.Broker) -> JavaTools:
    return JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick_jvm)


def alter(tools: JavaTools, admin: Path, user: str, *change: str) -> None:
    tools.run(
        "configs", "--command-config", admin, "--alter", "--entity-type", "users",
        "--entity-name", user, *change,
    )  # fmt: skip


def test_kafkas_tool_adds_and_removes_users(
    broker: cordwood.Broker, tools: JavaTools, admin: Path
) -> None:
    file = broker._running().security_file
    alter(tools, admin, "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    alter(tools, admin, "alice", "--add-config", "SCRAM-SHA-512=[password=x]")
    added = {
        owner.mechanism: credential.iterations
        for owner, credential in file.state.credentials.items()
        if owner.user == "alice"
    }
    alter(tools, admin, "alice", "--delete-config", "SCRAM-SHA-256")

    assert added == {SHA_256: 8192, SHA_512: 4096}
    assert UserCredential("alice", SHA_256) not in file.state.credentials
    assert UserCredential("alice", SHA_512) in file.state.credentials


@pytest.mark.skipif(
    DESCRIBE_CLIENT_QUOTAS not in API_CATALOG, reason="the tool asks for quotas, too"
)
def test_kafkas_tool_describes_users(tools: JavaTools, admin: Path) -> None:
    alter(tools, admin, "dora", "--add-config", "SCRAM-SHA-256=[iterations=5000,password=x]")

    described = tools.run(
        "configs", "--command-config", admin, "--describe", "--entity-type", "users",
        "--entity-name", "dora",
    )  # fmt: skip

    assert "SCRAM-SHA-256=iterations=5000" in described.printed


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("SCRAM-SHA-256", "scram.Scram"),
        ("SCRAM-SHA-512", "scram.Scram"),
        ("PLAIN", "plain.Plain"),
    ],
)
def test_javas_clients_log_in_with_the_password_that_javas_tool_set(
    broker: cordwood.Broker,
    tools: JavaTools,
    admin: Path,
    tmp_path: Path,
    mechanism: str,
    module: str,
) -> None:
    kind = "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism
    user = f"user-{mechanism}".lower()
    alter(tools, admin, user, "--add-config", f"{kind}=[password=secret]")
    config = client_config(tmp_path, mechanism, user, "secret", module)
    broker.create_topic(mechanism)

    tools.run("console-producer", "--topic", mechanism, "--command-config", config, stdin="a\nb\n")
    read = tools.run(
        "console-consumer", "--topic", mechanism, "--command-config", config,
        "--from-beginning", "--max-messages", "2",
    )  # fmt: skip

    assert read.lines == ["a", "b"]


def test_java_reports_a_wrong_password_at_once(tools: JavaTools, tmp_path: Path) -> None:
    config = client_config(tmp_path, "SCRAM-SHA-256", "admin", "wrong")

    refused = tools.attempt("topics", "--list", "--command-config", config)

    assert refused.exit_code == 1
    assert "SaslAuthenticationException" in refused.printed
    assert "invalid credentials" in refused.printed


def test_java_authenticates_again_while_it_produces(
    broker: cordwood.Broker, tools: JavaTools, admin: Path
) -> None:
    server = broker._running()
    before = server.metrics.view().connections_accepted
    sent = 0
    with tools.start(
        "verifiable-producer", "--topic", "t", "--throughput", "50", "--command-config", admin
    ) as producer:
        for _ in range(350):  # seven seconds, with a lifetime of two
            assert producer.wait_for("producer_send_success")
            sent += 1
    counts = server.authentications.counts.view()

    assert broker.store.topic("t").partition(0).end_offset >= sent
    assert server.metrics.view().connections_accepted - before <= 4
    assert not [key for key in counts if key[2] == "expired"]
