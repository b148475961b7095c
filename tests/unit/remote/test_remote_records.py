"""Records sent to a broker and read from one, with librdkafka as judge."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import cordwood
from cordwood.clock import SystemClock
from cordwood.errors import (
    BrokerRefusedError,
    ChecksumMismatchError,
    FormatError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.record import Record
from cordwood.log.topics.topic import partition_for
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.record_messages import decode_produce_response
from cordwood.quantities import TimestampMs
from cordwood.remote.fetched_batches import FetchedBatches
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_consumer import EARLIEST, LATEST, RemoteConsumer
from cordwood.remote.remote_producer import ProducedRange, RemoteProducer

DEADLINE_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def broker() -> Iterator[cordwood.Broker]:
    with cordwood.Broker(topics={"orders": 3}) as running:
        yield running


@pytest.fixture
def cluster(broker: cordwood.Broker) -> Iterator[RemoteCluster]:
    with RemoteCluster([(broker.host, broker.port)]) as opened:
        yield opened


def producer(cluster: RemoteCluster, topic: str = "orders") -> RemoteProducer:
    return RemoteProducer(cluster, topic, SystemClock())


def read_by_librdkafka(broker: cordwood.Broker, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "judge"})
    partitions = range(broker.store.topic(topic).partition_count)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return consumer.consume(count, DEADLINE_S)
    finally:
        consumer.close()


# --- producing --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["producer", *CODECS[1:]])
def test_other_clients_read_what_is_sent(
    broker: cordwood.Broker, cluster: RemoteCluster, codec: str
) -> None:
    broker.create_topic("topic", partitions=3, config={"compression.type": codec})
    records = [
        Record(b"v%d" % i, b"k%d" % i, (("h", b"%d" % i),), 1_700_000_000_000 + i)
        for i in range(300)
    ]

    producer(cluster, "topic").append_many(records)

    found = read_by_librdkafka(broker, "topic", 300)
    assert sorted((m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in found) == sorted(
        (r.key, r.value, list(r.headers), r.timestamp_ms) for r in records
    )
    assert all(m.partition() == partition_for(m.key(), 3) for m in found)


def test_the_answer_says_where_records_went(cluster: RemoteCluster) -> None:
    sender = producer(cluster)

    assert sender.append_many([]) == []
    assert sender.append_many([(None, b"x")] * 5, partition=2) == [ProducedRange(2, 0, 5)]
    assert sender.append_many([(b"k", b"x")] * 3, partition=2) == [ProducedRange(2, 5, 8)]


def test_records_without_a_key_take_turns_by_call(cluster: RemoteCluster) -> None:
    sender = producer(cluster)

    partitions = [sender.append_many([(None, b"x")] * 2)[0].partition for _ in range(6)]

    assert partitions == [0, 1, 2, 0, 1, 2]


def test_more_than_fits_a_request_keeps_its_order(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    records = [(b"%d" % (i % 7), b"%06d" % i + b"x" * 50_000) for i in range(300)]

    producer(cluster).append_many(records)

    for log in broker.store.topic("orders").partitions:
        values = [record.value for record in log.read()]
        assert values == sorted(values, key=lambda value: value or b"")
    assert sum(log.end_offset for log in broker.store.topic("orders").partitions) == 300


def test_what_a_broker_will_not_take_is_told(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    broker.create_topic("changes", config={"cleanup.policy": "compact"})

    with pytest.raises(UnknownTopicError):
        producer(cluster, "none")
    with pytest.raises(UnknownPartitionError):
        producer(cluster).append_many([(None, b"x")], partition=3)
    with pytest.raises(RecordTooLargeError):
        producer(cluster).append_many([(None, b"x" * 2_000_000)])
    with pytest.raises(BrokerRefusedError, match="record 1 of a batch: a compacted topic needs"):
        producer(cluster, "changes").append_many([(b"k", b"x"), (None, b"x")])


def test_a_limit_that_was_lowered_meanwhile_is_the_brokers_to_tell(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    sender = producer(cluster)
    broker.store.alter_topic("orders", config={"max.message.bytes": 1000})

    with pytest.raises(RecordTooLargeError):
        sender.append_many([(None, b"x" * 5000)])


def test_what_a_leader_took_is_not_sent_again(
    broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition of a request is refused for now: only its batch goes out again."""
    refusals = [1]

    def decode_with_a_refusal(version: int, body: memoryview) -> list[Any]:
        parts = decode_produce_response(version, body)
        if refusals:
            refusals.pop()
            code = ErrorCode.not_enough_replicas
            return [p._replace(error_code=code) if p.partition == 1 else p for p in parts]
        return parts

    monkeypatch.setattr(
        "cordwood.remote.remote_producer.decode_produce_response", decode_with_a_refusal
    )
    with RemoteCluster([(broker.host, broker.port)], pause=lambda s: None) as cluster:
        keys = [b"%d" % i for i in range(30)]
        ranges = producer(cluster).append_many([(key, b"x") for key in keys])

    counts = [log.end_offset for log in broker.store.topic("orders").partitions]
    sent = [sum(partition_for(key, 3) == number for key in keys) for number in range(3)]
    assert counts == [sent[0], 2 * sent[1], sent[2]]  # the refusal was made up: 1 has it twice
    assert [part.next_offset - part.first_offset for part in ranges] == sent


