"""Three clients that consume a topic from its beginning: a socket, librdkafka, and Java."""

import time
from itertools import pairwise
from typing import Final

from bench.broker_producers import JAVA_CLIENT, ClientFailedError, Workload
from bench.broker_servers import BrokerServer, client_of
from bench.broker_stage import Load, timed
from bench.process_tree import tree_cpu_seconds
from bench.wire_load import HOST, fetch_all
from cordwood.quantities import MIB
from interop.kafka_peer import KafkaTools

# Java's and librdkafka's default for one partition.
FETCH_BYTES: Final = 1 * MIB

_PATIENCE_S: Final = 30.0
_MESSAGES_PER_CALL: Final = 10_000


def wire_consume(
    server: BrokerServer, topic: str, work: Workload, *, max_bytes: int = FETCH_BYTES
) -> Load:
    def consume() -> tuple[int, int]:
        fetch_all(server.port, topic, records=work.records, max_bytes=max_bytes, tls=server.tls)
        return work.records, work.value_bytes

    return timed(server, consume)


def librdkafka_consume(server: BrokerServer, topic: str, work: Workload) -> Load:
    """`consume` of confluent-kafka, assigned to the partition: no group, no commits."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **client_of(server),
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # When its queue is full, at 100,000 messages, it would fetch nothing for a second. With
            # a longer queue, messages leave the processor's cache before they are used.
            "fetch.queue.backoff.ms": 5,
        }
    )

    def consume() -> tuple[int, int]:
        records = value_bytes = 0
        while records < work.records:
            # It waits until it has the requested number.
            wanted = min(_MESSAGES_PER_CALL, work.records - records)
            messages = consumer.consume(wanted, timeout=_PATIENCE_S)
            if not messages:
                raise ClientFailedError(f"{records} of {work.records} records were consumed")
            for message in messages:
                error = message.error()
                if error is not None:
                    raise ClientFailedError(str(error))
                value_bytes += len(message)
            records += len(messages)
        return records, value_bytes

    try:
        consumer.list_topics(topic, timeout=30)  # connected before the clock starts
        consumer.assign([TopicPartition(topic, 0, 0)])
        return timed(server, consume)
    finally:
        consumer.close()


def java_consume(server: BrokerServer, topic: str, work: Workload, tools: KafkaTools) -> Load:
    """Kafka's ConsumerPerformance, in its own group; the time to join is not counted."""
    cpu_before = tree_cpu_seconds(server.pid)
    printed = tools.consumer_performance(
        *("--bootstrap-server", f"{HOST}:{server.port}", "--topic", topic),
        *("--num-records", str(work.records), "--fetch-size", str(FETCH_BYTES)),
        *("--group", f"bench-{time.time_ns()}"),
        jvm_options=JAVA_CLIENT,
    )
    cpu_after = tree_cpu_seconds(server.pid)
    return Load(
        records=work.records,
        value_bytes=work.value_bytes,
        seconds=work.records / parse_consumer_performance(printed),
        server_cpu_s=None if cpu_before is None or cpu_after is None else cpu_after - cpu_before,
    )


def parse_consumer_performance(printed: str) -> float:
    """Records per second while fetching: the column `fetch.nMsg.sec` of the tool's output."""
    lines = [line.split(", ") for line in printed.splitlines() if ", " in line]
    for headings, figures in pairwise(lines):
        if "fetch.nMsg.sec" in headings and len(figures) == len(headings):
            return float(figures[headings.index("fetch.nMsg.sec")])
    raise ClientFailedError(f"ConsumerPerformance printed no figures:\n{printed}")
