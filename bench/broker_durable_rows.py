"""Fifty connections, each with one record in flight, all of which must be synced."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import nats_wire
from bench.broker_servers import DISK, BrokerServer, new_topic
from bench.broker_stage import CLIENT_TURNS, CORDWOOD, Load, Stage, cpu_rows, figure_row
from bench.broker_stream_rows import nats_running, redis_running
from bench.kafka_wire import AnswerError, produce_frames
from bench.measure import Context, Row, measure_in_turns
from bench.nats_peer import NatsServer, connect_nats
from bench.null_server import NULL
from bench.process_tree import tree_cpu_seconds
from bench.redis_peer import RedisServer
from bench.redis_wire import STREAM, is_added, is_refused, xadd
from bench.wire_load import closed_loop, closed_loop_over, produce_acknowledgement
from cordwood.quantities import KIB

KAFKA_RATIO = 5.0
REDIS_RATIO = 1.2

_CONNECTIONS: Final = 50
_VALUE_BYTES: Final = KIB
_NULL_TOPIC: Final = "bench"
_WITHOUT: Final = f"{CORDWOOD}, preallocate=false"


def durable_rows(context: Context, stage: Stage) -> list[Row]:
    """One measurement, compared with Kafka in one row and with Redis in the other."""
    servers = stage.servers(context)
    seconds, turns = 1.5, context.pick(CLIENT_TURNS, 1)  # the machine changes within seconds
    subjects: dict[str, Callable[[], Load]] = {
        server.label(DISK): partial(_kafka_load, server, seconds) for server in servers
    }
    ours = next((server for server in servers if server.name == CORDWOOD), None)
    if ours is not None:
        subjects[_WITHOUT] = partial(_kafka_load, ours, seconds, config={"preallocate": "false"})
    null_port = stage.null_port(context)
    subjects[NULL] = lambda: _load(_wire_rate(null_port, _NULL_TOPIC, seconds), seconds)
    redis = nats = None
    with ExitStack() as peers:
        if "Redis" not in stage.absent:
            redis_peer = peers.enter_context(redis_running(context, stage, DISK))
            redis = redis_peer.name
            subjects[redis] = partial(_redis_load, redis_peer, seconds)
        if "NATS" not in stage.absent:
            nats_peer = peers.enter_context(nats_running(context, stage, DISK))
            nats = nats_peer.name
            subjects[nats] = partial(_nats_load, nats_peer, seconds)
        loads = measure_in_turns(subjects, runs=context.runs * turns)
    rates = {name: [load.records_per_s for load in each] for name, each in loads.items()}
    title = f"{_CONNECTIONS} connections, one 1 KiB record at a time"
    note = f"one partition, acks=all, the next record once the last is acknowledged; {seconds} s"
    beside_redis = {n: values for n, values in rates.items() if n in (CORDWOOD, redis, nats)}
    without = rates.pop(_WITHOUT, None)
    rates = {name: values for name, values in rates.items() if name not in (redis, nats)}
    return [
        figure_row(
            title,
            DISK,
            "records/s",
            rates,
            judge=stage.judge(DISK),
            ratio=KAFKA_RATIO,
            note=stage.note(note, "Kafka"),
        ),
        figure_row(
            f"{title}, beside Redis and NATS",
            DISK,
            "records/s",
            beside_redis,
            judge=redis,
            ratio=REDIS_RATIO,
            note=stage.note("XADD, and PUB to a stream in files", "Redis", "NATS"),
        ),
        *_rows_without(title, without, redis, beside_redis),
        *cpu_rows(title, DISK, loads),
    ]


def _rows_without(
    title: str,
    without: list[float] | None,
    redis: str | None,
    beside_redis: Mapping[str, Sequence[float]],
) -> list[Row]:
    """The same without zeros ahead of the log; no row if our broker was not measured."""
    if without is None:
        return []
    others = {name: values for name, values in beside_redis.items() if name == redis}
    return [
        figure_row(
            f"{title}, preallocate=false, beside Redis",
            DISK,
            "records/s",
            {CORDWOOD: without, **others},
            judge=redis,
            note="the same run",
        )
    ]


def _kafka_load(
    server: BrokerServer, seconds: float, config: Mapping[str, str] | None = None
) -> Load:
    with new_topic(server, DISK, config=config) as topic:
        before = tree_cpu_seconds(server.pid)
        rate = _wire_rate(server.port, topic, seconds)
        after = tree_cpu_seconds(server.pid)
    return _load(rate, seconds, before, after)


def _wire_rate(port: int, topic: str, seconds: float) -> float:
    (frame,) = produce_frames(
        topic,
        [os.urandom(_VALUE_BYTES)],
        batch_bytes=2 * _VALUE_BYTES,
        now_ms=time.time_ns() // 10**6,
    )
    requests = [frame.data] * _CONNECTIONS
    return closed_loop(port, requests, produce_acknowledgement(topic), seconds)


def _redis_load(server: RedisServer, seconds: float) -> Load:
    request = xadd(STREAM, os.urandom(_VALUE_BYTES))

    def is_acknowledged(answer: bytes) -> bool:
        if is_refused(answer):
            raise AnswerError(f"XADD was refused: {answer!r}")
        return is_added(answer)

    before = tree_cpu_seconds(server.pid)
    rate = closed_loop(server.port, [request] * _CONNECTIONS, is_acknowledged, seconds)
    after = tree_cpu_seconds(server.pid)
    server.flush_all()
    return _load(rate, seconds, before, after)


def _nats_load(server: NatsServer, seconds: float) -> Load:
    inboxes = [f"_INBOX.{number}" for number in range(_CONNECTIONS)]
    value = os.urandom(_VALUE_BYTES)
    requests = [nats_wire.publish(nats_wire.SUBJECT, value, inbox=inbox) for inbox in inboxes]
    server.create_stream()
    with ExitStack() as opened:
        connections = [opened.enter_context(connect_nats(server.port, inbox)) for inbox in inboxes]
        before = tree_cpu_seconds(server.pid)
        rate = closed_loop_over(connections, requests, nats_wire.is_acknowledged, seconds)
        after = tree_cpu_seconds(server.pid)
    server.delete_stream()
    return _load(rate, seconds, before, after)


def _load(
    rate: float, seconds: float, cpu_before_s: float | None = None, cpu_after_s: float | None = None
) -> Load:
    """The rate of the counted part of the time, extrapolated to all of it."""
    records = int(rate * seconds)
    cpu_s = None
    if cpu_before_s is not None and cpu_after_s is not None:
        cpu_s = cpu_after_s - cpu_before_s
    return Load(
        records=records,
        value_bytes=records * _VALUE_BYTES,
        seconds=seconds,
        server_cpu_s=cpu_s,
    )