# --- consuming --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_what_other_clients_send_is_read(
    broker: cordwood.Broker, cluster: RemoteCluster, codec: str
) -> None:
    sender = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 5}
    )
    for i in range(500):
        sender.produce("orders", b"v%d" % i, key=b"k", headers=[("h", b"%d" % i)], partition=1)
    assert sender.flush(DEADLINE_S) == 0
    consumer = RemoteConsumer(cluster, "orders")

    chunks = list(consumer.chunks(1, 0, 500))

    records = [record for chunk in chunks for record in chunk.records]
    assert [(r.offset, r.value, list(r.headers)) for r in records] == [
        (i, b"v%d" % i, [("h", b"%d" % i)]) for i in range(500)
    ]
    assert chunks[-1].next_offset == 500


def test_only_the_range_that_was_asked_for_is_read(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    broker.store.topic("orders").append_many([(None, b"%d" % i) for i in range(100)], partition=0)
    consumer = RemoteConsumer(cluster, "orders")

    chunks = list(consumer.chunks(0, 17, 42))
    runs = [len(run) for run in consumer.runs(0, 17, 42)]

    assert [r.offset for chunk in chunks for r in chunk.records] == list(range(17, 42))
    assert chunks[-1].next_offset == 42
    assert sum(runs) == 25


def test_batches_larger_than_a_fetch_are_read(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    broker.create_topic("large", config={"max.message.bytes": "8MiB"})
    broker.store.topic("large").append_many([(None, b"x" * 6_000_000)] * 3)

    chunks = list(RemoteConsumer(cluster, "large").chunks(0, 0, 3))

    assert [len(r.value or b"") for chunk in chunks for r in chunk.records] == [6_000_000] * 3


def test_offsets_are_found_by_time(broker: cordwood.Broker, cluster: RemoteCluster) -> None:
    broker.store.topic("orders").append_many(
        [cordwood.Record(b"x", timestamp_ms=1000 * i) for i in range(1, 10)], partition=2
    )
    consumer = RemoteConsumer(cluster, "orders")

    assert consumer.offsets_at(LATEST) == {0: 0, 1: 0, 2: 9}
    assert consumer.offsets_at(EARLIEST) == {0: 0, 1: 0, 2: 0}
    assert consumer.offsets_at(3500, [2]) == {2: 3}
    assert consumer.offsets_at(99_000) == {0: -1, 1: -1, 2: -1}


def test_news_are_waited_for(broker: cordwood.Broker, cluster: RemoteCluster) -> None:
    consumer = RemoteConsumer(cluster, "orders", [0, 2])
    assert consumer.news({0: 0, 2: 0}, wait_ms=1) == []

    broker.store.topic("orders").append(b"x", partition=2)
    [chunk] = consumer.news({0: 0, 2: 0}, wait_ms=60_000)

    assert (chunk.partition, [r.value for r in chunk.records], chunk.next_offset) == (2, [b"x"], 1)


def test_offsets_that_are_not_there_are_told_with_those_that_are(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    log = broker.store.topic("orders").partition(0)
    log.append_many([(None, b"x")] * 10)
    log.delete_before(5)
    consumer = RemoteConsumer(cluster, "orders")

    with pytest.raises(OffsetOutOfRangeError) as early:
        next(consumer.chunks(0, 2, 10))
    with pytest.raises(OffsetOutOfRangeError):
        consumer.news({0: 11})

    assert (early.value.requested, early.value.start, early.value.end) == (2, 5, 10)


def test_partitions_that_are_added_are_seen_after_looking_again(
    broker: cordwood.Broker, cluster: RemoteCluster
) -> None:
    consumer, chosen = RemoteConsumer(cluster, "orders"), RemoteConsumer(cluster, "orders", [1])
    broker.store.alter_topic("orders", partitions=5)

    consumer.refresh()
    chosen.refresh()

    assert list(consumer.partitions) == [0, 1, 2, 3, 4]
    assert list(chosen.partitions) == [1]
    broker.store.delete_topic("orders")
    with pytest.raises(UnknownTopicError):
        consumer.refresh()
    with pytest.raises(UnknownTopicError):
        consumer.news({0: 0})


# --- batches ----------------------------------------------------------------------------------


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    built = build_batch(
        [Record(value) for value in values], TimestampMs(1), BatchStyle(bytes_max=10**6)
    )
    data = bytearray(built.data)
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def values(fetched: FetchedBatches, stop: int = 100) -> list[bytes | None]:
    return [record.value for run in fetched.runs(stop=stop) for record in run.records()]


def test_a_batch_that_was_cut_short_is_left_for_the_next_fetch() -> None:
    whole = batch(b"a", b"b") + batch(b"c", b"d", base_offset=2)

    for cut in range(1, len(batch(b"c", b"d"))):
        fetched = FetchedBatches(memoryview(whole[:-cut]), 1)
        assert values(fetched) == [b"b"]
        assert fetched.next_offset == 2


def test_reading_stops_where_it_was_told_to() -> None:
    fetched = FetchedBatches(memoryview(batch(b"a", b"b") + batch(b"c", base_offset=2)), 0)

    assert values(fetched, stop=1) == [b"a"]
    assert fetched.next_offset == 1


def test_more_batches_than_a_table_holds_are_read() -> None:
    data = b"".join(batch(b"%d" % i, base_offset=i) for i in range(2000))
    fetched = FetchedBatches(memoryview(data), 0)

    assert values(fetched, stop=5000) == [b"%d" % i for i in range(2000)]
    assert fetched.next_offset == 2000


def test_a_batch_with_a_wrong_checksum_is_never_handed_out() -> None:
    data = bytearray(batch(b"a") + batch(b"b", base_offset=1))
    data[-1] ^= 1

    with pytest.raises(ChecksumMismatchError):
        values(FetchedBatches(memoryview(data), 0))


def test_what_is_no_batch_is_told() -> None:
    with pytest.raises(FormatError):
        values(FetchedBatches(memoryview(b"\x01" * 100), 0))
