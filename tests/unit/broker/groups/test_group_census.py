"""Groups as those see them who watch a running broker."""

import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from prometheus_client.parser import text_string_to_metric_families

import cordwood
from cordwood.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with cordwood.Broker(topics=["orders"], config={"metrics.port": 0}) as running:
        yield running


def scrape(broker: Broker, name: str, group: str) -> list[float]:
    assert broker.metrics_address is not None
    host, port = broker.metrics_address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels.get("consumergroup") == group
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_offsets_and_lag_of_a_live_group_are_seen(broker: Broker, protocol: str) -> None:
    broker.store.topic("orders").append_many([(None, b"%d" % n) for n in range(10)])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["orders"])
        messages = consumer.consume(4, timeout=30)
        consumer.commit(message=messages[-1], asynchronous=False)

        assert scrape(broker, "kafka_consumergroup_members", "billing") == [1]
        assert scrape(broker, "kafka_consumergroup_current_offset", "billing") == [4]
        assert scrape(broker, "kafka_consumergroup_lag", "billing") == [6]
    finally:
        consumer.close()
    assert scrape(broker, "kafka_consumergroup_members", "billing") == [0]


def test_a_group_that_only_commits_is_seen_too(broker: Broker) -> None:
    broker.store.topic("orders").append(b"x")
    broker.store.group("jobs").commit({("orders", 0): 1})

    assert scrape(broker, "kafka_consumergroup_members", "jobs") == [0]
    assert scrape(broker, "kafka_consumergroup_lag", "jobs") == [0]


def test_many_groups_are_all_seen(broker: Broker) -> None:
    broker.store.topic("orders").append(b"x")
    for number in range(450):
        broker.store.group(f"group-{number}").commit({("orders", 0): 0})

    assert broker.metrics_address is not None
    assert scrape(broker, "kafka_consumergroup_lag", "group-0") == [1]
    assert scrape(broker, "kafka_consumergroup_lag", "group-449") == [1]
