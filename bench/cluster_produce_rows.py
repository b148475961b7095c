"""Produce with acks=all to topics of three replicas, all of them in sync."""

import os
import time
from functools import partial
from typing import Final

from bench.broker_producers import Workload, librdkafka_work
from bench.broker_servers import DISK, OS
from bench.broker_stage import Load, figure_row, load_row
from bench.cluster_stage import BROKERS, ClusterStage, Side, new_topic
from bench.kafka_wire import produce_frames
from bench.measure import Context, Row, measure_in_turns
from bench.wire_load import closed_loop, produce_acknowledgement, wait_for_topic
from cordwood.quantities import KIB, MIB

CPU_RATIO: Final = 1.0  # at os: records for a second of the brokers' processors
DISK_RATIO: Final = 5.0  # at disk: records/s

_CONNECTIONS: Final = 50


def produce_rows(context: Context, stage: ClusterStage, durability: str) -> list[Row]:
    """Each broker leads a partition and follows two. The clock stops at the last answer."""
    sides = stage.sides(context)
    if not sides:
        return []
    mib = context.pick(512, 64) if durability == OS else context.pick(256, 32)
    work = Workload(value_size=KIB, records=mib * MIB // KIB)

    def load(side: Side) -> Load:
        with new_topic(side, durability, partitions=BROKERS) as topic:
            return side.timed(librdkafka_work(side.client, topic, work, partitions=BROKERS))

    loads = measure_in_turns(
        {side.label(durability): partial(load, side) for side in sides}, runs=context.runs
    )
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
