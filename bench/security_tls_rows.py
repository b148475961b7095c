"""Produce and consume over TLS: the same certificate, version and cipher on both servers."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from bench.broker_consumers import FETCH_BYTES, librdkafka_consume, wire_consume
from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import BATCH_BYTES, Workload, librdkafka_produce, wire_produce
from bench.broker_servers import OS, BrokerServer, new_topic
from bench.broker_stage import Load, Stage, cpu_rows, load_row, measure_loads
from bench.measure import Context, Row
from bench.tls_files import CIPHER, VERSION
from cordwood.quantities import KIB, MIB

TLS_RATIO: Final = 1.0  # compared with Kafka

_SETTINGS: Final = f"{VERSION}, {CIPHER}"


def tls_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """The raw client with two batch sizes."""
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    rows: list[Row] = []
    for batch_bytes in (64 * KIB, BATCH_BYTES):

        def produce(server: BrokerServer, topic: str, batch_bytes: int = batch_bytes) -> Load:
            return wire_produce(server, topic, work, batch_bytes=batch_bytes)

        title = f"produce {size_name(value_size)}, wire, batches of {batch_bytes // KIB} KiB"
        note = f"one connection, five requests in flight; {work.records:,} records"
        rows += _rows(context, stage, title, work, _to_new_topic(produce), note)
    return rows


def tls_librdkafka_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    work = workload(context, value_size, full_mib=512, quick_mib=64 if value_size >= KIB else 16)

    def produce(server: BrokerServer, topic: str) -> Load:
        return librdkafka_produce(server, topic, work)

    title = f"produce {size_name(value_size)}, librdkafka"
    note = f"confluent-kafka's produce_batch; {work.records:,} records"
    return _rows(context, stage, title, work, _to_new_topic(produce), note)


def tls_consume_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """Two clients read the same topic from its beginning, from the page cache."""
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    fewer = workload(context, value_size, full_mib=256, quick_mib=32)
    size = size_name(value_size)
    servers = stage.servers(context)
    with ExitStack() as topics:
        names = {server.name: topics.enter_context(new_topic(server, OS)) for server in servers}
        for server in servers:
            wire_produce(server, names[server.name], work)
        return [
            *_rows(
                context,
                stage,
                f"consume {size}, wire",
                work,
                lambda server: wire_consume(server, names[server.name], work),
                f"one connection, Fetch of {FETCH_BYTES // MIB} MiB; {work.records:,} records",
            ),
            *_rows(
                context,
                stage,
                f"consume {size}, librdkafka",
                fewer,
                lambda server: librdkafka_consume(server, names[server.name], fewer),
                f"confluent-kafka's consume, assigned; {fewer.records:,} records",
            ),
        ]


def _to_new_topic(produce: Callable[[BrokerServer, str], Load]) -> Callable[[BrokerServer], Load]:
    def load(server: BrokerServer) -> Load:
        with new_topic(server, OS) as topic:
            return produce(server, topic)

    return load


def _rows(
    context: Context,
    stage: Stage,
    title: str,
    work: Workload,
    load: Callable[[BrokerServer], Load],
    note: str,
) -> list[Row]:
    loads = measure_loads(stage.servers(context), OS, load, runs=context.runs)
    in_bytes = work.value_size >= KIB
    title = f"TLS: {title}"
    row = load_row(
        title,
        OS,
        "MB/s" if in_bytes else "records/s",
        loads,
        (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
        judge=stage.judge(OS),
        ratio=TLS_RATIO,
        note=stage.note(f"{_SETTINGS}; {note}", "Kafka"),
    )
    return [row, *cpu_rows(title, OS, loads)]
