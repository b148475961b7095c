"""Plain connections, compared with an earlier version of Cordwood: `--before DIR`."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from bench.broker_consumers import wire_consume
from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import BATCH_BYTES, wire_produce
from bench.broker_servers import OS, BrokerServer, CordwoodServer, new_topic, running
from bench.broker_stage import Load, Stage, cpu_rows, load_row, measure_loads
from bench.measure import Context, Row
from bench.security_access_rows import own_produce_rows
from bench.workload import fresh_path
from cordwood.quantities import KIB

BEFORE_RATIO: Final = 0.95  # compared with the earlier version

_BEFORE: Final = "Cordwood, before"
_BATCHES: Final = (4 * KIB, 64 * KIB, BATCH_BYTES)


def before_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    """No rows without an earlier version to compare with."""
    if context.before is None:
        context.say("skipped: it needs --before DIR")
        return []
    stage.set_up(context)
    prefix = stage.command_prefix
    now = CordwoodServer(fresh_path(context.directory, "now"), command_prefix=prefix)
    before = CordwoodServer(
        fresh_path(context.directory, "before"),
        command_prefix=prefix,
        name=_BEFORE,
        checkout=context.before,
    )
    context.facts["before"] = str(context.before)
    title = f"produce {size_name(value_size)}, wire, before and after"
    with running(now), running(before):
        produced = own_produce_rows(
            context, (now, before), title, value_size, _BATCHES, ratio=BEFORE_RATIO
        )
        return [*produced, *_consume_rows(context, [now, before], value_size)]


def _consume_rows(context: Context, servers: list[BrokerServer], value_size: int) -> Iterator[Row]:
    work = workload(context, value_size, full_mib=1024, quick_mib=128)
    with ExitStack() as topics:
        names = {server.name: topics.enter_context(new_topic(server, OS)) for server in servers}
        for server in servers:
            wire_produce(server, names[server.name], work)

        def consume(server: BrokerServer) -> Load:
            return wire_consume(server, names[server.name], work)

        loads = measure_loads(servers, OS, consume, runs=context.runs)
    title = f"consume {size_name(value_size)}, wire, before and after"
    in_bytes = value_size >= KIB
    yield load_row(
        title,
        OS,
        "MB/s" if in_bytes else "records/s",
        loads,
        (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
        judge=_BEFORE,
        ratio=BEFORE_RATIO,
        note=f"one connection; {work.records:,} records",
    )
    yield from cpu_rows(title, OS, loads)
