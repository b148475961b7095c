"""How long clients wait for a server that was killed during writes."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_produce_rows import workload
from bench.broker_producers import Workload
from bench.broker_servers import OS, running
from bench.broker_stage import Stage, figure_row
from bench.broker_stream_rows import nats_running, redis_running
from bench.killed_servers import KilledBroker, KilledNats, KilledRedis, KilledServer
from bench.measure import Context, Row, measure_in_turns
from bench.workload import fresh_path
from cordwood.quantities import KIB, MIB

RESTART_RATIO: Final = 1.0  # compared with Kafka


def restart_rows(context: Context, stage: Stage) -> list[Row]:
    """One log of records of 1 KiB, all servers at their default durability."""
    work = workload(context, KIB, full_mib=1024, quick_mib=128)
    with ExitStack() as resources:
        killed: list[KilledServer] = list(_brokers(context, stage, resources, work))
        if "NATS" not in stage.absent:
            nats = resources.enter_context(nats_running(context, stage, OS))
            killed.append(KilledNats(nats, work))
        if "Redis" not in stage.absent:
            redis = resources.enter_context(redis_running(context, stage, OS))
            killed.append(KilledRedis(redis, work))
        title = f"restart after kill -9 under load, {work.value_bytes // MIB} MiB"
        note = "until an old record is read and a new one is acknowledged; no warm-up"
        return [_row(context, title, killed, stage.note(note, "Kafka", "NATS", "Redis"))]


def restart_many_rows(context: Context, stage: Stage) -> list[Row]:
    """One topic of many partitions, few records in each."""
    partitions = context.pick(1000, 200)
    work = Workload(value_size=KIB, records=16 * KIB)
    with ExitStack() as resources:
        killed = _brokers(context, stage, resources, work, partitions=partitions)
        title = f"restart after kill -9 under load, {partitions:,} partitions"
        note = "the first and the last partition read, a new record acknowledged; no warm-up"
        return [_row(context, title, killed, stage.note(note, "Kafka"))]


def _brokers(
    context: Context,
    stage: Stage,
    resources: ExitStack,
    work: Workload,
    *,
    partitions: int = 1,
) -> list[KilledBroker]:
    stage.set_up(context)
    directory: Path = fresh_path(context.directory, "restart")
    directory.mkdir()
    servers = stage.new_servers(directory)
    for server in servers:
        resources.enter_context(running(server))
    return [KilledBroker(server, work, partitions=partitions) for server in servers]


def _row(context: Context, title: str, killed: Sequence[KilledServer], note: str) -> Row:
    figures = measure_in_turns(
        {each.name: partial(_restart_s, each) for each in killed},
        runs=context.runs,
        warm_up=False,
    )
    judge = next((name for name in figures if name.startswith("Kafka")), None)
    return figure_row(
        title,
        OS,
        "s",
        figures,
        judge=judge,
        ratio=RESTART_RATIO,
        is_lower_better=True,
        note=note,
    )


def _restart_s(killed: KilledServer) -> float:
    killed.fill_and_kill()
    taken_s = killed.restart_s()
    killed.clear()
    return taken_s
