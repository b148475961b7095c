"""Small produce requests, taken together: one write and one sync for all that came in a turn.

A request for one partition that is as most are is looked over where it was received, in two
compiled passes, and its batch copied behind the others of its log. When every socket had its
turn, each log's group is appended at once, unless the log is being synced and all of the group
needs the next sync: then it goes on growing until that begins. With fifty producers waiting for
the disk, that is one write and one sync for dozens of records. A large batch is not copied: it is
appended by itself, from where it was received. Everything else takes the long way, through
`handlers.produce`, which makes a log's group go first: order is kept.
"""

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Final
from uuid import UUID

from cordwood.broker.error_codes import error_code, error_message
from cordwood.broker.net.answer import Answer
from cordwood.broker.net.client_connection import ClientConnection
from cordwood.broker.net.dispatch import RequestObserver
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.clock import Clock
from cordwood.errors import InvalidRecordError, StorageError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import FIRST_WITH_TOPIC_ID
from cordwood.protocol.produce_response import ProducedPart, SoleResponse, encode_produce_response
from cordwood.protocol.request_header import RequestHeader
from cordwood.protocol.sole_produce import find_sole_produce
from cordwood.quantities import Offset, TimestampMs

logger = logging.getLogger(__name__)

_PRODUCE: Final = 0
_ACKS_ALL: Final = -1
_GROUP_BYTES_MAX: Final = 1024 * 1024  # larger groups gain nothing and wait longer
_LARGE_BATCH: Final = 96 * 1024  # from here on a copy costs more than a write of its own
_LANES_MAX: Final = 4096  # names that are remembered; then all are forgotten
_TIMEOUT_CHECK_S: Final = 0.25


class _Lane:
    """What waits to be appended to one log."""

    __slots__ = (
        "gate",
        "group",
        "is_patient",
        "is_scheduled",
        "log",
        "requests",
        "responses",
        "timeout_ms",
        "topic_id",
    )

    def __init__(self, log: PartitionLog, topic_id: UUID) -> None:
        self.log = log
        self.topic_id = topic_id
        self.gate = BatchGate(log.config)
        self.responses: dict[int, SoleResponse] = {}
        self.is_scheduled = False
        self.clear()

    def clear(self) -> None:
        self.group = BatchGroup()
        self.requests: list[tuple[Answer, int]] = []  # who is to be answered, and the acks
        self.timeout_ms = 0
        self.is_patient = True  # nobody is to be answered before a sync

    def response_of(self, version: int) -> SoleResponse:
        response = self.responses.get(version)
        if response is None:
            response = SoleResponse(version, self.topic_of(version), self.log.partition)
            self.responses[version] = response
        return response

    def topic_of(self, version: int) -> str | UUID:
        """What the topic is called in a response of that version."""
        return self.topic_id if version >= FIRST_WITH_TOPIC_ID else self.log.topic


class _SharedSync:
    """Requests whose records are written and wait for one sync."""

    __slots__ = ("deadline_s", "is_over", "lane", "metrics", "waiting")

    def __init__(
        self,
        lane: _Lane,
        waiting: list[tuple[Answer, Offset]],
        deadline_s: float,
        metrics: RequestObserver,
    ) -> None:
        self.metrics = metrics
        self.lane = lane
        self.waiting = waiting
        self.deadline_s = deadline_s
        self.is_over = False

    def promise_kept(self, log: PartitionLog) -> None:
        if self.is_over:
            return
        if log.state.failure is not None:
            self.refuse(ErrorCode.kafka_storage_error)
        elif log.is_closed:
            self.refuse(ErrorCode.not_leader_or_follower)
        else:
            self.is_over = True
            _accept_all(self.lane, self.waiting, self.metrics)

    def refuse(self, code: ErrorCode) -> None:
        self.is_over = True
        for answer, _ in self.waiting:
            _refuse(self.lane, answer, code)


