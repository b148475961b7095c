"""Transactions per second, beside Kafka, with the same client at equal durability."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from bench.broker_produce_rows import size_name
from bench.broker_servers import DISK, OS, BrokerServer, new_topic
from bench.broker_stage import CORDWOOD, Stage, figure_row
from bench.measure import Context, Row, measure_in_turns
from bench.transaction_clients import (
    TransactionLoad,
    TransactionWork,
    java_transactions,
    librdkafka_transactions,
)
from cordwood.quantities import KIB

RATIOS: Final[Mapping[str, float]] = {OS: 1.0, DISK: 5.0}  # compared with Kafka

_PRODUCERS: Final = (1, 8)
_RECORDS: Final = (1, 10, 100)
_SIZES: Final = (KIB, 100)
_Client = Callable[[BrokerServer, str, TransactionWork, float], TransactionLoad]


def librdkafka_rows(context: Context, stage: Stage, durability: str) -> list[Row]:
    """Version 1: each partition is added by a request of its own, the epoch stays."""
    seconds = 0.5 if context.is_quick else 3.0
    return [
        row
        for work in _works()
        for row in _rows(
            context, stage, durability, "librdkafka", work, librdkafka_transactions, seconds
        )
    ]


def java_rows(context: Context, stage: Stage, durability: str) -> list[Row]:
    """Version 2. No rows if Kafka's jars are missing, because the client is in them."""
    stage.set_up(context)
    tools = stage.kafka
    if tools is None:
        return []
    seconds = 1.2 if context.is_quick else 4.0
    works = [work for work in _works() if work.value_size == KIB]

    def commit(
        server: BrokerServer, topic: str, work: TransactionWork, seconds: float
    ) -> TransactionLoad:
        return java_transactions(server, topic, work, seconds, tools)

    return [
        row
        for work in works
        for row in _rows(
            context, stage, durability, "Java", work, commit, seconds, is_slow_to_start=True
        )
    ]


def _works() -> Iterator[TransactionWork]:
    for producers in _PRODUCERS:
        for records in _RECORDS:
            for value_size in _SIZES:
                yield TransactionWork(producers=producers, records=records, value_size=value_size)


def _rows(
    context: Context,
    stage: Stage,
    durability: str,
    client: str,
    work: TransactionWork,
    commit: _Client,
    seconds: float,
    *,
    is_slow_to_start: bool = False,
) -> Iterator[Row]:
    def load(server: BrokerServer) -> TransactionLoad:
        with new_topic(server, durability, partitions=work.producers) as topic:
            return commit(server, topic, work, seconds)

    # A client with its own warm-up takes seconds for each run: --quick runs it once.
    is_single = is_slow_to_start and context.is_quick
    loads = measure_in_turns(
        {server.label(durability): partial(load, server) for server in stage.servers(context)},
        runs=1 if is_single else context.runs,
        warm_up=not is_slow_to_start,
    )
    title = _title(client, work)
    note = f"each producer has a partition; {seconds} s{'; one run' if is_single else ''}"
    yield figure_row(
        title,
        durability,
        "transactions/s",
        {name: [load.per_s for load in each] for name, each in loads.items()},
        judge=stage.judge(durability),
        ratio=RATIOS[durability],
        note=stage.note(note, "Kafka"),
    )
    yield from _cpu_rows(title, durability, loads)


def _title(client: str, work: TransactionWork) -> str:
    producers = "1 producer" if work.producers == 1 else f"{work.producers} producers"
    records = "1 record" if work.records == 1 else f"{work.records} records"
    return f"{client}, {producers}, {records} of {size_name(work.value_size)}"


def _cpu_rows(
    title: str, durability: str, loads: Mapping[str, Sequence[TransactionLoad]]
) -> Iterator[Row]:
    """Processor time of both sides; the server's only if the system has figures."""
    served = {
        name: [load.server_ms_each for load in each if load.server_ms_each is not None]
        for name, each in loads.items()
    }
    sides = {
        "server": {name: values for name, values in served.items() if values},
        "client": {name: [load.client_ms_each for load in each] for name, each in loads.items()},
    }
    for side, figures in sides.items():
        if CORDWOOD in figures:
            yield figure_row(
                f"{title}, {side}'s CPU",
                durability,
                "ms/transaction",
                figures,
                is_lower_better=True,
            )
