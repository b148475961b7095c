"""Three clients produce with acks=all at equal durability."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from bench.broker_producers import (
    BATCH_BYTES,
    Workload,
    java_produce,
    librdkafka_produce,
    wire_produce,
)
from bench.broker_servers import OS, BrokerServer, new_topic
from bench.broker_stage import CLIENT_TURNS, Load, Stage, cpu_rows, load_row, measure_loads
from bench.measure import Context, Row
from bench.null_server import NULL
from bench.wire_load import pipeline_produce
from cordwood.quantities import KIB, MIB

PRODUCE_RATIO = 1.0  # compared with Kafka

_NULL_TOPIC = "bench"
_Producer = Callable[[BrokerServer, str, Workload], Load]


def workload(context: Context, value_size: int, *, full_mib: int, quick_mib: int) -> Workload:
    return Workload(
        value_size=value_size, records=context.pick(full_mib, quick_mib) * MIB // value_size
    )


def wire_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """Two batch sizes: that of a busy client, and four times as much."""
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    rows: list[Row] = []
    for batch_bytes in (64 * KIB, BATCH_BYTES):

        def produce(server: BrokerServer, topic: str, work: Workload) -> Load:
            return wire_produce(server, topic, work, batch_bytes=batch_bytes)  # noqa: B023

        title = f"produce {size_name(value_size)}, wire, batches of {batch_bytes // KIB} KiB"
        note = f"one connection, five requests in flight; {work.records:,} records"
        null = partial(_null_load, stage.null_port(context), work, batch_bytes)
        rows += _rows(context, stage, title, work, produce, note=note, peers={NULL: null})
    return rows


def librdkafka_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    full_mib, turns = 512 // CLIENT_TURNS, context.pick(CLIENT_TURNS, 1)
    quick_mib = 64 if value_size >= KIB else 16
    work = workload(context, value_size, full_mib=full_mib, quick_mib=quick_mib)
    title = f"produce {size_name(value_size)}, librdkafka"
    note = f"confluent-kafka's produce_batch, which is the limit here; {work.records:,} records"
    return list(_rows(context, stage, title, work, librdkafka_produce, note=note, turns=turns))


def java_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """No rows if Kafka's jars are missing, because the client is in them."""
    stage.set_up(context)
    tools = stage.kafka
    if tools is None:
        return []
    work = workload(context, value_size, full_mib=1024, quick_mib=64 if value_size >= KIB else 32)
    title = f"produce {size_name(value_size)}, Java"
    note = f"Kafka's ProducerPerformance; {work.records:,} records after half as many to warm up"

    def produce(server: BrokerServer, topic: str, work: Workload) -> Load:
        return java_produce(server, topic, work, tools)

    return list(_rows(context, stage, title, work, produce, note=note, is_slow_to_start=True))


def _null_load(port: int, work: Workload, batch_bytes: int) -> Load:
    frames = work.frames(_NULL_TOPIC, batch_bytes)
    started = time.perf_counter()
    sent = pipeline_produce(port, _NULL_TOPIC, frames, work.records)
    return Load(
        records=sent,
        value_bytes=sent * work.value_size,
        seconds=time.perf_counter() - started,
    )


def size_name(value_size: int) -> str:
    return f"{value_size // KIB} KiB" if value_size >= KIB else f"{value_size} B"


def _rows(
    context: Context,
    stage: Stage,
    title: str,
    work: Workload,
    produce: _Producer,
    *,
    note: str,
    peers: Mapping[str, Callable[[], Load]] | None = None,
    is_slow_to_start: bool = False,
    turns: int = 1,
) -> Iterator[Row]:
    def load(server: BrokerServer) -> Load:
        with new_topic(server, OS) as topic:
            return produce(server, topic, work)

    # A tool with its own warm-up takes seconds for each run: --quick runs it once.
    is_single = is_slow_to_start and context.is_quick
    loads = measure_loads(
        stage.servers(context),
        OS,
        load,
        runs=1 if is_single else context.runs * turns,
        warm_up=not is_slow_to_start,
        peers=peers,
    )
    in_bytes = work.value_size >= KIB
    yield load_row(
        title,
        OS,
        "MB/s" if in_bytes else "records/s",
        loads,
        (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
        judge=stage.judge(OS),
        ratio=PRODUCE_RATIO,
        note=stage.note(note + ("; one run" if is_single else ""), "Kafka"),
    )
    yield from cpu_rows(title, OS, loads)
