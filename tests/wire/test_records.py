"""What one client produces every client consumes, whole and in order."""

import itertools
import random
import time
from collections.abc import Callable, Iterator

import pytest

import cordwood
from wire.judges import JUDGES, Got, Judge, Kcat, Sent, TooLargeError

every_judge = pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
every_pair = pytest.mark.parametrize(
    ("producer", "consumer"),
    list(itertools.product(JUDGES.values(), repeat=2)),
    ids=[" to ".join(pair) for pair in itertools.product(JUDGES, repeat=2)],
)
every_judge_and_codec = pytest.mark.parametrize(
    ("judge", "codec"),
    [(judge, codec) for judge in JUDGES.values() for codec in judge.codecs],
    ids=[f"{judge.name} {codec}" for judge in JUDGES.values() for codec in judge.codecs],
)
NOW_MS = 1_700_000_000_000

RECORDS = [
    Sent(value=b"plain"),
    Sent(value=b"", key=b""),
    Sent(value=b"keyed", key=b"user:42", timestamp_ms=NOW_MS),
    Sent(value=None, key=b"user:42", timestamp_ms=NOW_MS - 5),
    Sent(value=b"x" * 1000, headers=(("source", b"web"), ("empty", b""), ("source", b"again"))),
    Sent(value=bytes(range(256)), key=bytes(range(256)), headers=(("ünïcode", b"\xff\x00"),)),
]


def as_consumed(offset: int, sent: Sent) -> Got:
    return Got(
        offset=offset,
        value=sent.value,
        key=sent.key,
        headers=sent.headers,
        timestamp_ms=-1 if sent.timestamp_ms is None else sent.timestamp_ms,
    )


def without_clock(got: Got, sent: Sent) -> Got:
    """Where the test gave no time, the producer's clock did."""
    if sent.timestamp_ms is not None:
        return got
    assert got.timestamp_ms > NOW_MS
    return Got(offset=got.offset, value=got.value, key=got.key, headers=got.headers)


@every_pair
def test_values_keys_headers_times_and_tombstones_come_as_they_were_sent(
    broker: cordwood.Broker, topic: str, producer: Judge, consumer: Judge
) -> None:
    offsets = producer.produce(broker.bootstrap_servers, topic, RECORDS)

    got = consumer.consume(broker.bootstrap_servers, topic, len(RECORDS))

    assert offsets == list(range(len(RECORDS)))
    assert [without_clock(record, sent) for record, sent in zip(got, RECORDS, strict=True)] == [
        as_consumed(offset, sent) for offset, sent in enumerate(RECORDS)
    ]


@every_judge_and_codec
def test_records_of_every_codec_come_as_they_were_sent(
    broker: cordwood.Broker, topic: str, judge: Judge, codec: str
) -> None:
    values = [b"line %d " % number * 20 for number in range(200)]

    judge.produce(broker.bootstrap_servers, topic, [Sent(value=v) for v in values], codec=codec)

    for reader in (reader for reader in JUDGES.values() if codec in reader.codecs):
        got = reader.consume(broker.bootstrap_servers, topic, len(values))
        assert [record.value for record in got] == values
    stored = broker.store.topic(topic).partition(0).read(0)
    assert [record.value for record in stored] == values


@every_judge_and_codec
def test_a_topic_with_a_codec_of_its_own_stores_everything_in_it(
    broker: cordwood.Broker, make_topic: Callable[..., str], judge: Judge, codec: str
) -> None:
    topic = make_topic(compression_type="zstd" if codec != "zstd" else "gzip")
    values = [b"line %d " % number * 20 for number in range(20)]

    judge.produce(broker.bootstrap_servers, topic, [Sent(value=v) for v in values], codec=codec)

    got = judge.consume(broker.bootstrap_servers, topic, len(values))
    assert [record.value for record in got] == values


@pytest.mark.parametrize("size", [1_000_000, 10_000_000], ids=["by default", "where allowed"])
@every_judge
def test_a_large_record_comes_whole(
    broker: cordwood.Broker, make_topic: Callable[..., str], judge: Judge, size: int
) -> None:
    topic = make_topic(**({} if size <= 1_000_000 else {"max_message_bytes": 2 * size}))
    value = random.Random(size).randbytes(size)

    judge.produce(broker.bootstrap_servers, topic, [Sent(value=b"small"), Sent(value=value)])

    got = judge.consume(broker.bootstrap_servers, topic, 2)
    assert [record.value for record in got] == [b"small", value]


