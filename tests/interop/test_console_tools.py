"""Kafka's console producer and consumer against our broker."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

import cordwood
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.compression import Codec
from interop.java_tools import JavaTools

CODECS = ("gzip", "snappy", "lz4", "zstd")
LETTERS = [b"a", b"b", b"c", b"d"]
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def stored(broker: cordwood.Broker, topic: str, partition: int = 0) -> list[cordwood.Record]:
    return list(broker.store.topic(topic).partition(partition).read())


def fill(broker: cordwood.Broker, topic: str, values: list[bytes]) -> None:
    broker.create_topic(topic).append_many([(None, value) for value in values])


def stored_codecs(broker: cordwood.Broker, topic: str) -> set[str]:
    content = Path(broker.data_dir, f"{topic}-0", "00000000000000000000.log").read_bytes()
    codecs, position = set(), 0
    while position < len(content):
        header = decode_batch_header(content, position)
        codecs.add(Codec(header.codec).name.lower())
        position += header.size
    return codecs


def test_keys_headers_and_tombstones_of_the_producer_are_stored_and_come_back(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("letters")
    parsing = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    printing = ("print.partition", "print.offset", "print.headers", "print.key", "print.timestamp")

    tools.run(
        "console-producer", "--topic", "letters",
        *(word for each in parsing for word in ("--reader-property", each)),
        stdin="source:web,n:1\tkey\tgrüße\nn:2\tkey\tNULL\nNULL\tNULL\t\n",
    )  # fmt: skip
    printed = tools.run(
        "console-consumer", "--topic", "letters", "--from-beginning", "--max-messages", "3",
        *(word for each in printing for word in ("--formatter-property", f"{each}=true")),
    )  # fmt: skip

    records = stored(broker, "letters")
    assert [(r.key, r.value, list(r.headers)) for r in records] == [
        (b"key", "grüße".encode(), [("source", b"web"), ("n", b"1")]),
        (b"key", None, [("n", b"2")]),
        (None, b"", []),
    ]
    times = [f"CreateTime:{record.timestamp_ms}\tPartition:0" for record in records]
    assert printed.output.splitlines() == [
        f"{times[0]}\tOffset:0\tsource:web,n:1\tkey\tgrüße",
        f"{times[1]}\tOffset:1\tn:2\tkey\tnull",
        f"{times[2]}\tOffset:2\tNO_HEADERS\tnull\t",
    ]


def test_what_is_compressed_with_any_codec_is_kept_so_and_read_by_a_pattern_of_topics(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    for codec in CODECS:
        broker.create_topic(f"codec-{codec}")

    for codec in CODECS:
        lines = "".join(f"{codec} {'x' * 50} {n}\n" for n in range(20))
        topic = ("--topic", f"codec-{codec}", "--compression-codec", codec)
        tools.run("console-producer", *topic, stdin=lines)
    read = tools.run(
        "console-consumer", "--include", "codec-.*", "--from-beginning", "--max-messages", "80",
        "--isolation-level", "read_committed",
    )  # fmt: skip

    assert {codec: stored_codecs(broker, f"codec-{codec}") for codec in CODECS} == {
        codec: {codec} for codec in CODECS
    }
    expected = [f"{codec} {'x' * 50} {n}" for codec in CODECS for n in range(20)]
    assert sorted(read.lines) == sorted(expected)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_topic_is_made_for_a_producer_that_asks_for_it(
    broker: cordwood.Broker, tools: JavaTools, acks: str
) -> None:
    topic = f"new-{acks}"

    tools.run(
        "console-producer", "--topic", topic, "--request-required-acks", acks,
        "--command-property", f"enable.idempotence={str(acks == 'all').lower()}",
        stdin="a\nb\nc\nd\n",
    )  # fmt: skip

    # Who asks for no acknowledgement may be gone before the broker has read it all.
    log = broker.store.topic(topic).partition(0)
    arrived = islice(log.follow(0, idle_timeout_ms=30_000), len(LETTERS))
    assert [record.value for record in arrived] == LETTERS


@both_protocols
def test_a_group_goes_on_where_it_stopped(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic = f"read-by-{protocol}"
    fill(broker, topic, LETTERS)

    def read(count: int) -> list[str]:
        return tools.run(
            "console-consumer", "--topic", topic, "--from-beginning",
            "--max-messages", str(count), "--group", protocol,
            "--command-property", f"group.protocol={protocol}",
        ).lines  # fmt: skip

    first = read(3)
    committed_first = broker.store.group(protocol).committed(topic, 0)
    rest = read(1)

    assert (first, committed_first) == (["a", "b", "c"], 3)
    assert (rest, broker.store.group(protocol).committed(topic, 0)) == (["d"], 4)


def test_reading_begins_at_an_offset_of_a_partition(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    topic = broker.create_topic("places", partitions=2)
    topic.append_many([(None, value) for value in LETTERS], partition=1)

    read = tools.run(
        "console-consumer", "--topic", "places", "--partition", "1", "--offset", "2",
        "--max-messages", "2",
    )  # fmt: skip

    assert read.lines == ["c", "d"]


def test_a_record_beyond_the_topics_limit_is_refused_and_the_producer_told(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("short", config={"max.message.bytes": 1000})

    refused = tools.attempt(
        "console-producer", "--topic", "short", "--sync", stdin="x" * 2000 + "\n"
    )

    assert "RecordTooLargeException" in refused.printed
    assert stored(broker, "short") == []


@both_protocols
def test_kafka_reads_the_records_of_our_group_coordinator(
    broker: cordwood.Broker, tools: JavaTools, protocol: str
) -> None:
    topic, group = f"kept-{protocol}", f"keeper-{protocol}"
    fill(broker, topic, LETTERS)
    tools.run(
        "console-consumer", "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", "4", "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    end = broker.store.topic("__consumer_offsets").partition(0).high_watermark
    place = ("--topic", "__consumer_offsets", "--partition", "0", "--offset", "earliest")

    seen = tools.run(
        "console-consumer", *place, "--max-messages", str(end),
        "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    )  # fmt: skip

    key = f'{{"type":1,"data":{{"group":"{group}","topic":"{topic}","partition":0}}}}'
    value = '{"version":4,"data":{"offset":4,"leaderEpoch":0,"metadata":"",'
    assert f'{{"key":{key},"value":{value}' in seen.output
