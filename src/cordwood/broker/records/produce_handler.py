"""Produce: append what clients send, and answer when it is as durable as they asked for.

    acks = 0    never an answer; what goes wrong closes the connection
    acks = 1    when the kernel has the records
    acks = all  when the records have the topic's durability: see `Promises.is_kept`

A batch is checked and written from the buffer it was received into. Nothing here waits: a
request whose records are not durable yet is put aside, and a sync answers all it served.
"""

import logging
from collections import deque
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.broker.error_codes import error_code, error_message
from cordwood.broker.net.answer import Answer
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.produce_lanes import ProduceLanes
from cordwood.errors import CordwoodError, InvalidRecordError
from cordwood.format.batch_header import CODEC_MASK, HEADER_SIZE
from cordwood.format.compression import Codec
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import ProducedRecords, decode_produce_request
from cordwood.protocol.produce_response import ProducedPart, encode_produce_response
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)

_ACKS_ALL: Final = -1
_ACKS: Final = frozenset({0, 1, _ACKS_ALL})
_FIRST_WITH_ZSTD: Final = 7
_ATTRIBUTES_AT: Final = 22  # their lower byte, in a batch
_TIMEOUT_CHECK_S: Final = 0.25
# Kafka lets its own admin tools write to internal topics, and nobody else.
_ADMIN_CLIENT_ID: Final = "__admin_client"


class _Placed(NamedTuple):
    """Where the records of a part went: which part, and the offset behind them."""

    part: int
    end: Offset


class _Waiting:
    """A produce that is appended and waits for the disk."""

    __slots__ = ("answer", "deadline_s", "left", "parts", "places", "unkept")

    def __init__(
        self,
        answer: Answer,
        parts: list[ProducedPart],
        places: dict[PartitionLog, _Placed],
        unkept: list[PartitionLog],
    ) -> None:
        self.answer = answer
        self.parts = parts
        self.places = places
        self.unkept = unkept
        self.left = len(unkept)
        self.deadline_s = 0.0

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def promise_kept(self, log: PartitionLog) -> None:
        if self.is_over:
            return
        if log.state.failure is not None or log.is_closed:
            self._fail(log)
        self.left -= 1
        if self.left == 0:
            _respond(self.answer, self.parts)

    def _fail(self, log: PartitionLog) -> None:
        """The records of `log` were written and will never be promised."""
        code = (
            ErrorCode.kafka_storage_error if log.state.failure else ErrorCode.not_leader_or_follower
        )
        index = self.places[log].part
        part = self.parts[index]
        self.parts[index] = ProducedPart(part.topic, part.partition, code)

    def time_out(self) -> None:
        self.left = 0
        timed_out = [
            part
            if part.error_code
            else ProducedPart(part.topic, part.partition, ErrorCode.request_timed_out)
            for part in self.parts
        ]
        _respond(self.answer, timed_out)


class ProduceHandler:
    """Runs in the data loop."""

    def __init__(
        self,
        table: PartitionTable,
        watch: LogWatch,
        syncs: DiskSyncs,
        loop: EventLoop,
        lanes: ProduceLanes,
    ) -> None:
        self._table = table
        self._syncs = syncs
        self._lanes = lanes
        self._watch = watch
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()
        self._is_checking = False

    def handle(self, answer: Answer, body: memoryview) -> None:
        request = decode_produce_request(answer.header.api_version, body)
        if request.acks not in _ACKS:
            _refuse(answer, request.parts, ErrorCode.invalid_required_acks)
            return
        if request.transactional_id is not None:
            _refuse(answer, request.parts, ErrorCode.transactional_id_authorization_failed)
            return
        appended: dict[PartitionLog, _Placed] = {}
        parts = [
            self._append(answer, produced, index, appended)
            for index, produced in enumerate(request.parts)
        ]
        unkept = [log for log, placed in appended.items() if not log.promises.is_kept(placed.end)]
        for log in unkept:
            self._syncs.request(log)  # whatever the acks: it lets readers see the records
        if request.acks == 0:
            _finish_unacknowledged(answer, parts)
        elif request.acks == _ACKS_ALL and unkept:
            self._await(_Waiting(answer, parts, appended, unkept), request.timeout_ms)
        else:
            _respond(answer, parts)

    def disconnected(self, answer: Answer) -> None:
        """The records stay; there is nobody to tell."""
        for waiting in self._waiting:
            if waiting.answer is answer:
                waiting.left = 0

    def _append(
        self,
        answer: Answer,
        produced: ProducedRecords,
        index: int,
        appended: dict[PartitionLog, "_Placed"],
    ) -> ProducedPart:
        topic, partition, records = produced
        header = answer.header
        try:
            log = self._table.log(topic, partition)
            if log is None:
                return ProducedPart(topic, partition, _unknown(topic))
            if log.topic in INTERNAL_TOPICS and header.client_id != _ADMIN_CLIENT_ID:
                return ProducedPart(topic, partition, ErrorCode.invalid_topic_exception)
            if header.api_version < _FIRST_WITH_ZSTD and _is_zstd(records):
                return ProducedPart(topic, partition, ErrorCode.unsupported_compression_type)
            self._lanes.append_waiting(log)
            placed = log.batches.append_batch(records, wait=False)
        except (CordwoodError, OSError) as error:
            return _refused(topic, partition, error)
        appended[log] = _Placed(index, Offset(placed.last_offset + 1))
        return ProducedPart(
            topic,
            partition,
            0,
            placed.base_offset,
            placed.timestamp_ms if log.config.is_log_append_time else -1,
            log.archive.known_start_offset,
        )

    def _await(self, waiting: _Waiting, timeout_ms: int) -> None:
        waiting.deadline_s = self._loop.now_s() + max(timeout_ms, 0) / 1000
        self._waiting.append(waiting)
        for log in waiting.unkept:
            self._watch.await_promise(log, waiting.places[log].end, waiting)
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Now and then: requests are in the order they came, their deadlines nearly so."""
        now_s = self._loop.now_s()
        kept = deque(waiting for waiting in self._waiting if not waiting.is_over)
        for waiting in kept:
            if waiting.deadline_s <= now_s:
                waiting.time_out()
        self._waiting = deque(waiting for waiting in kept if not waiting.is_over)
        self._is_checking = bool(self._waiting)
        if self._is_checking:
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)


def _refuse(answer: Answer, parts: list[ProducedRecords], code: ErrorCode) -> None:
    _respond(answer, [ProducedPart(part.topic, part.partition, code) for part in parts])


def _finish_unacknowledged(answer: Answer, parts: list[ProducedPart]) -> None:
    failed = next((part for part in parts if part.error_code), None)
    if failed is None:
        answer.give(())
        return
    name = ErrorCode(failed.error_code).name
    answer.abandon(f"produce without acks to {failed.topic}-{failed.partition} failed: {name}")


def _is_zstd(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD


def _unknown(topic: str | UUID) -> ErrorCode:
    if isinstance(topic, str):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.unknown_topic_id


def _refused(topic: str | UUID, partition: int, error: Exception) -> ProducedPart:
    record_errors = error.record_errors if isinstance(error, InvalidRecordError) else ()
    if isinstance(error, OSError):
        logger.error("an append to %s-%d failed: %s", topic, partition, error)
    return ProducedPart(
        topic,
        partition,
        error_code(error),
        record_errors=record_errors,
        error_message=error_message(error),
    )


def _respond(answer: Answer, parts: list[ProducedPart]) -> None:
    header = answer.header
    answer.give([encode_produce_response(header.api_version, header.correlation_id, parts)])
