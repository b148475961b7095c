"""Three clients consume a topic from its beginning, from the page cache."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.broker_consumers import FETCH_BYTES, java_consume, librdkafka_consume, wire_consume
from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import Workload, wire_produce
from bench.broker_servers import OS, BrokerServer, new_topic
from bench.broker_stage import CLIENT_TURNS, Load, Stage, cpu_rows, load_row, measure_loads
from bench.measure import Context, Row
from cordwood.quantities import KIB, MIB

CONSUME_RATIO = 1.0  # compared with Kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    name: str
    consume: Callable[[BrokerServer, str, Workload], Load]
    work: Workload  # the share of the topic's records that it reads
    note: str
    is_slow_to_start: bool = False
    turns: int = 1  # samples for each run


def consume_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """One topic on each server, read by every client."""
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    servers = stage.servers(context)
    with ExitStack() as topics:
        names = {server.name: topics.enter_context(new_topic(server, OS)) for server in servers}
        for server in servers:
            wire_produce(server, names[server.name], work)
        return [
            row
            for client in _clients(context, stage, work)
            for row in _rows(context, stage, servers, names, client)
        ]


def _clients(context: Context, stage: Stage, work: Workload) -> Iterator[_Client]:
    yield _Client(
        name="wire",
        consume=wire_consume,
        work=work,
        note=f"one connection, Fetch of {FETCH_BYTES // MIB} MiB, batches of 256 KiB",
    )
    small = work.value_size < KIB
    full_mib = 256 if small else 1024
    fewer = workload(context, work.value_size, full_mib=full_mib, quick_mib=32)
    yield _Client(
        name="librdkafka",
        consume=librdkafka_consume,
        work=workload(context, work.value_size, full_mib=full_mib // CLIENT_TURNS, quick_mib=32),
        note="confluent-kafka's consume, assigned",
        turns=context.pick(CLIENT_TURNS, 1),
    )
    tools = stage.kafka
    if tools is not None:
        yield _Client(
            name="Java",
            consume=lambda server, topic, work: java_consume(server, topic, work, tools),
            work=fewer,
            note="Kafka's ConsumerPerformance, joining its group not counted",
            is_slow_to_start=True,
        )


def _rows(
    context: Context,
    stage: Stage,
    servers: list[BrokerServer],
    topics: dict[str, str],
    client: _Client,
) -> list[Row]:
    work = client.work
    # A tool that takes seconds to start runs only once with --quick.
    is_single = client.is_slow_to_start and context.is_quick
    loads = measure_loads(
        servers,
        OS,
        lambda server: client.consume(server, topics[server.name], work),
        runs=1 if is_single else context.runs * client.turns,
        warm_up=not client.is_slow_to_start,
    )
    title = f"consume {size_name(work.value_size)}, {client.name}"
    note = f"{client.note}; {work.records:,} records{'; one run' if is_single else ''}"
    in_bytes = work.value_size >= KIB
    row = load_row(
        title,
        OS,
        "MB/s" if in_bytes else "records/s",
        loads,
        (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
        judge=stage.judge(OS),
        ratio=CONSUME_RATIO,
        note=stage.note(note, "Kafka"),
    )
    return [row, *cpu_rows(title, OS, loads)]
