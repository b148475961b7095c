"""The start time of a server, and its memory when idle and after load."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bench.broker_consumers import wire_consume
from bench.broker_produce_rows import workload
from bench.broker_producers import wire_produce
from bench.broker_servers import (
    OS,
    BrokerServer,
    create_topic,
    is_running,
    new_topic,
    wait_until_serving,
)
from bench.broker_stage import CORDWOOD, Stage, figure_row
from bench.kafka_wire import produce_error, produce_frames
from bench.measure import Context, Row, Target, measure_in_turns
from bench.peer_process import ServerFailedError
from bench.process_tree import tree_resident_mb
from bench.wire_load import ask
from bench.workload import fresh_path
from cordwood.quantities import KIB

START_RATIO = 5.0
IDLE_MEMORY_RATIO = 3.0
LOADED_MB_MAX = 45.0

_TOPICS: Final = 10
_START_TIMEOUT_S: Final = 60.0
_SETTLE_S: Final = 2.0  # from the first record until the idle server is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a server that was stopped cleanly."""

    first_ack_s: float
    idle_mb: float | None


def start_rows(context: Context, stage: Stage) -> list[Row]:
    stage.set_up(context)
    directory = fresh_path(context.directory, "start")
    directory.mkdir()
    servers = stage.new_servers(directory)
    for server in servers:
        _prepare(server)
    starts = measure_in_turns(
        {server.label(OS): partial(_start, server) for server in servers},
        runs=context.runs,
        warm_up=not context.is_quick,
    )
    judge = next((s.label(OS) for s in servers if s.name != CORDWOOD), None)
    rows = [
        figure_row(
            "start to first acknowledged record",
            OS,
            "s",
            {name: [start.first_ack_s for start in each] for name, each in starts.items()},
            judge=judge,
            ratio=START_RATIO,
            is_lower_better=True,
            note=stage.note(
                f"from starting the process, {_TOPICS} topics, cleanly stopped before", "Kafka"
            ),
        )
    ]
    memory = {
        name: [start.idle_mb for start in each if start.idle_mb is not None]
        for name, each in starts.items()
    }
    if all(memory.values()):
        rows.append(
            figure_row(
                "memory when idle",
                OS,
                "MB",
                memory,
                judge=judge,
                ratio=IDLE_MEMORY_RATIO,
                is_lower_better=True,
                note=f"resident size {_SETTLE_S:.0f} s after that record",
            )
        )
    return rows


def memory_after_load_rows(context: Context, stage: Stage) -> list[Row]:
    """The memory of the suite's servers, after all earlier rows and some more load."""
    work = workload(context, KIB, full_mib=512, quick_mib=128)
    memory: dict[str, list[float]] = {}
    for server in stage.servers(context):
        with new_topic(server, OS) as topic:
            wire_produce(server, topic, work)
            wire_consume(server, topic, work)
            used_mb = tree_resident_mb(server.pid)
        if used_mb is None:
            return []
        memory[server.label(OS)] = [used_mb]
    note = f"resident size after {work.value_bytes // 10**6:,} MB more were produced and consumed"
    row = figure_row("memory after load", OS, "MB", memory, is_lower_better=True, note=note)
    return [replace(row, target=Target(bound=LOADED_MB_MAX))]


def _prepare(server: BrokerServer) -> None:
    """Create the topics for the next start."""
    server.launch()
    try:
        wait_until_serving(server)
        for number in range(_TOPICS):
            create_topic(server, OS, name=_topic(number))
    except BaseException:
        server.kill()
        raise
    server.stop()


def _start(server: BrokerServer) -> Start:
    started = time.perf_counter()
    server.launch()
    try:
        _first_acknowledgement(server, started)
        first_ack_s = time.perf_counter() - started
        time.sleep(_SETTLE_S)
        idle_mb = tree_resident_mb(server.pid)
    except BaseException:
        server.kill()
        raise
    server.stop()
    return Start(first_ack_s=first_ack_s, idle_mb=idle_mb)


def _first_acknowledgement(server: BrokerServer, started: float) -> None:
    """Produce every two milliseconds until a record is acknowledged."""
    topic = _topic(0)
    (frame,) = produce_frames(
        topic, [bytes(KIB)], batch_bytes=4 * KIB, now_ms=time.time_ns() // 10**6
    )
    while True:
        try:
            error = produce_error(bytes(ask(server.port, frame.data)), topic)
        except OSError:
            error = None
        if error == 0:
            return
        if time.perf_counter() - started > _START_TIMEOUT_S or not is_running(server):
            raise ServerFailedError(
                f"{server.name} acknowledged nothing; last error: {error}\n{server.printed()}"
            )
        time.sleep(0.002)


def _topic(number: int) -> str:
    return f"start-{number}"
