"""Client metrics in a cluster: subscriptions of the controllers, metrics at the broker."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest

from interop.cluster_members import CordwoodMember
from interop.cluster_records import create
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools, kept_ports
from interop.kraft_controllers import KraftControllers

TIMEOUT_S = 60
Served = tuple[CordwoodMember, int]


@pytest.fixture(scope="module")
def member(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker, and the port of its metrics."""
    place = tmp_path_factory.mktemp("client-metrics")
    [port] = kept_ports(1)
    properties = {"offsets.topic.replication.factor": "1", "metrics.port": str(port)}
    with (
        KraftControllers(kafka, place / "controllers") as controllers,
        CordwoodMember(controllers, place / "ours", node_id=1, properties=properties) as running,
    ):
        yield running, port


@pytest.fixture
def tools(kafka: KafkaTools, member: Served) -> JavaTools:
    return JavaTools(kafka, member[0].address)


def shown(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return str(page.read().decode())


def test_kafkas_tools_set_list_and_delete_subscriptions_of_the_cluster(tools: JavaTools) -> None:
    given = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000")
    tools.run("client-metrics", "--alter", "--name", "tills", *given, "--match", "client_id=t.*")

    listed = tools.run("client-metrics", "--list").output
    described = tools.run("client-metrics", "--describe", "--name", "tills").output
    tools.run("client-metrics", "--delete", "--name", "tills")

    assert "tills" in listed
    for text in ("metrics=org.apache.kafka.producer.", "interval.ms=30000", "client_id=t.*"):
        assert text in described
    assert "tills" not in tools.run("client-metrics", "--list").output


def test_a_java_client_sends_what_the_cluster_asks_for(tools: JavaTools, member: Served) -> None:
    ours, port = member
    create(ours.address, "orders")
    tools.run("client-metrics", "--alter", "--name", "all", "--metrics", "*", "--interval", "200")
    found = ""
    with tools.start("verifiable-producer", "--topic", "orders", "--throughput", "20"):
        deadline_s = time.monotonic() + TIMEOUT_S
        while 'client_software_name="apache-kafka-java"' not in found or not re.search(
            r"^kafka_client_producer_\w+\{", found, re.MULTILINE
        ):
            assert time.monotonic() < deadline_s, found
            time.sleep(0.2)
            found = shown(port)

    ours.stop()
    ours.launch()  # the subscription is the cluster's: it is there again
    ours.wait_until("is running")
    assert "all" in tools.run("client-metrics", "--list").output
