"""Committed readers beside others, on a log of many small transactions.

The rate is that of the log: all its records, also those that a committed reader leaves out, so
that both readers go over the same bytes. The log is read several times in a sample.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.broker_producers import ClientFailedError, Workload
from bench.broker_servers import OS, BrokerServer, client_of, new_topic
from bench.broker_stage import CORDWOOD, Load, Stage, cpu_rows, load_row, timed
from bench.measure import Context, Row, measure_in_turns
from bench.transaction_clients import commit_until, transactional_producers
from bench.wire_load import fetch_all
from cordwood.quantities import MIB

COMMITTED_RATIO: Final = 0.95  # compared with readers of everything

_EVERYTHING: Final = "read_uncommitted"
_PRODUCERS: Final = 8
_RECORDS: Final = 10
_VALUE_SIZE: Final = 100
_PATIENCE_S: Final = 30.0
_FETCH_BYTES: Final = 1 * MIB
_MESSAGES_PER_CALL: Final = 10_000
_CALL_S: Final = 0.002  # a call with fewer messages lasts so long, also at the end of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    topic: str
    transactions: int
    end: int  # its end offset: records and markers


_Consume = Callable[[BrokerServer, _Log, bool, int], Load]


def committed_rows(context: Context, stage: Stage, aborted_percent: int) -> list[Row]:
    """The same log, read from the page cache by a client on the wire and by librdkafka."""
    servers = stage.servers(context)
    clients: Mapping[str, _Consume] = {"wire": _wire_consume, "librdkafka": _librdkafka_consume}
    with ExitStack() as topics:
        logs = {
            server.name: _prepared(context, topics, server, aborted_percent) for server in servers
        }
        return [
            row
            for client, consume in clients.items()
            for row in _rows(context, servers, logs, client, consume, aborted_percent)
        ]


def _prepared(
    context: Context, topics: ExitStack, server: BrokerServer, aborted_percent: int
) -> _Log:
    """Transactions of several producers at once in one partition; some are aborted."""
    topic = topics.enter_context(new_topic(server, OS))
    ended = commit_until(
        transactional_producers(server, _PRODUCERS),
        topic,
        Workload(value_size=_VALUE_SIZE, records=_RECORDS).values(),
        time.perf_counter() + context.pick(30, 8),
        has_own_partitions=False,
        aborts_every=100 // aborted_percent if aborted_percent else 0,
        most=context.pick(20_000, 4_000) // _PRODUCERS,
    )
    return _Log(topic=topic, transactions=ended, end=_end_offset(server, topic))


def _end_offset(server: BrokerServer, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**client_of(server), "group.id": "bench"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_S)
        return int(end)
    finally:
        consumer.close()


def _rows(
    context: Context,
    servers: list[BrokerServer],
    logs: Mapping[str, _Log],
    client: str,
    consume: _Consume,
    aborted_percent: int,
) -> Iterator[Row]:
    records = context.pick(4_000_000, 1_000_000)
    subjects: dict[str, Callable[[], Load]] = {}
    for server in servers:
        log = logs[server.name]
        times = max(records // log.end, 1)
        name = server.label(OS)
        everything = _EVERYTHING if name == CORDWOOD else f"{name}, {_EVERYTHING}"
        subjects[name] = partial(consume, server, log, True, times)
        subjects[everything] = partial(consume, server, log, False, times)
    loads = measure_in_turns(subjects, runs=context.runs)
    ours = logs[CORDWOOD]
    aborted = f", {aborted_percent} % aborted" if aborted_percent else ""
    title = f"consume read_committed, {client}{aborted}"
    yield load_row(
        title,
        OS,
        "records/s",
        loads,
        lambda load: load.records_per_s,
        judge=_EVERYTHING,
        ratio=COMMITTED_RATIO,
        note=(
            f"{ours.transactions:,} transactions of {_RECORDS} records of {_VALUE_SIZE} B in our "
            f"log, {max(log.transactions for log in logs.values()):,} at most; several passes"
        ),
    )
    yield from cpu_rows(title, OS, loads)


def _wire_consume(server: BrokerServer, log: _Log, is_committed: bool, times: int) -> Load:
    def consume() -> tuple[int, int]:
        for _ in range(times):
            fetch_all(
                server.port,
                log.topic,
                records=log.end,
                max_bytes=_FETCH_BYTES,
                is_committed=is_committed,
            )
        return times * log.end, times * log.end * _VALUE_SIZE

    return timed(server, consume)


def _librdkafka_consume(server: BrokerServer, log: _Log, is_committed: bool, times: int) -> Load:
    """It reports the end of the partition when it has passed the last record."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **client_of(server),
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if is_committed else _EVERYTHING,
            "queued.max.messages.kbytes": 64 * 1024,
            "queued.min.messages": 10_000_000,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 10,
        }
    )

    def pass_once() -> None:
        consumer.assign([TopicPartition(log.topic, 0, 0)])
        deadline_s = time.perf_counter() + _PATIENCE_S
        while True:
            messages = consumer.consume(_MESSAGES_PER_CALL, timeout=_CALL_S)
            if not messages:
                if time.perf_counter() > deadline_s:
                    raise ClientFailedError("the end of the partition was not reached")
                continue
            error = messages[-1].error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise ClientFailedError(str(error))

    def consume() -> tuple[int, int]:
        for _ in range(times):
            pass_once()
        return times * log.end, times * log.end * _VALUE_SIZE

    try:
        consumer.list_topics(log.topic, timeout=30)  # connected before the clock starts
        return timed(server, consume)
    finally:
        consumer.close()
