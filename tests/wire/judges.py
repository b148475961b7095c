"""The clients that judge the broker, behind one face: what each of them can do, all must do alike.

A judge produces records and says where they went, and consumes from a place until it has as many
as it wants. What only one client can do is tested with that client directly.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import MessageSizeTooLargeError as AioTooLargeError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.codec import has_snappy
from kafka.errors import MessageSizeTooLargeError as PythonTooLargeError

TIMEOUT_S = 60.0
LARGE_BYTES = 32 * 1024 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]
T = TypeVar("T")


class TooLargeError(Exception):
    """The broker refused a record for its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to produce. Without a partition, the first one."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A record that was consumed."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    is_log_append_time: bool = False


class Judge(Protocol):
    """A client library."""

    @property
    def name(self) -> str: ...

    @property
    def codecs(self) -> tuple[str, ...]:
        """Those it can be used with here."""
        ...

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        is_idempotent: bool = False,
    ) -> list[int]:
        """Offsets of the records, in their order; -1 without acks. Raises `TooLargeError`."""
        ...

    def consume(
        self, address: str, topic: str, count: int, *, start: int | str = "beginning"
    ) -> list[Got]:
        """`count` records of partition 0 from `start`: an offset, or "beginning"."""
        ...


class ConfluentKafka:
    """librdkafka."""

    name = "confluent-kafka"
    codecs = CODECS

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        is_idempotent: bool = False,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "message.max.bytes": LARGE_BYTES,
                "linger.ms": 5,
            }
        )
        reports: list[tuple[int, KafkaError | None, int | None]] = []
        for number, record in enumerate(records):

            def report(error: KafkaError | None, message: Message, number: int = number) -> None:
                reports.append((number, error, message.offset()))

            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                on_delivery=report,
                timestamp=record.timestamp_ms or 0,  # 0: now
            )
        assert producer.flush(TIMEOUT_S) == 0
        for _, error, _ in reports:
            if error is not None:
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise TooLargeError(error.str())
                raise KafkaException(error)
        offsets = {number: offset for number, _, offset in reports}
        return [max(offsets[number] or 0, -1) for number in range(len(records))]

    def consume(
        self, address: str, topic: str, count: int, *, start: int | str = "beginning"
    ) -> list[Got]:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.message.max.bytes": LARGE_BYTES,
                "fetch.max.bytes": 2 * LARGE_BYTES,
                "receive.message.max.bytes": 3 * LARGE_BYTES,
            }
        )
        offset = confluent_kafka.OFFSET_BEGINNING if start == "beginning" else int(start)
        try:
            consumer.assign([TopicPartition(topic, 0, offset)])
            messages = consumer.consume(count, timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return [_from_confluent(message) for message in messages]


def _from_confluent(message: Message) -> Got:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    kind, timestamp_ms = message.timestamp()
    offset = message.offset()
    assert offset is not None
    return Got(
        offset=offset,
        value=message.value(),
        key=message.key(),
        headers=_headers(message.headers()),
        timestamp_ms=timestamp_ms,
        is_log_append_time=kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME,
    )


def _headers(headers: Any) -> Headers:
    return tuple((str(name), value) for name, value in headers or ())


class KafkaPython:
    """Pure Python, with Kafka's newest schemas."""

    name = "kafka-python"
    # For snappy it wants a library that is not among the ones we build with.
    codecs = tuple(codec for codec in CODECS if codec != "snappy" or has_snappy())

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        is_idempotent: bool = False,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=address,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            max_request_size=LARGE_BYTES,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(timeout=TIMEOUT_S).offset for future in futures]
        except PythonTooLargeError as error:
            raise TooLargeError(str(error)) from error
        finally:
            producer.close(timeout=TIMEOUT_S)

    def consume(
        self, address: str, topic: str, count: int, *, start: int | str = "beginning"
    ) -> list[Got]:
        consumer = KafkaConsumer(
            bootstrap_servers=address,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            consumer_timeout_ms=TIMEOUT_S * 1000,
            max_partition_fetch_bytes=LARGE_BYTES,
        )
        partition = PythonPartition(topic, 0)
        try:
            consumer.assign([partition])
            if start == "beginning":
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, int(start))
            got: list[Got] = []
            while len(got) < count:
                got.append(_from_python(next(consumer)))
            return got
        finally:
            consumer.close()


def _from_python(record: Any) -> Got:
    return Got(
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        is_log_append_time=record.timestamp_type == 1,
    )


class AioKafka:
    """asyncio, with the oldest versions that are still in use."""

    name = "aiokafka"
    codecs = CODECS

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        acks: str = "all",
        codec: str = "none",
        is_idempotent: bool = False,
    ) -> list[int]:
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=address,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=is_idempotent,
                max_request_size=LARGE_BYTES,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=[(name, value) for name, value in record.headers],
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                placed = [await future for future in futures]
            except AioTooLargeError as error:
                raise TooLargeError(str(error)) from error
            finally:
                await producer.stop()
            return [
                -1 if place is None or place.offset is None else place.offset for place in placed
            ]

        return run_async(run)

    def consume(
        self, address: str, topic: str, count: int, *, start: int | str = "beginning"
    ) -> list[Got]:
        async def run() -> list[Got]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=address,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=LARGE_BYTES,
            )
            partition = AioPartition(topic, 0)
            consumer.assign([partition])
            await consumer.start()
            try:
                if start == "beginning":
                    await consumer.seek_to_beginning(partition)
                else:
                    consumer.seek(partition, int(start))
                return [_from_python(await consumer.getone()) for _ in range(count)]
            finally:
                await consumer.stop()

        return run_async(run)


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work(), 2 * TIMEOUT_S)

    return asyncio.run(limited())


class Kcat:
    """librdkafka on the command line, as people try a broker out. It shows text, not records."""

    name = "kcat"

    def __init__(self, command: str) -> None:
        self._command = command

    @classmethod
    def find(cls) -> "Kcat | None":
        command = shutil.which("kcat") or shutil.which("kafkacat")
        return None if command is None else cls(command)

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            [self._command, *arguments],
            input=given,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


_JUDGES: tuple[Judge, ...] = (ConfluentKafka(), KafkaPython(), AioKafka())
JUDGES: Mapping[str, Judge] = {judge.name: judge for judge in _JUDGES}
