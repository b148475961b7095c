"""Three clients that produce: a plain socket, librdkafka, and Kafka's own Java tool.

All use acks=all, no compression and one partition. Each returns its rate between its first record
and its last acknowledgement.
"""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.broker_servers import BrokerServer, client_of
from bench.broker_stage import Load, timed
from bench.kafka_wire import ProduceFrame, produce_frames
from bench.process_tree import tree_cpu_seconds
from bench.wire_load import HOST, pipeline_produce
from cordwood.quantities import KIB, MIB
from interop.kafka_peer import KafkaTools

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

ClientSettings = dict[str, str | int | float | bool]  # of librdkafka

BATCH_BYTES: Final = 256 * KIB
LINGER_MS: Final = 5

_POOL_BYTES: Final = 8 * MIB  # of different values: more than the processor's caches hold
_MESSAGES_PER_CALL: Final = 1000
_FLUSH_TIMEOUT_S: Final = 120.0
# As kafka-run-class.sh starts a tool, with the heap of kafka-producer-perf-test.sh.
JAVA_CLIENT: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Xmx512M")

_SUMMARY = re.compile(r"\d+ (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec")


class ClientFailedError(Exception):
    """A client did not complete its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records of one size."""

    value_size: int
    records: int

    @property
    def value_bytes(self) -> int:
        return self.value_size * self.records

    def values(self) -> list[bytes]:
        """Different values, the same in every run; at most one for each record."""
        size, count = self.value_size, min(self.records, _POOL_BYTES // self.value_size)
        noise = random.Random(size).randbytes(size * count)
        return [noise[at : at + size] for at in range(0, len(noise), size)]

    def frames(self, topic: str, batch_bytes: int, partition: int = 0) -> list[ProduceFrame]:
        """Requests to send in turn, each with a full batch."""
        now_ms = time.time_ns() // 10**6
        frames = produce_frames(
            topic, self.values(), batch_bytes=batch_bytes, now_ms=now_ms, partition=partition
        )
        # A shorter last batch would be sent repeatedly.
        return [frame for frame in frames if frame.records == frames[0].records]


# --- a plain socket ---------------------------------------------------------------------------


def wire_produce(
    server: BrokerServer, topic: str, work: Workload, *, batch_bytes: int = BATCH_BYTES
) -> Load:
    frames = work.frames(topic, batch_bytes)

    def produce() -> tuple[int, int]:
        sent = pipeline_produce(server.port, topic, frames, work.records, server.tls)
        return sent, sent * work.value_size

    return timed(server, produce)


# --- librdkafka -------------------------------------------------------------------------------


def librdkafka_produce(server: BrokerServer, topic: str, work: Workload) -> Load:
    return timed(server, librdkafka_work(client_of(server), topic, work))


def librdkafka_work(
    client: ClientSettings, topic: str, work: Workload, *, partitions: int = 1
) -> Callable[[], tuple[int, int]]:
    """`produce_batch` of confluent-kafka: a thousand values per call keep Python's cost low.

    The calls go to the partitions in turn. The producer is connected already.
    """
    from confluent_kafka import Producer

    failed: list[str] = []

    def report(error: "KafkaError | None", _: "Message") -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            **client,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * KIB,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=30)  # connected before the clock starts
    messages = [{"value": value} for value in work.values()]
    calls = [
        messages[at : at + _MESSAGES_PER_CALL] for at in range(0, len(messages), _MESSAGES_PER_CALL)
    ]

    def produce() -> tuple[int, int]:
        sent = number = 0
        while sent < work.records:
            call = calls[number % len(calls)][: work.records - sent]
            partition = number % partitions
            number += 1
            taken = 0
            while taken < len(call):
                taken += producer.produce_batch(
                    topic, call[taken:], partition=partition, on_delivery=report
                )
                producer.poll(0 if taken == len(call) else 0.005)
            sent += taken
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if left or failed:
            raise ClientFailedError(f"{left} records not acknowledged; errors: {failed[:3]}")
        return sent, sent * work.value_size

    return produce


# --- Kafka's ProducerPerformance --------------------------------------------------------------


def java_produce(server: BrokerServer, topic: str, work: Workload, tools: KafkaTools) -> Load:
    """The tool warms up with half as many records, which are not counted."""
    warm_up = work.records // 2
    cpu_before = tree_cpu_seconds(server.pid)
    printed = tools.producer_performance(
        *("--bootstrap-server", f"{HOST}:{server.port}", "--topic", topic),
        *("--num-records", str(work.records + warm_up), "--warmup-records", str(warm_up)),
        *("--record-size", str(work.value_size), "--throughput", "-1"),
        *("--command-property", "acks=all", f"linger.ms={LINGER_MS}", f"batch.size={BATCH_BYTES}"),
        "buffer.memory=67108864",
        jvm_options=JAVA_CLIENT,
    )
    cpu_after = tree_cpu_seconds(server.pid)
    cpu_s = None
    if cpu_before is not None and cpu_after is not None:
        cpu_s = (cpu_after - cpu_before) * work.records / (work.records + warm_up)
    records_per_s = parse_producer_performance(printed)
    return Load(
        records=work.records,
        value_bytes=work.value_bytes,
        seconds=work.records / records_per_s,
        server_cpu_s=cpu_s,
    )


def parse_producer_performance(printed: str) -> float:
    """Records per second of the last summary: that of the steady state after a warm-up."""
    found = list(_SUMMARY.finditer(printed))
    if not found:
        raise ClientFailedError(f"ProducerPerformance printed no summary:\n{printed}")
    return float(found[-1]["rate"])
