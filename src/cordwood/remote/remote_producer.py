"""Appends records to a topic of a broker, with batches for many partitions at a time.

All replicas acknowledge them, so they have the durability that the topic promises. The key of a
record decides on its partition, as with every Kafka client. Records without a key go to one
partition per call, in turn.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cordwood.clock import Clock
from cordwood.errors import CordwoodError, RecordTooLargeError
from cordwood.format import record_encoding
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_response import ProducedPart
from cordwood.protocol.record_messages import (
    PRODUCE_VERSION_MAX,
    SentRecords,
    decode_produce_response,
    encode_produce_request,
)
from cordwood.quantities import MIB
from cordwood.remote.refusals import refusal
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_topics import RemoteTopics

_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_REQUEST_BYTES: Final = 8 * MIB  # brokers accept 100 MiB by default
_UNLISTED_BYTES_MAX: Final = 1_048_588  # Kafka's max.message.bytes


SentRecord = Record | tuple[bytes | None, bytes | None]  # a pair is key and value


class ProducedRange(NamedTuple):
    """Consecutive offsets [first_offset, next_offset) of records of one call."""

    partition: int
    first_offset: int
    next_offset: int


class _Batch(NamedTuple):
    partition: int
    data: bytes
    record_count: int


class RemoteProducer:
    """Appends to one topic. For one thread."""

    def __init__(self, cluster: RemoteCluster, topic: str, clock: Clock) -> None:
        self.topic = topic
        self._cluster = cluster
        self._clock = clock
        self._turn = itertools.count()
        self._style = _style(cluster, topic)

    @property
    def partition_count(self) -> int:
        return len(self._cluster.topic(self.topic).leaders)

    def append_many(
        self, records: Sequence[SentRecord], *, partition: int | None = None
    ) -> list[ProducedRange]:
        """Append `Record`s or (key, value) pairs; returns when all are acknowledged.

        Records of one partition keep their order. After an error a part of the records may be
        appended: those of other partitions, and batches before the one that was refused.
        """
        items = list(records)
        if not items:
            return []
        ranges: list[ProducedRange] = []
        for request in _requests(self._batches(items, partition)):
            ranges += self._deliver(request)
        return _joined(ranges)

    def _deliver(self, batches: list[_Batch]) -> list[ProducedRange]:
        """Send batches until all are acknowledged, and retry those that were refused for now."""
        ranges: list[ProducedRange] = []
        left = batches

        def attempt() -> None:
            nonlocal left
            left, refused = self._send(left, ranges)
            if refused is not None:
                raise refused

        self._cluster.retried(attempt)
        return ranges

    def _batches(self, items: list[SentRecord], partition: int | None) -> Iterator[_Batch]:
        count = self.partition_count
        if partition is not None:
            self._cluster.topic(self.topic).check_partition(partition)
            parts = {partition: items}
        elif count == 1:
            parts = {0: items}
        else:
            keyless = next(self._turn) % count
            lists, _ = record_encoding.split_by_key(items, Record, count, keyless)
            parts = {number: part for number, part in enumerate(lists) if part}
        now_ms = self._clock.now_ms()
        for number, part in parts.items():
            for batch in build_batches(part, now_ms, self._style):
                yield _Batch(number, bytes(batch.data), batch.record_count)

    def _send(
        self, batches: list[_Batch], ranges: list[ProducedRange]
    ) -> tuple[list[_Batch], CordwoodError | None]:
        """One request to each leader, with at most one batch for each partition.

        Acknowledged batches are added to `ranges`; refused ones are returned, with a reason.
        """
        by_partition = {batch.partition: batch for batch in batches}
        assert len(by_partition) == len(batches), "a partition takes one batch of a request"
        refused: list[_Batch] = []
        reason: CordwoodError | None = None
        for connection, numbers in self._cluster.by_leader(self.topic, by_partition):
            version = connection.version_of(ApiKey.PRODUCE, at_most=PRODUCE_VERSION_MAX)
            parts = [SentRecords(self.topic, n, by_partition[n].data) for n in numbers]
            request = encode_produce_request(version, parts, acks=_ALL, timeout_ms=_TIMEOUT_MS)
            body = connection.exchange(ApiKey.PRODUCE, version, request)
            for part in decode_produce_response(version, body):
                batch = by_partition[part.partition]
                if part.error_code:
                    refused.append(batch)
                    reason = reason or self._refusal(part, batch)
                    continue
                end = part.base_offset + batch.record_count
                ranges.append(ProducedRange(part.partition, part.base_offset, end))
        return refused, reason

    def _refusal(self, part: ProducedPart, batch: _Batch) -> CordwoodError:
        if part.error_code == ErrorCode.message_too_large:
            return RecordTooLargeError(size=len(batch.data), limit=self._style.bytes_max)
        message = part.error_message or ""
        if part.record_errors:
            index, problem = part.record_errors[0]
            message = f"{message or 'invalid record'}: record {index} of a batch: {problem}"
        what = f"append to {self.topic}-{part.partition}"
        return refusal(part.error_code, what, message=message, topic=self.topic)


def _requests(batches: Iterator[_Batch]) -> Iterator[list[_Batch]]:
    """The batches in order, as requests of bounded size with one batch for each partition."""
    request: dict[int, _Batch] = {}
    size = 0
    for batch in batches:
        if batch.partition in request or size + len(batch.data) > _REQUEST_BYTES:
            if request:
                yield list(request.values())
            request, size = {}, 0
        request[batch.partition] = batch
        size += len(batch.data)
    if request:
        yield list(request.values())


def _joined(ranges: list[ProducedRange]) -> list[ProducedRange]:
    """Adjacent ranges become one. Other producers may have appended in between."""
    joined: dict[int, list[ProducedRange]] = {}
    for part in ranges:
        known = joined.setdefault(part.partition, [])
        if known and known[-1].next_offset == part.first_offset:
            known[-1] = known[-1]._replace(next_offset=part.next_offset)
        else:
            known.append(part)
    return [part for number in sorted(joined) for part in joined[number]]


def _style(cluster: RemoteCluster, topic: str) -> BatchStyle:
    """The batch style of the topic, so that the broker need not change batches.

    A user who may write need not be allowed to see the configuration: then it is the usual one.
    """
    cluster.topic(topic)
    config = RemoteTopics(cluster).configs([topic], hides_forbidden=True)[topic]
    size = config.get("max.message.bytes")
    codec = config.get("compression.type")
    name = "" if codec is None else codec.value
    is_codec = name in {"gzip", "snappy", "lz4", "zstd"}
    return BatchStyle(
        bytes_max=_UNLISTED_BYTES_MAX if size is None else int(size.value),
        codec=Codec.named(name) if is_codec else Codec.NONE,
    )
