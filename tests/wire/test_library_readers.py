"""A reader of the library and a Kafka client continue each other's work, one after the other."""

from __future__ import annotations

from itertools import islice

from confluent_kafka import Consumer

import cordwood


def test_a_client_goes_on_where_a_reader_of_the_library_stopped_and_the_other_way_round() -> None:
    with cordwood.Broker(topics={"orders": 2}) as broker:
        orders = broker.store["orders"]
        orders.append_many([(b"%d" % n, b"%d" % n) for n in range(10)])
        group = broker.store.group("billing")
        with group.reader("orders", idle_timeout_ms=0) as reader:
            by_library = {record.value for record in islice(reader, 4)}

        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        try:
            by_client = {message.value() for message in consumer.consume(6, timeout=30)}
        finally:
            consumer.close()
        orders.append(b"10", key=b"10")
        with group.reader("orders", idle_timeout_ms=0) as reader:
            rest = {record.value for record in reader}

        assert by_library | by_client | rest == {b"%d" % n for n in range(11)}
        assert len(by_client) == 6
        assert len(rest) == 1
        assert not by_client & rest
