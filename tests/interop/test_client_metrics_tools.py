"""Kafka's tools for client metrics, and the metrics of a Java client."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest

import cordwood
from interop.java_tools import JavaTools

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[cordwood.Broker]:
    """In place of the one without an endpoint for metrics."""
    with cordwood.Broker(topics={"orders": 2}, config={"metrics.port": 0}) as running:
        yield running


def shown(broker: cordwood.Broker) -> str:
    assert broker.metrics_address is not None
    host, port = broker.metrics_address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as page:
        return str(page.read().decode())


def test_kafkas_tools_set_list_and_delete_subscriptions(tools: JavaTools) -> None:
    given = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000")
    tools.run("client-metrics", "--alter", "--name", "tills", *given, "--match", "client_id=t.*")

    listed = tools.run("client-metrics", "--list").output
    described = tools.run("client-metrics", "--describe", "--name", "tills").output
    entity = ("--entity-type", "client-metrics", "--entity-name", "tills")
    as_configs = tools.run("configs", *entity, "--describe").output
    tools.run("client-metrics", "--delete", "--name", "tills")

    assert "tills" in listed
    for text in (described, as_configs):
        assert "metrics=org.apache.kafka.producer." in text
        assert "interval.ms=30000" in text
        assert "match=client_id=t.*" in text
    assert "tills" not in tools.run("client-metrics", "--list").output


def test_a_java_client_sends_its_metrics(tools: JavaTools, broker: cordwood.Broker) -> None:
    tools.run("client-metrics", "--alter", "--name", "all", "--metrics", "*", "--interval", "200")
    found = ""
    arguments = ("--topic", "orders", "--throughput", "20")
    with tools.start("verifiable-producer", *arguments):
        deadline_s = time.monotonic() + TIMEOUT_S
        while 'client_software_name="apache-kafka-java"' not in found or not re.search(
            r"^kafka_client_producer_\w+\{", found, re.MULTILINE
        ):
            assert time.monotonic() < deadline_s, found
            time.sleep(0.2)
            found = shown(broker)

    assert "kafka_client_producer_connection_creation_total" in found
    refused = re.findall(r'^cordwood_telemetry_refused_total\{error="(\w+)"\}', found, re.MULTILINE)
    assert set(refused) <= {"throttling_quota_exceeded", "unknown_subscription_id"}