class ProduceLanes:
    """Runs in the data loop."""

    def __init__(
        self,
        table: PartitionTable,
        watch: LogWatch,
        syncs: DiskSyncs,
        loop: EventLoop,
        clock: Clock,
        metrics: RequestObserver,
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._watch = watch
        self._syncs = syncs
        self._loop = loop
        self._clock = clock
        # By name and by id, as requests have them; the lane of a log is the same in both.
        self._lanes: dict[tuple[bytes, int], _Lane] = {}
        self._lanes_by_id: dict[tuple[bytes, int], _Lane] = {}
        self._by_log: dict[PartitionLog, _Lane] = {}
        self._waiting: list[_SharedSync] = []
        self._is_checking = False
        self._looked_at_clock_in = -1  # the turn of the loop in which it was
        self._now_ms = TimestampMs(0)
        syncs.when_finished(self.append_waiting)

    def take(self, connection: ClientConnection, data: memoryview, start: int, end: int) -> bool:
        """Whether the frame ``data[start:end]`` was taken and will be answered."""
        sole = find_sole_produce(data, start, end)
        if sole is None:
            return False
        version, correlation_id, acks, timeout_ms, name_at, name_end, partition, at, stop = sole
        lane = self._lane(
            bytes(data[name_at:name_end]), partition, is_id=version >= FIRST_WITH_TOPIC_ID
        )
        if lane is None or not _ACKS_ALL <= acks <= 1:
            return False
        records = data[at:stop]
        if lane.gate.config is not lane.log.config:
            lane.gate = BatchGate(lane.log.config)
        turns = self._loop.turns
        if turns != self._looked_at_clock_in:
            self._looked_at_clock_in, self._now_ms = turns, self._clock.now_ms()
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
        header = RequestHeader(_PRODUCE, version, correlation_id, None)
        answer = Answer(connection, header, 0, allows_next=True)
        connection.expect(answer)
        lane.requests.append((answer, acks))
        if acks != _ACKS_ALL:
            lane.is_patient = False
        if timeout_ms > lane.timeout_ms:  # noqa: PLR1730 (max() would be a call)
            lane.timeout_ms = timeout_ms
        if is_large:
            self._append(lane)  # at once: what comes next is received where it lies
        elif not lane.is_scheduled:
            lane.is_scheduled = True
            self._loop.call_soon(lambda: self._append_in_turn(lane))
        return True

    def append_waiting(self, log: PartitionLog) -> None:
        """What came for `log` before goes in before what comes now."""
        lane = self._by_log.get(log)
        if lane is not None and lane.requests:
            self._append(lane)

    def _lane(self, name: bytes, partition: int, *, is_id: bool) -> _Lane | None:
        """The lane of a log that is open; None where the long way has something to say."""
        lanes = self._lanes_by_id if is_id else self._lanes
        key = (name, partition)
        lane = lanes.get(key)
        if lane is not None:
            if not lane.log.is_closed:
                return lane
            del lanes[key]
            self._by_log.pop(lane.log, None)
        try:
            wanted = UUID(bytes=name) if is_id else str(name, "utf-8")
            topic = self._table.topic(wanted)
            log = self._table.log(wanted, partition)
        except (StorageError, UnicodeDecodeError):
            return None
        if topic is None or log is None or log.is_closed or log.topic in INTERNAL_TOPICS:
            return None
        if len(self._by_log) >= _LANES_MAX:
            self._forget_idle()
        lane = self._by_log.get(log)
        if lane is None:
            lane = self._by_log[log] = _Lane(log, topic.topic_id)
        lanes[key] = lane
        return lane

    def _forget_idle(self) -> None:
        self._by_log = {log: lane for log, lane in self._by_log.items() if lane.requests}
        self._lanes.clear()
        self._lanes_by_id.clear()

    def _append_in_turn(self, lane: _Lane) -> None:
        lane.is_scheduled = False
        if not lane.requests:
            return
        if lane.is_patient and self._syncs.is_under_way(lane.log):
            return  # all of it needs the next sync, which begins when this one ends
        self._append(lane)

    def _append(self, lane: _Lane) -> None:
        log, requests = lane.log, lane.requests
        timeout_ms = lane.timeout_ms
        results: Sequence[Offset | Exception]
        try:
            results = log.batches.append_group(lane.group)
        except Exception as error:  # our own fault: nobody is left waiting, nothing comes twice
            logger.exception("%s: an append failed", log.name)
            results = [error] * len(requests)
        lane.clear()
        end = log.end_offset  # of all of it; what was stored before lies below
        is_promised = log.promises.is_kept(end)
        if not is_promised:
            self._syncs.request(log)  # whatever the acks: it lets readers see the records
        accepted: list[tuple[Answer, Offset]] = []
        waiting: list[tuple[Answer, Offset]] = []
        for (answer, acks), result in zip(requests, results, strict=True):
            if isinstance(result, Exception):
                _refuse(lane, answer, error_code(result), result, is_silent=acks == 0)
            elif acks == 0:
                answer.give_here(())
            elif acks == 1 or is_promised:
                accepted.append((answer, result))
            else:
                waiting.append((answer, result))
        if accepted:
            _accept_all(lane, accepted, self._metrics)
        if waiting:
            deadline_s = self._loop.now_s() + timeout_ms / 1000
            self._await(_SharedSync(lane, waiting, deadline_s, self._metrics), end)

    def _await(self, sync: _SharedSync, end: Offset) -> None:
        self._waiting.append(sync)
        self._watch.await_promise(sync.lane.log, end, sync)
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)

    def _check_timeouts(self) -> None:
        now_s = self._loop.now_s()
        for sync in self._waiting:
            if not sync.is_over and sync.deadline_s <= now_s:
                sync.refuse(ErrorCode.request_timed_out)
        self._waiting = [sync for sync in self._waiting if not sync.is_over]
        self._is_checking = bool(self._waiting)
        if self._is_checking:
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)


