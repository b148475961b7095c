"""Compacted topics: consumers see the newest value of every key, before, after and meanwhile."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import cordwood
from wire.judges import JUDGES, Judge, Sent

KEYS = 10
ROUNDS = 50


@pytest.fixture
def compacted(make_topic: Callable[..., str]) -> str:
    return make_topic(cleanup_policy="compact", segment_bytes=1 << 20, delete_retention_ms=0)


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_after_compaction_every_client_reads_the_newest_value_of_each_key(
    broker: cordwood.Broker, compacted: str, judge: Judge
) -> None:
    records = [
        Sent(key=b"key-%d" % key, value=b"%d" % number)
        for number in range(ROUNDS)
        for key in range(KEYS)
    ]
    judge.produce(broker.bootstrap_servers, compacted, records, codec="lz4")
    judge.produce(broker.bootstrap_servers, compacted, [Sent(key=b"key-0", value=None)])

    broker.store.compact(compacted, force=True)

    got = judge.consume(broker.bootstrap_servers, compacted, KEYS)
    assert {record.key: record.value for record in got} == {
        b"key-0": None,
        **{b"key-%d" % key: b"%d" % (ROUNDS - 1) for key in range(1, KEYS)},
    }
    assert [record.offset for record in got] == sorted(record.offset for record in got)
    assert got[-1].offset == KEYS * ROUNDS


def test_a_consumer_that_reads_while_the_topic_is_compacted_misses_no_newest_value(
    broker: cordwood.Broker, compacted: str
) -> None:
    """It may see old values or not; what each key had last it sees, and in order."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 2000,
            "queued.min.messages": 1,
        }
    )
    consumer.assign([TopicPartition(compacted, 0, 0)])
    seen: dict[bytes | None, bytes | None] = {}
    offsets: list[int] = []
    try:
        for number in range(20):
            for key in range(100):
                producer.produce(compacted, b"%d" % number, key=b"key-%d" % key)
            assert producer.flush(60) == 0
            broker.store.compact(compacted, force=True)
            for message in consumer.consume(50, timeout=0.05):
                seen[message.key()] = message.value()
                offsets.append(message.offset() or 0)
        deadline_s = time.monotonic() + 60
        while not offsets or offsets[-1] < 20 * 100 - 1:
            assert time.monotonic() < deadline_s, offsets[-1:]
            for message in consumer.consume(500, timeout=0.2):
                seen[message.key()] = message.value()
                offsets.append(message.offset() or 0)
    finally:
        consumer.close()

    assert seen == {b"key-%d" % key: b"19" for key in range(100)}
    assert offsets == sorted(set(offsets))


def test_a_record_without_a_key_is_refused_and_the_others_of_other_batches_are_taken(
    broker: cordwood.Broker, compacted: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    reports: list[object] = []

    producer.produce(compacted, b"no key", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(60) == 0
    producer.produce(
        compacted, b"key", key=b"k", on_delivery=lambda error, _: reports.append(error)
    )
    assert producer.flush(60) == 0

    assert [None if error is None else error.name() for error in reports] == [  # type: ignore[attr-defined]
        "INVALID_RECORD",
        None,
    ]
