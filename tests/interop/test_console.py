"""The console over Apache Kafka: the pages that a broker alone can fill."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from console.served_console import served
from cordwood.console.console_config import ConsoleConfig
from interop.kafka_peer import StartBroker


def test_the_console_works_with_kafka_itself(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.console.console.local_directories", lambda cluster: ())
    kafka = start_broker()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(20):
        producer.produce("orders", b'{"id": %d}' % n, key=b"k")
    producer.flush()
    config = ConsoleConfig(addresses=(("127.0.0.1", kafka.port),), port=0, interval_s=0.5)

    with served(config) as console:
        console.console.keeper.take_now()
        pages = [
            "/",
            "/topics",
            "/topics/orders",
            "/topics/orders/messages/0/3",
            "/topics/orders/partitions",
            "/topics/orders/config",
            "/groups",
            "/transactions",
            "/security",
            "/settings",
            "/topics/orders/export?from=oldest",
            "/topics/orders?from=key&key=k",
        ]
        statuses = {page: console.get(page).status for page in pages}
        found = console.get("/topics/orders/find?q=value.id+%3D+7").text
        segments = console.get("/topics/orders/segments").status
        overview = console.get("/").text

    assert statuses == dict.fromkeys(pages, 200)
    assert found.count("event: hit") == 1
    assert segments == 404
    assert "Upkeep" not in overview
