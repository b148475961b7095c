"""A topic of the cluster that audit lines are appended to.

Lines are records with the principal as key, which decides on the partition, as with every producer.
They go to the leaders of the partitions, over the connections that brokers have among each other,
and count when all in-sync replicas have them. A leader of ours takes them from brokers alone.

A line may be there twice: if a leader is lost before it answers, the next one gets it again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.outbound.outbound_call import OutboundCall, OutboundResult
from cordwood.broker.security.audit_topic import audit_key
from cordwood.clock import Clock
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.errors import CordwoodError, FormatError, StorageError
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.log.topics.topic import partition_for
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.record_messages import (
    PRODUCE_VERSION_MAX,
    SentRecords,
    decode_produce_response,
    encode_produce_request,
)

_ALL: Final = -1
_VERSION_MIN: Final = 3
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.1
_BATCH_BYTES_MAX: Final = 512 * 1024


class LeaderPeers(Protocol):
    """Connections to the brokers. Belongs to the loop."""

    def send(self, node_id: int, call: OutboundCall) -> None: ...

    def close(self) -> None: ...


class ClusterWays(NamedTuple):
    """How the leaders of a cluster are reached. `order` has topics created, soon."""

    loop: Scheduler
    peers: LeaderPeers
    image: Callable[[], MetadataImage]
    order: Callable[[Sequence[str]], None]


class ClusterAuditTopic:
    """An `AuditTarget`. Belongs to the thread of the audit log; `serve` is called once before."""

    def __init__(self, name: str, clock: Clock, *, patience_s: float = _PATIENCE_S) -> None:
        self._name = name
        self._clock = clock
        self._patience_s = patience_s
        self._ways: ClusterWays | None = None

    def serve(self, ways: ClusterWays) -> None:
        self._ways = ways

    def close(self) -> None:
        if self._ways is not None:
            self._ways.loop.call_soon(self._ways.peers.close)

    def write(self, lines: Sequence[str]) -> None:
        """Append the lines. Raises `StorageError` if some are not there after a while."""
        ways = self._ways
        if ways is None:
            raise StorageError(f"the cluster with topic {self._name} was not joined")
        deadline_s = time.monotonic() + self._patience_s
        reason = "it has no leader"
        left = self._batches(lines, self._await_topic(ways, deadline_s))
        while True:
            left, refused = self._send(ways, left, deadline_s)
            if not left:
                return
            reason = refused or reason
            if time.monotonic() >= deadline_s:
                raise StorageError(f"{self._name} did not take the lines: {reason}")
            time.sleep(_PAUSE_S)

    def _await_topic(self, ways: ClusterWays, deadline_s: float) -> TopicImage:
        topic = ways.image().topic(self._name)
        if topic is None:
            ways.order([self._name])
        while topic is None:
            if time.monotonic() >= deadline_s:
                raise StorageError(f"topic {self._name} was not created yet")
            time.sleep(_PAUSE_S)
            topic = ways.image().topic(self._name)
        return topic

    def _batches(self, lines: Sequence[str], topic: TopicImage) -> list[SentRecords]:
        """In the order of their lines, for each partition."""
        by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        for line in lines:
            key = audit_key(line)
            number = partition_for(key, len(topic.partitions))
            by_partition.setdefault(number, []).append((key, line.encode()))
        style = BatchStyle(bytes_max=_BATCH_BYTES_MAX)
        now_ms = self._clock.now_ms()
        return [
            SentRecords(self._name, number, bytes(batch.data))
            for number, records in by_partition.items()
            for batch in build_batches(records, now_ms, style)
        ]

    def _send(
        self, ways: ClusterWays, batches: list[SentRecords], deadline_s: float
    ) -> tuple[list[SentRecords], str | None]:
        """Send the first batch of each partition to its leader; what is left, and why."""
        topic = ways.image().topic(self._name)
        if topic is None:
            return batches, "it was deleted"
        first: dict[int, SentRecords] = {}
        for batch in batches:
            first.setdefault(batch.partition, batch)
        by_leader: dict[int, list[SentRecords]] = {}
        for number, batch in first.items():
            partition = topic.partitions.get(number)
            if partition is not None and partition.has_leader:
                by_leader.setdefault(partition.leader, []).append(batch)
        done: set[int] = set()
        refused: str | None = None
        for answer in _asked(ways, by_leader, deadline_s):
            if isinstance(answer, str):
                refused = answer
            else:
                done |= answer
        taken = {id(first[number]) for number in done}
        return [batch for batch in batches if id(batch) not in taken], refused


def _asked(
    ways: ClusterWays, by_leader: Mapping[int, list[SentRecords]], deadline_s: float
) -> list[set[int] | str]:
    """The partitions that took their batch, for each leader, or why one did not."""
    answers: list[set[int] | str] = []
    arrived = threading.Condition()

    def answered(result: OutboundResult) -> None:
        with arrived:
            answers.extend(_read(result))
            answers_left.pop()
            arrived.notify_all()

    answers_left = list(by_leader)
    for leader, batches in by_leader.items():
        call = OutboundCall(
            api=ApiKey.PRODUCE,
            version_min=_VERSION_MIN,
            version_max=PRODUCE_VERSION_MAX,
            encode=partial(_request, batches),
            when_done=answered,
            timeout_s=max(deadline_s - time.monotonic(), _PAUSE_S),
        )
        ways.loop.call_soon(partial(ways.peers.send, leader, call))
    with arrived:
        arrived.wait_for(lambda: not answers_left, max(deadline_s - time.monotonic(), _PAUSE_S))
        return list(answers)


def _request(batches: list[SentRecords], version: int) -> bytes:
    return encode_produce_request(version, batches, acks=_ALL, timeout_ms=int(_PATIENCE_S * 1000))


def _read(result: OutboundResult) -> list[set[int] | str]:
    if isinstance(result, CordwoodError):
        return [str(result)]
    try:
        parts = decode_produce_response(*result)
    except FormatError as error:
        return [f"its answer cannot be read: {error}"]
    found: list[set[int] | str] = [{part.partition for part in parts if not part.error_code}]
    found += [ErrorCode(part.error_code).name for part in parts if part.error_code]
    return found
