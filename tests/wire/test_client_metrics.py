"""Metrics of clients (KIP-714): real clients send them, /metrics shows them."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import cordwood
from cordwood.errors import CordwoodError
from cordwood.remote import api_calls
from cordwood.remote.remote_client_metrics import RemoteClientMetrics
from cordwood.remote.remote_cluster import RemoteCluster

TIMEOUT_S = 30
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[cordwood.Broker]:
    config = {"metrics.port": 0}
    with cordwood.Broker(tmp_path / "data", topics={"orders": 2}, config=config) as broker:
        yield broker


def _metrics(broker: cordwood.Broker) -> str:
    assert broker.metrics_address is not None
    host, port = broker.metrics_address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as page:
        return str(page.read().decode())


def _until(broker: cordwood.Broker, pattern: str) -> str:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        shown = _metrics(broker)
        if re.search(pattern, shown, re.MULTILINE):
            return shown
        assert time.monotonic() < deadline_s, shown
        time.sleep(0.05)


def _subscribe(broker: cordwood.Broker, name: str, **keys: str | None) -> None:
    with RemoteCluster([(broker.host, broker.port)]) as cluster:
        changes = {key.replace("_", "."): value for key, value in keys.items()}
        RemoteClientMetrics(cluster).alter(name, changes)


def test_librdkafka_sends_what_is_subscribed_and_metrics_shows_it(
    broker: cordwood.Broker,
) -> None:
    _subscribe(broker, "all", metrics="*", interval_ms="200")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "till-1"})
    for n in range(10):
        producer.produce("orders", b"%d" % n)
    producer.flush(TIMEOUT_S)

    shown = _until(broker, r'^kafka_client_producer_\w+\{.*client_id="till-1".*\} ')

    assert re.search(r'kafka_client_info\{.*client_software_name="confluent-kafka-python"', shown)
    assert "cordwood_telemetry_pushes_total" in shown
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "office"}
    )
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    try:
        _until(broker, r'^kafka_client_consumer_\w+\{.*client_id="office".*\} ')
    finally:
        consumer.close()


def test_without_a_place_that_shows_them_clients_are_not_asked_for_metrics(tmp_path: Path) -> None:
    with cordwood.Broker(tmp_path) as broker:
        _subscribe(broker, "all", metrics="*", interval_ms="100")
        with RemoteCluster([(broker.host, broker.port)]) as cluster:
            answer = cluster.anyone().call(
                api_calls.API_VERSIONS(
                    {"client_software_name": "test", "client_software_version": "1"}
                )
            )
        keys = {each.api_key for each in answer.api_keys}

        assert not keys & {71, 72}
        assert 74 in keys


def test_subscriptions_are_kept_over_a_restart_and_wrong_ones_are_refused(
    broker: cordwood.Broker,
) -> None:
    _subscribe(broker, "tills", metrics="org.apache.kafka.producer.", match="client_id=till-.*")
    for keys, reason in (
        ({"interval_ms": "99"}, "interval.ms"),
        ({"match": "client_name=x"}, "selector"),
        ({"match": "client_id=("}, "regular expression"),
        ({"colour": "red"}, "not a key"),
    ):
        with pytest.raises(CordwoodError, match=reason):
            _subscribe(broker, "tills", **keys)
    broker.restart()
    with RemoteCluster([(broker.host, broker.port)]) as cluster:
        assert RemoteClientMetrics(cluster).subscriptions() == {
            "tills": {
                "metrics": "org.apache.kafka.producer.",
                "interval.ms": "300000",
                "match": "client_id=till-.*",
            }
        }
    _subscribe(broker, "tills", metrics=None, match=None, interval_ms=None)
    with RemoteCluster([(broker.host, broker.port)]) as cluster:
        assert RemoteClientMetrics(cluster).subscriptions() == {}


def test_the_command_sets_lists_and_removes(broker: cordwood.Broker) -> None:
    def run(*words: str) -> str:
        words = ("client-metrics", *words, "--at", broker.bootstrap_servers)
        done = subprocess.run(
            [sys.executable, "-m", "cordwood", *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    run("set", "all", "--metrics", "*", "--interval", "30s")
    listed = json.loads(run("list", "--json"))
    assert listed == {"name": "all", "metrics": "*", "interval_ms": 30000, "match": ""}
    run("remove", "all")
    assert run("list", "--json") == ""
