"""Latency from produce to consume, at a thousand records per second without batching."""

import struct
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.broker_producers import ClientFailedError
from bench.broker_servers import BrokerServer, client_of, new_topic
from bench.broker_stage import Load, Stage, cpu_rows, figure_row, timed
from bench.measure import Context, Latency, Row, measure_in_turns
from cordwood.quantities import KIB

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

LATENCY_RATIO = 1.2  # compared with Kafka

_VALUE_BYTES: Final = KIB
_PATIENCE_S: Final = 120.0  # a server that syncs each record may fall behind
_STAMP: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast records are produced, and for how long they are not counted at first."""

    records_per_s: int = 1000
    not_counted_s: float = 0.5  # until both clients are running

    def records(self, seconds: float) -> int:
        """The records of a run in which that many seconds count."""
        return int((seconds + self.not_counted_s) * self.records_per_s)


_PACE: Final = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    latency: Latency
    load: Load


def latency_rows(context: Context, stage: Stage, durability: str, *, is_judged: bool) -> list[Row]:
    servers = stage.servers(context)
    seconds = 2.0 if context.is_quick else 10.0

    def measure(server: BrokerServer) -> _Sample:
        with new_topic(server, durability) as topic:
            found: list[Latency] = []

            def work() -> tuple[int, int]:
                found.append(end_to_end_latency(server, topic, seconds))
                records = _PACE.records(seconds)
                return records, records * _VALUE_BYTES

            load = timed(server, work)
            return _Sample(latency=found[0], load=load)

    taken = measure_in_turns(
        {server.label(durability): partial(measure, server) for server in servers},
        runs=context.runs,
        warm_up=not context.is_quick,
    )
    title = f"latency, produce to consume, {_PACE.records_per_s:,} records/s"
    note = f"confluent-kafka both ways, acks=all, linger.ms=0, 1 KiB; {seconds:.0f} s a run"
    judge = stage.judge(durability)
    return [
        figure_row(
            f"{title}, p50",
            durability,
            "ms",
            {name: [s.latency.p50_us / 1000 for s in each] for name, each in taken.items()},
            judge=judge,
            ratio=LATENCY_RATIO if is_judged else None,
            is_lower_better=True,
            note=stage.note(note, "Kafka"),
        ),
        figure_row(
            f"{title}, p99",
            durability,
            "ms",
            {name: [s.latency.p99_us / 1000 for s in each] for name, each in taken.items()},
            judge=judge,
            ratio=LATENCY_RATIO if is_judged else None,
            is_lower_better=True,
        ),
        *cpu_rows(
            title, durability, {name: [s.load for s in each] for name, each in taken.items()}
        ),
    ]


def end_to_end_latency(
    server: BrokerServer, topic: str, seconds: float, *, to: str | None = None, pace: Pace = _PACE
) -> Latency:
    """Both clients run in this process. Each record contains the time it was produced.

    With `to`, something copies the records to another topic, from which they are consumed.
    """
    from confluent_kafka import Consumer, TopicPartition

    count = pace.records(seconds)
    consumer = Consumer(
        {
            **client_of(server),
            "group.id": "bench",
            "enable.auto.commit": False,
            "socket.nagle.disable": True,
        }
    )
    taken_ns: list[int] = []
    failed: list[BaseException] = []

    def consume() -> None:
        try:
            _consume(consumer, count, taken_ns)
        except ClientFailedError as error:
            failed.append(error)

    consumer.assign([TopicPartition(to or topic, 0, 0)])
    thread = threading.Thread(target=consume, name="consume")
    thread.start()
    try:
        _produce(server, topic, count, pace)
    finally:
        thread.join()
        consumer.close()
    if failed:
        raise failed[0]
    counted = sorted(taken_ns[pace.records(0) :])
    return Latency(
        p50_us=counted[len(counted) // 2] / 1000, p99_us=counted[len(counted) * 99 // 100] / 1000
    )


def _consume(consumer: "Consumer", count: int, taken_ns: list[int]) -> None:
    clock = time.perf_counter_ns
    while len(taken_ns) < count:
        message = consumer.poll(_PATIENCE_S)
        now = clock()
        if message is None:
            raise ClientFailedError(f"{len(taken_ns)} of {count} records arrived")
        value, error = message.value(), message.error()
        if error is not None or not isinstance(value, bytes):
            raise ClientFailedError(str(error))
        taken_ns.append(now - _STAMP.unpack_from(value)[0])


def _produce(server: BrokerServer, topic: str, count: int, pace: Pace) -> None:
    """Produce records at regular times by the clock; a late one does not delay the next."""
    from confluent_kafka import Producer

    failed: list[str] = []

    def report(error: "KafkaError | None", _: "Message") -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            **client_of(server),
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=_PATIENCE_S)
    padding = bytes(_VALUE_BYTES - _STAMP.size)
    clock, interval_ns = time.perf_counter_ns, 10**9 // pace.records_per_s
    due_ns = clock()
    for _ in range(count):
        due_ns += interval_ns
        while (early_ns := due_ns - clock()) > 0:
            time.sleep(early_ns / 1e9)
        producer.produce(topic, _STAMP.pack(clock()) + padding, partition=0, on_delivery=report)
        producer.poll(0)
    if left := producer.flush(_PATIENCE_S):
        raise ClientFailedError(f"{left} records were not acknowledged")
    if failed:
        raise ClientFailedError(f"not acknowledged: {failed[:3]}")
