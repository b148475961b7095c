"""Cordwood compared with NATS JetStream and Redis Streams: producing at both levels, and reading.

Each server gets what its own protocol allows. Cordwood: batches of 256 KiB, five in flight on one
connection. NATS and Redis, which have no batches: 8 connections with 512 messages in flight on
each. An acknowledgement means the same for all in a row.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from bench.broker_consumers import wire_consume
from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import Workload, wire_produce
from bench.broker_servers import DISK, OS, BrokerServer, new_topic
from bench.broker_stage import CORDWOOD, Load, Stage, cpu_rows, figure_row, load_row, timed
from bench.measure import Context, Row, measure_in_turns
from bench.nats_peer import NatsServer
from bench.process_tree import tree_resident_mb
from bench.rabbit_peer import RabbitServer
from bench.redis_peer import RedisServer
from bench.stream_load import (
    CONNECTIONS,
    IN_FLIGHT,
    NatsPipeline,
    RabbitPipeline,
    RedisPipeline,
    line_free_values,
    nats_consume,
    rabbit_consume,
    redis_consume,
)
from bench.workload import fresh_path
from cordwood.quantities import KIB, MIB

STREAM_RATIO = 1.0  # compared with NATS

_TITLE = {
    OS: "produce {}, beside NATS and Redis",
    DISK: "produce {}, synced, beside NATS and Redis",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """One server in a row; `read` reads what `write` wrote."""

    pid: int
    write: Callable[[], Load]
    read: Callable[[], Load]
    clear: Callable[[], None]


def stream_rows(context: Context, stage: Stage, value_size: int, durability: str) -> list[Row]:
    full_mib, quick_mib = (256, 48) if value_size >= KIB else (64, 12)
    work = workload(context, value_size, full_mib=full_mib, quick_mib=quick_mib)
    # It is so much faster that the same number of records would be too short to time.
    more = Workload(value_size=value_size, records=work.records * (4 if value_size >= KIB else 8))
    (server, *_) = stage.servers(context)
    with ExitStack() as resources:
        subjects = {CORDWOOD: resources.enter_context(_cordwood(server, durability, more))}
        if "NATS" not in stage.absent:
            nats = resources.enter_context(nats_running(context, stage, durability))
            # One sync per message: only as many as fit into a few seconds.
            few = Workload(value_size=value_size, records=context.pick(16 * KIB, 4 * KIB))
            subjects[nats.name] = _nats(nats, few if durability == DISK else work)
        if "Redis" not in stage.absent:
            redis = resources.enter_context(redis_running(context, stage, durability))
            subjects[redis.name] = _redis(redis, work)
        if "RabbitMQ" not in stage.absent and durability == OS:  # it does not sync streams
            rabbit = resources.enter_context(rabbit_running(context, stage))
            subjects[rabbit.name] = _rabbit(rabbit, work)
        return _rows(context, stage, subjects, work, durability)


def _rows(
    context: Context,
    stage: Stage,
    subjects: dict[str, _Subject],
    work: Workload,
    durability: str,
) -> list[Row]:
    def written(subject: _Subject) -> Load:
        subject.clear()
        return subject.write()

    loads = measure_in_turns(
        {name: partial(written, subject) for name, subject in subjects.items()}, runs=context.runs
    )
    title = _TITLE[durability].format(size_name(work.value_size))
    judge = next((name for name in subjects if name.startswith("NATS")), None)
    note = (
        f"{work.records:,} records, more for Cordwood; the others on {CONNECTIONS} "
        f"connections, {IN_FLIGHT} in flight on each"
    )
    rows = [
        load_row(
            title,
            durability,
            "records/s",
            loads,
            lambda load: load.records_per_s,
            judge=judge,
            ratio=STREAM_RATIO,
            note=stage.note(note, "NATS", "Redis", *(["RabbitMQ"] if durability == OS else [])),
        ),
        *cpu_rows(title, durability, loads),
    ]
    if durability == OS:
        rows += _memory_rows(subjects, work)
        rows += _read_rows(context, subjects, work, judge)
    for subject in subjects.values():
        subject.clear()
    return rows


def _memory_rows(subjects: dict[str, _Subject], work: Workload) -> list[Row]:
    """The memory of each server with a log of that size."""
    if work.value_size < KIB:
        return []
    found = {name: tree_resident_mb(subject.pid) for name, subject in subjects.items()}
    memory = {name: [used_mb] for name, used_mb in found.items() if used_mb is not None}
    title = f"memory with {work.value_bytes // MIB} MiB or more kept, beside NATS and Redis"
    note = "resident size; Cordwood's after all rows before this one"
    return [figure_row(title, OS, "MB", memory, is_lower_better=True, note=note)] if memory else []


def _read_rows(
    context: Context, subjects: dict[str, _Subject], work: Workload, judge: str | None
) -> list[Row]:
    loads = measure_in_turns(
        {name: subject.read for name, subject in subjects.items()}, runs=context.runs
    )
    title = f"consume {size_name(work.value_size)}, beside NATS and Redis"
    row = load_row(
        title,
        OS,
        "records/s",
        loads,
        lambda load: load.records_per_s,
        judge=judge,
        ratio=STREAM_RATIO,
        note="one connection; Fetch of 1 MiB, two pulls of 1,000 in flight, XREAD COUNT 1000, "
        "10 chunks of credit",
    )
    return [row, *cpu_rows(title, OS, loads)]


# --- the servers ------------------------------------------------------------------------------


@contextmanager
def nats_running(context: Context, stage: Stage, durability: str) -> Iterator[NatsServer]:
    """NATS runs inside the `with`; its data is deleted afterwards."""
    path = fresh_path(context.directory, "nats")
    server = NatsServer(path, durability, command_prefix=stage.command_prefix)
    with _running(server):
        yield server


@contextmanager
def redis_running(context: Context, stage: Stage, durability: str) -> Iterator[RedisServer]:
    path = fresh_path(context.directory, "redis")
    server = RedisServer(path, durability, command_prefix=stage.command_prefix)
    with _running(server):
        yield server


@contextmanager
def rabbit_running(context: Context, stage: Stage) -> Iterator[RabbitServer]:
    path = fresh_path(context.directory, "rabbitmq")
    server = RabbitServer(path, command_prefix=stage.command_prefix)
    with _running(server):
        yield server


@contextmanager
def _running(server: NatsServer | RedisServer | RabbitServer) -> Iterator[None]:
    try:
        server.launch()
        server.wait_until_serving()
        yield
    finally:
        server.kill()
        server.remove_data()


@contextmanager
def _cordwood(server: BrokerServer, durability: str, work: Workload) -> Iterator[_Subject]:
    topics = ExitStack()
    names: list[str] = []

    def clear() -> None:
        topics.close()
        names.clear()

    def write() -> Load:
        names.append(topics.enter_context(new_topic(server, durability)))
        return wire_produce(server, names[0], work)

    with topics:
        yield _Subject(
            pid=server.pid,
            write=write,
            read=lambda: wire_consume(server, names[0], work),
            clear=clear,
        )


def _nats(server: NatsServer, work: Workload) -> _Subject:
    values = line_free_values(work)
    has_stream: list[bool] = []
    readers = iter(range(10**6))

    def clear() -> None:
        if has_stream:
            server.delete_stream()
            has_stream.clear()

    def write() -> Load:
        server.create_stream()
        has_stream.append(True)
        with closing(NatsPipeline(server.port, values)) as pipeline:
            return timed(server, lambda: _sized(pipeline.produce(work.records), work))

    def read() -> Load:
        consumer = f"reader-{next(readers)}"
        return timed(
            server,
            lambda: _read(partial(nats_consume, server.port, consumer=consumer), work),
        )

    return _Subject(pid=server.pid, write=write, read=read, clear=clear)


def _redis(server: RedisServer, work: Workload) -> _Subject:
    values = line_free_values(work)

    def write() -> Load:
        with closing(RedisPipeline(server.port, values)) as pipeline:
            return timed(server, lambda: _sized(pipeline.produce(work.records), work))

    return _Subject(
        pid=server.pid,
        write=write,
        read=lambda: timed(server, lambda: _read(partial(redis_consume, server.port), work)),
        clear=server.flush_all,
    )


def _rabbit(server: RabbitServer, work: Workload) -> _Subject:
    values = work.values()
    has_stream: list[bool] = []

    def clear() -> None:
        if has_stream:
            server.delete_stream()
            has_stream.clear()

    def write() -> Load:
        server.create_stream()
        has_stream.append(True)
        with closing(RabbitPipeline(server.port, values)) as pipeline:
            return timed(server, lambda: _sized(pipeline.produce(work.records), work))

    return _Subject(
        pid=server.pid,
        write=write,
        read=lambda: timed(server, lambda: _read(partial(rabbit_consume, server.port), work)),
        clear=clear,
    )


def _read(consume: Callable[[int], None], work: Workload) -> tuple[int, int]:
    consume(work.records)
    return _sized(work.records, work)


def _sized(records: int, work: Workload) -> tuple[int, int]:
    return records, records * work.value_size