def _accept_all(
    lane: _Lane, accepted: list[tuple[Answer, Offset]], metrics: RequestObserver
) -> None:
    log_start = lane.log.archive.known_start_offset
    responses = lane.responses
    now_s = perf_counter()
    latencies_s: list[float] = []
    pipelined: list[tuple[Answer, bytes]] = []  # of one connection, one behind the other
    last = len(accepted) - 1
    for index, (answer, base_offset) in enumerate(accepted):
        header = answer.header
        response = responses.get(header.api_version) or lane.response_of(header.api_version)
        frame = response.encode(header.correlation_id, base_offset, log_start)
        connection = answer.connection
        if index < last and accepted[index + 1][0].connection is connection:
            pipelined.append((answer, frame))
        elif pipelined:
            pipelined.append((answer, frame))
            _send_pipelined(connection, pipelined, now_s, latencies_s)
            pipelined = []
        elif connection.send_alone(answer, frame):
            latencies_s.append(now_s - answer.started_s)
        else:
            answer.give_here((frame,))
    metrics.observe_all(_PRODUCE, latencies_s)


def _send_pipelined(
    connection: ClientConnection,
    answered: list[tuple[Answer, bytes]],
    now_s: float,
    latencies_s: list[float],
) -> None:
    answers = [answer for answer, _ in answered]
    if connection.send_together(answers, b"".join([frame for _, frame in answered])):
        latencies_s.extend([now_s - answer.started_s for answer in answers])
        return
    for answer, frame in answered:
        answer.give_here((frame,))


def _refuse(
    lane: _Lane,
    answer: Answer,
    code: ErrorCode,
    error: Exception | None = None,
    *,
    is_silent: bool = False,
) -> None:
    log, header = lane.log, answer.header
    if is_silent:
        answer.abandon(f"produce without acks to {log.name} failed: {code.name}")
        return
    part = ProducedPart(
        lane.topic_of(header.api_version),
        log.partition,
        code,
        record_errors=error.record_errors if isinstance(error, InvalidRecordError) else (),
        error_message=None if error is None else error_message(error),
    )
    answer.give([encode_produce_response(header.api_version, header.correlation_id, [part])])
