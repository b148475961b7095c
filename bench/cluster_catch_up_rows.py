"""A follower that was stopped while others went on: how fast it gets what it missed."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_producers import Workload, librdkafka_work
from bench.broker_servers import OS
from bench.broker_stage import figure_row
from bench.cluster_stage import BROKERS, ClusterStage, Side, await_in_sync, new_topic
from bench.measure import Context, Row, Target, measure_in_turns
from bench.peer_process import ServerFailedError
from cordwood.quantities import KIB, MIB
from interop.local_cluster import end
from interop.local_nodes import Node

CATCH_UP_MB_S: Final = 200.0

_PATIENCE_S: Final = 300.0
_STEP_S: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """`copied_bytes` came in `copying_s`. The follower was in sync `in_sync_s` after its start."""

    copied_bytes: int
    copying_s: float
    in_sync_s: float

    @property
    def mb_per_s(self) -> float:
        return self.copied_bytes / self.copying_s / 1e6


def catch_up_rows(context: Context, stage: ClusterStage) -> list[Row]:
    """Three partitions, led by the two brokers that stay."""
    sides = stage.sides(context)
    if not sides:
        return []
    work = Workload(value_size=KIB, records=context.pick(2048, 256) * MIB // KIB)
    found = measure_in_turns(
        {side.label(OS): partial(_catch_up, stage, side, work) for side in sides},
        runs=2 if context.is_quick else context.runs,
        warm_up=False,
    )
    size = f"{work.value_bytes // MIB} MiB"
    rate = figure_row(
        "catch-up of a follower",
        OS,
        "MB/s",
        {name: [each.mb_per_s for each in every] for name, every in found.items()},
        note=f"{size} in {BROKERS} partitions, from its first byte to its last",
    )
    return [
        replace(rate, target=Target(bound=CATCH_UP_MB_S)),
        figure_row(
            f"start of a follower that misses {size}, until it is in sync",
            OS,
            "s",
            {name: [each.in_sync_s for each in every] for name, every in found.items()},
            judge=stage.judge(OS),
            is_lower_better=True,
            note="the controllers accept a broker again when its last session has ended, after 9 s",
        ),
    ]


def _catch_up(stage: ClusterStage, side: Side, work: Workload) -> CatchUp:
    behind, leader = side.nodes[-1], side.nodes[0]
    with new_topic(side, OS, partitions=BROKERS, last=behind) as topic:
        end([behind])
        had = _log_bytes(behind, topic)
        librdkafka_work(side.client, topic, work, partitions=BROKERS)()
        wanted = _log_bytes(leader, topic)
        started = time.perf_counter()
        stage.start_again(behind)
        copied, copying_s = _watch(behind, topic, had, wanted)
        await_in_sync(side, topic, partitions=BROKERS)
        in_sync_s = time.perf_counter() - started
        stage.restore()
    return CatchUp(copied_bytes=copied, copying_s=copying_s, in_sync_s=in_sync_s)


def _watch(node: Node, topic: str, had: int, wanted: int) -> tuple[int, float]:
    """The bytes that came, and the seconds since the last look at which none had come.

    The broker had `had` bytes when it was stopped.
    """
    deadline = time.monotonic() + _PATIENCE_S
    begun_s = time.perf_counter()
    while True:
        looked_s = time.perf_counter()
        size = _log_bytes(node, topic)
        if size <= had:
            begun_s = looked_s
        if size >= wanted:
            return size - had, time.perf_counter() - begun_s
        if time.monotonic() > deadline:
            raise ServerFailedError(
                f"{node.name} had {size:,} of {wanted:,} bytes in {_PATIENCE_S:.0f} s"
            )
        time.sleep(_STEP_S)


def _log_bytes(node: Node, topic: str) -> int:
    """What the segments of a topic have on one broker."""
    return sum(file.stat().st_size for file in Path(node.data).glob(f"{topic}-*/*.log"))
