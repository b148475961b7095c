"""Test code that uses Kafka, without Kafka: each test has its own broker.

    pytest examples/test_payments.py

The fixture `cordwood_broker` comes with `pip install 'cordwood[broker]'`. You need not configure or
clean up anything. The code under test uses an ordinary client, here confluent-kafka, and does not
depend on Cordwood.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import cordwood

# --- the application ---------------------------------------------------------------------------


def publish_payments(bootstrap_servers: str, payments: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for merchant, cents in payments:
        event = json.dumps({"merchant": merchant, "cents": cents})
        producer.produce("payments", value=event, key=merchant)
    if producer.flush(timeout=30):
        raise KafkaException("some payments were not acknowledged")


def settle(bootstrap_servers: str, expected: int) -> Counter[str]:
    """The amount owed to each merchant from the next `expected` unsettled payments."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "settlement",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    owed: Counter[str] = Counter()
    consumer.subscribe(["payments"])
    try:
        for message in consumer.consume(expected, timeout=30):
            event = json.loads(message.value() or b"{}")
            owed[event["merchant"]] += event["cents"]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return owed


# --- the tests ----------------------------------------------------------------------------------


@pytest.mark.cordwood_broker(topics={"payments": 3})
def test_payments_of_a_merchant_stay_in_order(cordwood_broker: cordwood.Broker) -> None:
    payments = [("bakery", 250), ("bakery", 320), ("florist", 1500), ("bakery", 120)]

    publish_payments(cordwood_broker.bootstrap_servers, payments)

    stored = [r for log in cordwood_broker.store.topic("payments").partitions for r in log.read()]
    cents = [json.loads(r.value or b"{}")["cents"] for r in stored if r.key == b"bakery"]
    assert cents == [250, 320, 120]


@pytest.mark.cordwood_broker(topics={"payments": 3})
def test_a_payment_is_settled_once_although_the_broker_crashes(
    cordwood_broker: cordwood.Broker,
) -> None:
    publish_payments(cordwood_broker.bootstrap_servers, [("bakery", 250), ("florist", 1500)])
    first = settle(cordwood_broker.bootstrap_servers, expected=2)

    cordwood_broker.kill()
    cordwood_broker.start()
    publish_payments(cordwood_broker.bootstrap_servers, [("bakery", 100)])
    second = settle(cordwood_broker.bootstrap_servers, expected=1)

    assert first == {"bakery": 250, "florist": 1500}
    assert second == {"bakery": 100}
