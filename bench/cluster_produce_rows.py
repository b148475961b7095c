"""Produce with acks=all to topics of three replicas, all of them in sync."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_producers import BATCH_BYTES, Workload, librdkafka_work
from bench.broker_servers import DISK, OS
from bench.broker_stage import Load, figure_row, load_row
from bench.cluster_stage import BROKERS, ClusterStage, Side, new_topic
from bench.kafka_wire import produce_frames
from bench.measure import Context, Row, measure_in_turns
from bench.wire_load import closed_loop, produce_acknowledgement, wait_for_topic
from bench.workload import fresh_path
from cordwood.quantities import KIB, MIB

CPU_RATIO: Final = 1.0  # at os: records for a second of the brokers' processors
DISK_RATIO: Final = 5.0  # at disk: records/s

_CONNECTIONS: Final = 50
_PLAIN: Final = "plain writes, 256 KiB and a sync each, to nine files"


def produce_rows(context: Context, stage: ClusterStage, durability: str) -> list[Row]:
    """Each broker leads a partition and follows two. The clock stops at the last answer."""
    sides = stage.sides(context)
    if not sides:
        return []
    mib = context.pick(512, 128) if durability == OS else context.pick(256, 48)
    work = Workload(value_size=KIB, records=mib * MIB // KIB)

    def load(side: Side) -> Load:
        with new_topic(side, durability, partitions=BROKERS) as topic:
            return side.timed(librdkafka_work(side.client, topic, work, partitions=BROKERS))

    subjects: dict[str, Callable[[], Load]] = {
        side.label(durability): partial(load, side) for side in sides
    }
    if durability == DISK:
        subjects[_PLAIN] = partial(_plain_load, context.directory, work)
    loads = measure_in_turns(subjects, runs=context.runs)
    title = "produce 1 KiB to three replicas, librdkafka"
    note = f"acks=all, {BROKERS} partitions, one led by each broker; {work.records:,} records"
    judge = stage.judge(durability)
    return [
        load_row(
            title,
            durability,
            "MB/s",
            loads,
            lambda load: load.mb_per_s,
            judge=judge,
            ratio=DISK_RATIO if durability == DISK else None,
            note=note,
        ),
        *_cpu_rows(title, durability, loads, judge, CPU_RATIO if durability == OS else None),
    ]


def _plain_load(directory: Path, work: Workload) -> Load:
    """What the disk can do: each replica of each partition is a thread that writes and syncs."""
    piece = os.urandom(BATCH_BYTES)
    times = work.value_bytes // BROKERS // len(piece)
    paths = [fresh_path(directory, "plain") for _ in range(BROKERS * BROKERS)]

    def replica(path: Path) -> None:
        with open(path, "wb", buffering=0) as file:
            for _ in range(times):
                file.write(piece)
                os.fdatasync(file.fileno())

    started = time.perf_counter()
    with ThreadPoolExecutor(len(paths)) as pool:
        list(pool.map(replica, paths))
    seconds = time.perf_counter() - started
    for path in paths:
        path.unlink()
    value_bytes = times * len(piece) * BROKERS
    return Load(records=value_bytes // KIB, value_bytes=value_bytes, seconds=seconds)


def connection_rows(context: Context, stage: ClusterStage) -> list[Row]:
    """Fifty connections, each with one record in flight, all of which must be synced."""
    sides = stage.sides(context)
    if not sides:
        return []
    seconds = 2.0 if context.is_quick else 5.0

    def load(side: Side) -> Load:
        with new_topic(side, DISK) as topic:
            port = side.nodes[0].port  # of the leader
            wait_for_topic(port, topic)
            (frame,) = produce_frames(
                topic, [os.urandom(KIB)], batch_bytes=2 * KIB, now_ms=time.time_ns() // 10**6
            )
            requests = [frame.data] * _CONNECTIONS

            def work() -> tuple[int, int]:
                rate = closed_loop(port, requests, produce_acknowledgement(topic), seconds)
                return int(rate * seconds), int(rate * seconds) * KIB

            return side.timed(work)

    loads = measure_in_turns(
        {side.label(DISK): partial(load, side) for side in sides}, runs=context.runs
    )
    title = f"{_CONNECTIONS} connections, one 1 KiB record at a time, three replicas"
    note = f"acks=all, one partition; {seconds} s"
    judge = stage.judge(DISK)
    return [
        load_row(
            title, DISK, "records/s", loads, lambda load: load.records_per_s, judge=judge, note=note
        ),
        *_cpu_rows(title, DISK, loads, judge, None),
    ]


def _cpu_rows(
    title: str, durability: str, loads: dict[str, list[Load]], judge: str, ratio: float | None
) -> list[Row]:
    """Processor time of the three brokers for a million records; no row if it is unknown."""
    figures = {
        name: [each.cpu_s_per_million for each in found if each.cpu_s_per_million is not None]
        for name, found in loads.items()
        if name != _PLAIN
    }
    if not all(figures.values()):
        return []
    return [
        figure_row(
            f"{title}, CPU of the three brokers",
            durability,
            "s/M records",
            figures,
            judge=judge,
            ratio=ratio,
            is_lower_better=True,
        )
    ]
