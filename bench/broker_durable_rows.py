"""Fifty connections, each with one record under way, all of which must be on the disk."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from bench.broker_servers import DISK, BrokerServer, new_topic
from bench.broker_stage import VARVE, Load, Stage, cpu_rows, figure_row
from bench.kafka_wire import AnswerError, produce_frames
from bench.measure import Context, Row, measure_in_turns
from bench.null_server import NULL
from bench.process_tree import tree_cpu_seconds
from bench.redis_peer import flush_all, redis_server, redis_version
from bench.redis_wire import is_added, is_refused, xadd
from bench.wire_load import closed_loop, produce_acknowledgement
from bench.workload import fresh_path
from varve.quantities import KIB

KAFKA_RATIO = 5.0
REDIS_RATIO = 1.0

_CONNECTIONS: Final = 50
_VALUE_BYTES: Final = KIB
_NULL_TOPIC: Final = "bench"


def durable_rows(context: Context, stage: Stage) -> list[Row]:
    """One measurement, judged beside Kafka in one row and beside Redis in the other."""
    servers = stage.servers(context)
    seconds = 1.5 if context.is_quick else 5.0
    subjects: dict[str, Callable[[], Load]] = {
        server.label(DISK): partial(_kafka_load, server, seconds) for server in servers
    }
    null_port = stage.null_port(context)
    subjects[NULL] = lambda: _wire_load(null_port, _NULL_TOPIC, seconds)
    redis = None
    if "Redis" not in stage.absent:
        redis = f"Redis {redis_version()} XADD, appendfsync always"
        path = fresh_path(context.directory, "redis")
        port = context.resources.enter_context(
            redis_server(path, command_prefix=stage.command_prefix)
        )
        subjects[redis] = lambda: _redis_load(port, seconds)
    loads = measure_in_turns(subjects, runs=context.runs)
    rates = {name: [load.records_per_s for load in each] for name, each in loads.items()}
    title = f"{_CONNECTIONS} connections, one 1 KiB record at a time"
    note = f"one partition, acks=all, the next record once the last is acknowledged; {seconds} s"
    beside_redis = {name: values for name, values in rates.items() if name in (VARVE, redis)}
    rates = {name: values for name, values in rates.items() if name != redis}
    return [
        figure_row(
            title,
            DISK,
            "records/s",
            rates,
            judge=stage.judge(DISK),
            ratio=KAFKA_RATIO,
            note=stage.note(note, "Kafka", "Redis"),
        ),
        figure_row(
            f"{title}, beside Redis",
            DISK,
            "records/s",
            beside_redis,
            judge=redis,
            ratio=REDIS_RATIO,
        ),
        *cpu_rows(title, DISK, loads),
    ]


def _kafka_load(server: BrokerServer, seconds: float) -> Load:
    with new_topic(server, DISK) as topic:
        before = tree_cpu_seconds(server.pid)
        load = _wire_load(server.port, topic, seconds)
        after = tree_cpu_seconds(server.pid)
    return load if before is None or after is None else replace(load, server_cpu_s=after - before)


def _wire_load(port: int, topic: str, seconds: float) -> Load:
    (frame,) = produce_frames(
        topic,
        [os.urandom(_VALUE_BYTES)],
        batch_bytes=2 * _VALUE_BYTES,
        now_ms=time.time_ns() // 10**6,
    )
    requests = [frame.data] * _CONNECTIONS
    return _load(closed_loop(port, requests, produce_acknowledgement(topic), seconds), seconds)


def _redis_load(port: int, seconds: float) -> Load:
    request = xadd(b"bench", os.urandom(_VALUE_BYTES))

    def is_acknowledged(answer: bytes) -> bool:
        if is_refused(answer):
            raise AnswerError(f"XADD was refused: {answer!r}")
        return is_added(answer)

    rate = closed_loop(port, [request] * _CONNECTIONS, is_acknowledged, seconds)
    flush_all(port)
    return _load(rate, seconds)


def _load(rate: float, seconds: float) -> Load:
    """The rate is that of the counted part of the time, taken for all of it."""
    records = int(rate * seconds)
    return Load(records=records, value_bytes=records * _VALUE_BYTES, seconds=seconds)