@every_judge
def test_a_record_above_the_limit_is_refused_and_the_next_one_is_taken(
    broker: cordwood.Broker, make_topic: Callable[..., str], judge: Judge
) -> None:
    topic = make_topic(max_message_bytes=10_000)

    with pytest.raises(TooLargeError):
        judge.produce(broker.bootstrap_servers, topic, [Sent(value=bytes(10_000))])

    assert judge.produce(broker.bootstrap_servers, topic, [Sent(value=bytes(9_000))]) == [0]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@every_judge
def test_records_arrive_with_any_acks(
    broker: cordwood.Broker, topic: str, judge: Judge, acks: str
) -> None:
    values = [b"%d" % number for number in range(50)]

    offsets = judge.produce(
        broker.bootstrap_servers, topic, [Sent(value=value) for value in values], acks=acks
    )

    got = judge.consume(broker.bootstrap_servers, topic, len(values))
    assert [record.value for record in got] == values
    assert acks == "0" or offsets == list(range(len(values)))


@pytest.mark.parametrize("codec", ["none", "lz4"])
@every_judge
def test_with_log_append_time_records_carry_the_brokers_time(
    broker: cordwood.Broker, make_topic: Callable[..., str], judge: Judge, codec: str
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = time.time() * 1000 - 1

    judge.produce(
        broker.bootstrap_servers,
        topic,
        [Sent(value=b"old", timestamp_ms=NOW_MS), Sent(value=b"new")],
        codec=codec,
    )

    got = judge.consume(broker.bootstrap_servers, topic, 2)
    assert [record.value for record in got] == [b"old", b"new"]
    assert all(record.is_log_append_time for record in got)
    assert all(before_ms <= record.timestamp_ms <= time.time() * 1000 for record in got)


@every_judge
def test_an_idempotent_producer_is_served(
    broker: cordwood.Broker, make_topic: Callable[..., str], judge: Judge
) -> None:
    topic = make_topic(partitions=3)
    records = [Sent(value=b"%d" % number, partition=number % 3) for number in range(300)]

    offsets = judge.produce(broker.bootstrap_servers, topic, records, is_idempotent=True)

    assert offsets == [number // 3 for number in range(300)]
    stored = [
        [record.value for record in log.read(0)] for log in broker.store.topic(topic).partitions
    ]
    assert stored == [[b"%d" % number for number in range(first, 300, 3)] for first in range(3)]


@every_judge
def test_a_topic_that_is_not_there_is_created_when_it_is_produced_to(
    broker: cordwood.Broker, names: Iterator[str], judge: Judge
) -> None:
    topic = next(names)

    offsets = judge.produce(broker.bootstrap_servers, topic, [Sent(value=b"first")])

    assert offsets == [0]
    assert broker.store.topic(topic).partition_count == 1


@every_judge
def test_consuming_starts_where_it_is_told_also_inside_a_batch(
    broker: cordwood.Broker, topic: str, judge: Judge
) -> None:
    values = [b"%d" % number for number in range(100)]
    broker.store.topic(topic).append_many([(None, value) for value in values])

    got = judge.consume(broker.bootstrap_servers, topic, 10, start=57)

    assert [(record.offset, record.value) for record in got] == [
        (offset, values[offset]) for offset in range(57, 67)
    ]


def test_kcat_produces_and_consumes(broker: cordwood.Broker, topic: str) -> None:
    kcat = Kcat.find()
    if kcat is None:
        pytest.skip("kcat is not installed")
    where = ("-b", broker.bootstrap_servers, "-t", topic)

    kcat.run(*where, "-P", "-K", ":", given=b"k1:one\nk2:two\n")

    assert kcat.run(*where, "-C", "-e", "-q", "-f", r"%o %k %s\n") == b"0 k1 one\n1 k2 two\n"
    assert topic.encode() in kcat.run("-b", broker.bootstrap_servers, "-L")
