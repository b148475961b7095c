"""The workers: real clients of version 1, a client of version 2, and a reader. Each is a process.

They go on until they are stopped or killed. Whatever a client library reports, the history says
only what is certain: an end that failed in any way is one that nobody was told of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from crash.exactly_once.history import HistoryWriter, Read, ReaderStarted, now
from crash.exactly_once.raw_producer import (
    Link,
    RawProducer,
    RefusedError,
    StoppedError,
    committed_position,
    read_committed,
)
from crash.exactly_once.workload import (
    PARTITIONS,
    SOURCE,
    TIMEOUT_MS,
    TOPIC,
    Assignment,
    Planned,
    Worker,
)

_PATIENCE_S: Final = 20.0
_PROCESSED_MAX: Final = 5  # records in one transaction
_CONNECTION: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
    "error_cb": lambda _error: None,
}


# --- version 2 -------------------------------------------------------------------------------


def run_raw(assignment: Assignment) -> None:
    worker = Worker(assignment, version=2)
    link = Link(assignment.address, assignment.name, worker.should_stop)
    producer = RawProducer(link, assignment.name, TIMEOUT_MS)
    with contextlib.suppress(StoppedError):
        while not worker.should_stop():
            with contextlib.suppress(RefusedError):
                producer.init()
                while not worker.should_stop():
                    _raw_transaction(worker, producer)
    link.close()


def _raw_transaction(worker: Worker, producer: RawProducer) -> None:
    """Raises `RefusedError` if the producer has to begin again."""
    assignment, link = worker.assignment, producer.link
    position = -1
    if assignment.processes:
        asked_at = now()
        position = committed_position(link, assignment.group, TOPIC, SOURCE)
        worker.saw_position(asked_at, position)
        records, position = _some_records(link, max(position, 0), worker.should_stop)
        planned = worker.plan_processing([offset for offset, _ in records])
    else:
        planned = worker.plan_writes()
    worker.began(planned)
    try:
        for partition, values in worker.batches(planned):
            for value in values:
                worker.sending(planned, partition, value)
            base = producer.produce(TOPIC, partition, [value.encode() for value in values])
            for index, value in enumerate(values):
                worker.stored(planned.name, partition, value, base + index)
        if assignment.processes:
            worker.sending_offset(planned, position)
            producer.commit_offset(assignment.group, TOPIC, SOURCE, position)
    except RefusedError:
        worker.ending(planned, is_commit=False)
        producer.end(is_commit=False)
        worker.ended(planned, is_commit=False)
        return
    worker.ending(planned, is_commit=planned.is_commit)
    producer.end(is_commit=planned.is_commit)
    worker.ended(planned, is_commit=planned.is_commit)


def _some_records(
    link: Link, position: int, should_stop: Callable[[], bool]
) -> tuple[list[tuple[int, str]], int]:
    """A few committed records of the source, and the position behind them."""
    while True:
        records, reached = read_committed(link, TOPIC, SOURCE, position)
        if records:
            taken = records[:_PROCESSED_MAX]
            return taken, taken[-1][0] + 1
        position = reached
        if should_stop():
            raise StoppedError


# --- version 1: confluent-kafka --------------------------------------------------------------


def run_confluent(assignment: Assignment) -> None:
    worker = Worker(assignment, version=1)
    consumer = _consumer(assignment) if assignment.processes else None
    while not worker.should_stop():
        producer = Producer(
            {
                **_CONNECTION,
                "bootstrap.servers": assignment.address,
                "client.id": assignment.name,
                "transactional.id": assignment.name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "socket.timeout.ms": 5000,
                "retry.backoff.ms": 20,
                "linger.ms": 0,
            }
        )
        with contextlib.suppress(KafkaException):
            producer.init_transactions(_PATIENCE_S)
            while not worker.should_stop():
                _confluent_transaction(worker, producer, consumer)
    if consumer is not None:
        consumer.close()


def _consumer(assignment: Assignment) -> Consumer:
    return Consumer(
        {
            **_CONNECTION,
            "bootstrap.servers": assignment.address,
            "client.id": f"{assignment.name}-consumer",
            "group.id": assignment.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )


def _confluent_transaction(worker: Worker, producer: Producer, consumer: Consumer | None) -> None:
    """Raises `KafkaException` if the producer has to be made again."""
    position = -1
    if consumer is None:
        planned = worker.plan_writes()
    else:
        offsets = _polled(worker, consumer)
        if not offsets:
            return
        position = offsets[-1] + 1
        planned = worker.plan_processing(offsets)
    failures: list[Any] = []
    worker.began(planned)
    try:
        producer.begin_transaction()
        for partition, value in planned.values:
            worker.sending(planned, partition, value)
            producer.produce(
                TOPIC,
                value.encode(),
                partition=partition,
                on_delivery=_noting(worker, planned, failures),
            )
        if consumer is not None:
            worker.sending_offset(planned, position)
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, SOURCE, position)],
                consumer.consumer_group_metadata(),
                _PATIENCE_S,
            )
        left = producer.flush(_PATIENCE_S)
        if not (left or failures):
            _end(worker, producer, planned, is_commit=planned.is_commit)
            return
    except KafkaException as error:
        if not _needs_abort(error):
            raise
    _end(worker, producer, planned, is_commit=False)


def _noting(worker: Worker, planned: Planned, failures: list[Any]) -> Callable[[Any, Any], None]:
    def note(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
        else:
            value = (message.value() or b"").decode()
            worker.stored(planned.name, message.partition(), value, message.offset())

    return note


def _end(worker: Worker, producer: Producer, planned: Planned, *, is_commit: bool) -> None:
    """End the transaction. If a commit fails, nobody knows, and the transaction is aborted."""
    worker.ending(planned, is_commit=is_commit)
    while True:
        try:
            if is_commit:
                producer.commit_transaction(_PATIENCE_S)
            else:
                producer.abort_transaction(_PATIENCE_S)
        except KafkaException as error:
            found: KafkaError = error.args[0]
            if found.retriable() and not worker.should_stop():
                continue
            if is_commit and found.txn_requires_abort():
                producer.abort_transaction(_PATIENCE_S)
                return
            raise
        worker.ended(planned, is_commit=is_commit)
        return


def _needs_abort(error: KafkaException) -> bool:
    found: KafkaError = error.args[0]
    return bool(found.txn_requires_abort() or found.retriable())


def _polled(worker: Worker, consumer: Consumer) -> list[int]:
    """The offsets of a few committed records of the source, from the committed position on."""
    asked_at = now()
    [committed] = consumer.committed([TopicPartition(TOPIC, SOURCE)], _PATIENCE_S)
    if committed.error is not None:
        return []
    position = max(committed.offset, -1)
    worker.saw_position(asked_at, position)
    consumer.assign([TopicPartition(TOPIC, SOURCE, max(position, 0))])
    offsets: list[int] = []
    while not offsets and not worker.should_stop():
        for message in consumer.consume(_PROCESSED_MAX, 0.2):
            if message.error() is None:
                offsets.append(message.offset() or 0)
    return offsets


# --- version 1: aiokafka ---------------------------------------------------------------------


def run_aiokafka(assignment: Assignment) -> None:
    asyncio.run(_run_aiokafka(assignment))


async def _run_aiokafka(assignment: Assignment) -> None:
    worker = Worker(assignment, version=1)
    while not worker.should_stop():
        producer = AIOKafkaProducer(
            bootstrap_servers=assignment.address,
            client_id=assignment.name,
            transactional_id=assignment.name,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=5000,
            retry_backoff_ms=20,
        )
        # Whatever goes wrong, the producer is replaced; its successor aborts what it left.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer.start(), _PATIENCE_S)
            while not worker.should_stop():
                await asyncio.wait_for(_aiokafka_transaction(worker, producer), _PATIENCE_S)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer.stop(), 1.0)
        await asyncio.sleep(0.02)


async def _aiokafka_transaction(worker: Worker, producer: AIOKafkaProducer) -> None:
    planned = worker.plan_writes()
    worker.began(planned)
    await producer.begin_transaction()
    waiting = []
    for partition, value in planned.values:
        worker.sending(planned, partition, value)
        waiting.append(await producer.send(TOPIC, value.encode(), partition=partition))
    for (partition, value), future in zip(planned.values, waiting, strict=True):
        stored = await future
        worker.stored(planned.name, partition, value, stored.offset)
    worker.ending(planned, is_commit=planned.is_commit)
    if planned.is_commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()
    worker.ended(planned, is_commit=planned.is_commit)


# --- the reader ------------------------------------------------------------------------------


def run_reader(assignment: Assignment) -> None:
    """Reads committed records of all partitions, from the start, as they come."""
    history = HistoryWriter(assignment.history_file)
    consumer = _consumer(assignment)
    name = f"{assignment.name}.{assignment.life}"
    for partition in range(PARTITIONS):
        history.add(ReaderStarted(at=now(), reader=name, partition=partition, offset=0))
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    while not assignment.stop_file.exists():
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                history.add(
                    Read(
                        at=now(),
                        reader=name,
                        partition=message.partition() or 0,
                        offset=message.offset() or 0,
                        value=(message.value() or b"").decode(),
                    )
                )
    consumer.close()


RUN: Final[dict[str, Callable[[Assignment], None]]] = {
    "aiokafka": run_aiokafka,
    "confluent": run_confluent,
    "raw": run_raw,
    "reader": run_reader,
}


def run_worker(assignment: Assignment) -> None:
    """Until it is stopped or killed."""
    RUN[assignment.kind](assignment)
