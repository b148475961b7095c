"""The short way of a produce: small requests are appended together, one write and one sync for all.

A lane collects the batches for one log. A batch was checked where it was received, in two compiled
passes, and is copied behind the other batches of the lane. When every ready socket has had its
turn, the group is appended. If the log is being synced and the whole group needs the next sync,
the group goes on growing until this sync ends. With fifty producers waiting for the disk, that is
one write and one sync for dozens of records.

A large batch is not copied: it is appended by itself, from where it was received.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.broker.error_codes import RefusedError, error_code, error_message
from cordwood.broker.net.answer import Answer, Connection
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.records.cluster_partitions import AppendedEnd, append_refusal
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.broker.records.produce_answers import encode_refusable
from cordwood.broker.security import access_table as needs
from cordwood.clock import Clock
from cordwood.errors import InvalidRecordError, StorageError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import FIRST_WITH_TOPIC_ID
from cordwood.protocol.produce_response import (
    ProducedPart,
    SoleResponse,
    with_throttle_time,
)
from cordwood.protocol.request_header import RequestHeader
from cordwood.protocol.sole_produce import find_sole_produce
from cordwood.quantities import Offset, TimestampMs

if TYPE_CHECKING:  # a broker that is alone does not load it
    from cordwood.cluster.replication.partition_replica import PartitionReplica

logger = logging.getLogger(__name__)

_PRODUCE: Final = int(ApiKey.PRODUCE)
_WRITE, _TOPIC = needs.PRODUCE_TOPIC.operation, needs.PRODUCE_TOPIC.resource
_ACKS_ALL: Final = -1
_GROUP_BYTES_MAX: Final = 1024 * 1024  # larger groups gain nothing and wait longer
_LARGE_BATCH: Final = 96 * 1024  # from here on a copy costs more than a write of its own
_LANES_MAX: Final = 4096  # topics that are remembered; beyond that all idle ones are forgotten


class _Lane:
    """The batches that wait to be appended to one log, and the requests they came with."""

    __slots__ = (
        "gate",
        "group",
        "is_alone",
        "is_patient",
        "is_scheduled",
        "log",
        "replica",
        "requests",
        "responses",
        "table",
        "timeout_ms",
        "topic_id",
    )

    def __init__(self, log: PartitionLog, topic_id: UUID, table: PartitionTable) -> None:
        self.log = log
        self.topic_id = topic_id
        self.table = table
        self.replica = table.replica_of(log)  # None: nobody decides who leads
        self.is_alone = self.replica is None or (
            table.cluster is not None and table.cluster.is_alone
        )
        self.gate = BatchGate(log.config)
        self.responses: dict[int, SoleResponse] = {}
        self.is_scheduled = False
        self.clear()

    def clear(self) -> None:
        self.group = BatchGroup()
        self.requests: list[tuple[Answer, int]] = []  # each with its acks
        self.timeout_ms = 0
        self.is_patient = True  # no request is to be answered before a sync

    def accept(self, produced: Sequence[tuple[Answer, Offset]]) -> None:
        """Answer requests with the base offsets of their batches.

        Consecutive answers to one connection leave in one `send`, because each may have to wake
        the client.
        """
        log_start = self.log.archive.known_start_offset
        responses = self.responses
        connection = produced[0][0].connection
        for answer, base_offset in produced:
            if answer.connection is not connection:
                connection.send_ready()
                connection = answer.connection
            header = answer.header
            response = responses.get(header.api_version) or self._response_of(header.api_version)
            frame = response.encode(header.correlation_id, base_offset, log_start)
            if connection.muted_until_s:
                frame = with_throttle_time(header.api_version, frame, connection.throttle_ms)
            answer.pieces = (frame,)
            answer.is_ready = True
        connection.send_ready()

    def refuse(self, answer: Answer, code: ErrorCode, error: Exception | None = None) -> None:
        header = answer.header
        part = ProducedPart(
            self._topic_of(header.api_version),
            self.log.partition,
            code,
            record_errors=error.record_errors if isinstance(error, InvalidRecordError) else (),
            error_message=None if error is None else error_message(error),
        )
        connection = answer.connection
        answer.give(
            [
                encode_refusable(
                    self.table,
                    header,
                    [part],
                    connection.session.listener,
                    throttle_ms=connection.throttle_ms if connection.muted_until_s else 0,
                )
            ]
        )

    def _response_of(self, version: int) -> SoleResponse:
        response = SoleResponse(version, self._topic_of(version), self.log.partition)
        self.responses[version] = response
        return response

    def _topic_of(self, version: int) -> str | UUID:
        """What the topic is called in a response of that version."""
        return self.topic_id if version >= FIRST_WITH_TOPIC_ID else self.log.topic


class _GroupReply:
    """The answers to requests of one lane that wait for the same sync."""

    __slots__ = ("_code", "_lane", "_produced")

    def __init__(self, lane: _Lane, produced: list[tuple[Answer, Offset]]) -> None:
        self._lane = lane
        self._produced = produced
        self._code = ErrorCode.none

    def refuse(self, code: ErrorCode, log: PartitionLog | None = None) -> None:
        self._code = code

    def send(self) -> None:
        if self._code is ErrorCode.none:
            self._lane.accept(self._produced)
            return
        for answer, _ in self._produced:
            self._lane.refuse(answer, self._code)


class ProduceLanes:
    """All lanes. Runs in the data loop."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        watch: LogWatch,
        syncs: DiskSyncs,
        pending: PendingProduces,
        loop: EventLoop,
        clock: Clock,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._closed_topics = closed_topics
        self._table = table
        self._watch = watch
        self._syncs = syncs
        self._pending = pending
        self._loop = loop
        self._clock = clock
        # By name and by id, as requests have them; a log has the same lane in both.
        self._lanes: dict[tuple[bytes, int], _Lane] = {}
        self._lanes_by_id: dict[tuple[bytes, int], _Lane] = {}
        self._by_log: dict[PartitionLog, _Lane] = {}
        self._clock_turn = -1  # the turn of the loop in which `_now_ms` was read
        self._now_ms = TimestampMs(0)

    def take(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        """Whether the produce in ``data[begin:end]`` was taken, and will be answered.

        If not, nothing was done: it is for several partitions, or unusual, or wrong.
        """
        sole = find_sole_produce(data, begin, end)
        if sole is None:
            return False
        version, correlation_id, acks, timeout_ms, name_at, name_end, partition, at, stop = sole
        lane = self._lane(
            bytes(data[name_at:name_end]), partition, is_id=version >= FIRST_WITH_TOPIC_ID
        )
        if lane is None or not _ACKS_ALL <= acks <= 1:
            return False
        if lane.replica is not None and append_refusal(lane.replica, acks) is not None:
            return False  # the long way refuses it
        access = connection.session.access
        if not (access.is_unlimited or access.allows(_WRITE, _TOPIC, lane.log.topic)):
            return False  # the long way refuses it
        records = data[at:stop]
        if lane.gate.config is not lane.log.config:
            lane.gate = BatchGate(lane.log.config)
        turns = self._loop.turns
        if turns != self._clock_turn:
            self._clock_turn, self._now_ms = turns, self._clock.now_ms()
        survey = lane.gate.survey(records, self._now_ms)
        if survey is None:
            return False
        is_large = len(records) >= _LARGE_BATCH
        group = lane.group
        if lane.requests and (
            is_large
            or not group.has_room_for(survey)
            or len(group.data) + len(records) > _GROUP_BYTES_MAX
        ):
            self._append(lane)
            group = lane.group
        if is_large:
            lane.group = BatchGroup.alone(records, survey)
        else:
            group.add(records, survey)
        answer = Answer(connection, RequestHeader(_PRODUCE, version, correlation_id, None))
        lane.requests.append((answer, acks))
        if acks != _ACKS_ALL:
            lane.is_patient = False
        if timeout_ms > lane.timeout_ms:  # noqa: PLR1730 (max() would be a call)
            lane.timeout_ms = timeout_ms
        if is_large:
            self._append(lane)  # now: the buffer it lies in is used for the next receive
        elif not lane.is_scheduled:
            lane.is_scheduled = True
            self._loop.call_soon(lambda: self._append_in_turn(lane))
        return True

    def append_waiting(self, log: PartitionLog) -> None:
        """Append the group of `log`, so that a batch on the long way comes after it."""
        lane = self._by_log.get(log)
        if lane is not None and lane.requests:
            self._append(lane)

    def _lane(self, name: bytes, partition: int, *, is_id: bool) -> _Lane | None:
        """The lane of an open log; None if the long way has to find out what is wrong."""
        lanes = self._lanes_by_id if is_id else self._lanes
        key = (name, partition)
        lane = lanes.get(key)
        if lane is not None:
            if not lane.log.is_closed:
                return lane
            self._forget(lane)
        try:
            wanted = UUID(bytes=name) if is_id else str(name, "utf-8")
            topic = self._table.topic(wanted)
            log = self._table.log(wanted, partition)
        except (StorageError, UnicodeDecodeError):
            return None
        if topic is None or log is None or log.is_closed or log.topic in INTERNAL_TOPICS:
            return None
        if log.topic in self._closed_topics:
            return None
        if self._table.cluster is not None and self._table.replica_of(log) is None:
            return None
        if len(self._by_log) >= _LANES_MAX:
            self._forget_idle()
        lane = self._by_log.get(log)
        if lane is None:
            lane = found = self._by_log[log] = _Lane(log, topic.topic_id, self._table)
            self._watch.await_close(log, lambda: self._forget(found))
        lanes[key] = lane
        return lane

    def _forget(self, lane: _Lane) -> None:
        """The log of the lane is closed. A topic of the same name has other lanes."""
        log = lane.log
        self._by_log.pop(log, None)
        for lanes, name in (
            (self._lanes, log.topic.encode()),
            (self._lanes_by_id, lane.topic_id.bytes),
        ):
            if lanes.get((name, log.partition)) is lane:
                del lanes[name, log.partition]

    def _forget_idle(self) -> None:
        self._by_log = {log: lane for log, lane in self._by_log.items() if lane.requests}
        self._lanes.clear()
        self._lanes_by_id.clear()

    def _append_in_turn(self, lane: _Lane) -> None:
        lane.is_scheduled = False
        if not lane.requests:
            return
        log = lane.log
        if (
            lane.is_patient
            and self._syncs.is_under_way(log)
            and log.state.failure is None
            and not log.is_closed
        ):
            # The whole group needs the next sync, which begins when this one ends.
            self._watch.await_sync(log, lambda: self._append_in_turn(lane))
            return
        self._append(lane)

    def _append(self, lane: _Lane) -> None:
        log, requests = lane.log, lane.requests
        timeout_ms, is_patient = lane.timeout_ms, lane.is_patient
        results: Sequence[Offset | Exception]
        try:
            results = (
                log.batches.append_group(lane.group)
                if lane.replica is None
                else self._append_led(lane, lane.replica)
            )
        except Exception as error:  # a bug of ours: every client gets an answer all the same
            logger.exception("%s: an append failed", log.name)
            results = [error] * len(requests)
        lane.clear()
        end = log.end_offset  # behind all of them; batches that were stored before lie below
        is_promised = log.promises.is_kept(end)
        if not is_promised:
            self._syncs.request(log)  # with any acks: readers see the records after it
            if not is_patient and lane.is_alone:
                log.promises.acknowledge_early(end)
        led_in = None
        if not lane.is_alone:
            led_in, is_promised = self._table.led_in(log), False
        accepted: list[tuple[Answer, Offset]] = []
        waiting: list[tuple[Answer, Offset]] = []
        for (answer, acks), result in zip(requests, results, strict=True):
            if isinstance(result, Exception):
                code = error_code(result)
                if acks == 0:
                    answer.abandon(f"produce without acks to {log.name} failed: {code.name}")
                else:
                    lane.refuse(answer, code, result)
            elif acks == 0:
                answer.give_here(())
            elif acks == 1 or is_promised:
                accepted.append((answer, result))
            else:
                waiting.append((answer, result))
        if accepted:
            lane.accept(accepted)
        if waiting:
            ends = (AppendedEnd(log, end, led_in),)
            self._pending.add(_GroupReply(lane, waiting), ends, timeout_ms)

    def _append_led(self, lane: _Lane, replica: "PartitionReplica") -> Sequence[Offset | Exception]:
        """Append as the leader of the partition: its role may have changed since requests came.

        With too few replicas in sync, all are refused if one has acks=all: the order stays.
        """
        acks = min(acks for _, acks in lane.requests)
        code = append_refusal(replica, acks)
        if code is not None:
            return [RefusedError(code, "this replica cannot append now")] * len(lane.requests)
        return lane.log.batches.append_group(lane.group, led_in=self._table.led_in(lane.log))
