"""The requests that are appended to one log together, and their answers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Final
from uuid import UUID

from cordwood.broker.error_codes import error_message
from cordwood.broker.net.requests.answer import Connection, SoleAnswer
from cordwood.broker.net.rows.answer_row import AnswerRow
from cordwood.broker.net.rows.gathered_frames import Gathering
from cordwood.broker.net.rows.socket_rows import NOT_IN_ROW
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.produce_answers import encode_refusable
from cordwood.broker.security import access_table as needs
from cordwood.errors import InvalidRecordError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.transactions.transaction_entry import Lease
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import FIRST_WITH_TOPIC_ID
from cordwood.protocol.produce_response import (
    ProducedPart,
    SoleResponse,
    with_throttle_time,
)
from cordwood.quantities import Offset

_WRITE, _TOPIC = needs.PRODUCE_TOPIC.operation, needs.PRODUCE_TOPIC.resource
ACKS_ALL: Final = -1
_PARTED_MIN: Final = 12  # the answers to fewer requests leave together

# How a batch of a transaction is checked, and the lease if it begins one in the log.
TransactionPermit = tuple[TransactionRules, Lease | None]

# The answer to one request, or those to the requests of several batches that follow each other.
Owed = SoleAnswer | AnswerRow
# What is owed, and the base offset of each of its batches.
Produced = tuple[Owed, list[Offset]]


def with_results(
    owed: Iterable[Owed], results: Sequence[Offset | Exception]
) -> Iterator[tuple[Owed, Sequence[Offset | Exception]]]:
    """What is owed, each with the results of its own batches."""
    at = 0
    for each in owed:
        end = at + each.count
        yield each, results[at:end]
        at = end


class ProduceLane:
    """The batches that wait to be appended to one log, and the requests they came with."""

    __slots__ = (
        "gate",
        "group",
        "is_alone",
        "is_patient",
        "is_scheduled",
        "leases",
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

    @property
    def is_idle(self) -> bool:
        return not self.requests

    def clear(self) -> None:
        self.group = BatchGroup()
        self.requests: list[Owed] = []
        self.leases: list[Lease] = []  # of transactions that begin with a batch of the group
        self.timeout_ms = 0
        self.is_patient = True  # no request is to be answered before a sync

    def admits(self, connection: Connection) -> bool:
        """Whether the client may write here; if not, the long way refuses it."""
        access = connection.session.access
        return access.is_unlimited or access.allows(_WRITE, _TOPIC, self.log.topic)

    def admits_all(self, connections: Sequence[Connection]) -> bool:
        limited = [each for each in connections if not each.session.access.is_unlimited]
        return not limited or all(map(self.admits, limited))

    def permit(self, producer_id: int, permit: TransactionPermit) -> None:
        """The batch of a transaction was added to the group."""
        rules, lease = permit
        self.group.rule(producer_id, rules)
        if lease is not None:
            self.leases.append(lease)

    def enter_row(
        self, clients: list[Gathering], ids: list[int], version: int, acks: int, timeout_ms: int
    ) -> None:
        """The batches of requests that came together were added to the group."""
        last = self.requests[-1] if self.requests else None
        if isinstance(last, AnswerRow) and last.version == version and last.acks == acks:
            last.extend(clients, ids)
            if timeout_ms > self.timeout_ms:  # noqa: PLR1730 (max() would be a call)
                self.timeout_ms = timeout_ms
        else:
            self.enter(AnswerRow(clients, ids, version, acks), timeout_ms)

    def enter(self, answer: Owed, timeout_ms: int) -> None:
        """The batch of that request was added to the group, or those of a row."""
        self.requests.append(answer)
        if answer.acks != ACKS_ALL:
            self.is_patient = False
        if timeout_ms > self.timeout_ms:  # noqa: PLR1730 (max() would be a call)
            self.timeout_ms = timeout_ms

    def accept(self, produced: Iterable[Produced]) -> None:
        """Answer requests with the base offsets of their batches."""
        log_start = self.log.archive.known_start_offset
        alone: list[tuple[SoleAnswer, Offset]] = []
        for owed, bases in produced:
            if isinstance(owed, AnswerRow):
                alone += self._accept_row(owed, bases, log_start, owed.count)
            else:
                alone.append((owed, bases[0]))
        if alone:
            self._accept_each(alone, log_start)

    def accept_first(self, produced: Sequence[Produced], count: int) -> Sequence[Produced]:
        """Answer the first `count` requests, less than all; return what is left.

        A row may be answered in part.
        """
        whole = 0
        while produced[whole][0].count <= count:
            count -= produced[whole][0].count
            whole += 1
        if whole:
            self.accept(produced[:whole])
        row, bases = produced[whole]
        if count and isinstance(row, AnswerRow):
            log_start = self.log.archive.known_start_offset
            alone = self._accept_row(row, bases, log_start, count)
            if alone:
                self._accept_each(alone, log_start)
        return produced[whole:]

    def _accept_row(
        self, row: AnswerRow, bases: list[Offset], log_start: Offset, stop: int
    ) -> list[tuple[SoleAnswer, Offset]]:
        """Answer a row up to `stop` in one call; return those that must be answered alone."""
        response = self.responses.get(row.version) or self._response_of(row.version)
        first, ids = row.answered, row.correlation_ids
        if first or stop < len(ids):
            ids, bases = ids[first:stop], bases[first:stop]
        frames, size = response.encode_all(ids, bases, log_start)
        unusual = row.send(frames, size, stop)
        counts, starts = row.connections[0].counts, row.starts(first, stop)
        if not unusual:
            counts.answered_together(row.api_key, starts, len(frames))
            return []
        alone: list[tuple[SoleAnswer, Offset]] = []  # counted when they are answered
        sent = len(frames)
        for index, result in unusual:
            at = index - first
            if result == NOT_IN_ROW:
                sent -= size
                alone.append((row.single(index), bases[at]))
            else:
                frame = bytes(frames[at * size : (at + 1) * size])
                sent += row.connections[index].send_failed(frame, result) - size
        left = Counter([answer.started_s for answer, _ in alone])
        starts = [(count - left[started_s], started_s) for count, started_s in starts]
        counts.answered_together(row.api_key, starts, sent)
        return alone

    def _accept_each(
        self, produced: Sequence[tuple[SoleAnswer, Offset]], log_start: Offset
    ) -> None:
        """Consecutive answers to one connection leave in one `send`.

        Each `send` may have to wake the client.
        """
        version, response = -1, None
        last: Connection | None = None  # that has answers to send
        latencies_s: list[float] = []  # of those that were sent
        sent = 0
        for answer, base_offset in produced:
            connection = answer.connection
            if last is not None and last is not connection:
                last.send_ready()
                last = None
            if response is None or answer.version != version:
                version = answer.version
                response = self.responses.get(version) or self._response_of(version)
            frame = response.encode(answer.correlation_id, base_offset, log_start)
            if connection.muted_until_s:
                frame = with_throttle_time(version, frame, connection.throttle_ms)
            size = connection.send_alone(answer, frame)
            if size >= 0:
                sent += size
                latencies_s.append(monotonic() - answer.started_s)
            else:
                answer.pieces = (frame,)
                answer.is_ready = True
                last = connection
        if last is not None:
            last.send_ready()
        if latencies_s:
            connection.counts.answered(SoleAnswer.api_key, latencies_s, sent)

    def refuse(self, answer: SoleAnswer, code: ErrorCode, error: Exception | None = None) -> None:
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


class GroupReply:
    """The answers to requests of one lane that wait for the same sync.

    `show` tells the readers of the log, who see the records before their producers are answered.
    """

    __slots__ = ("_code", "_is_parted", "_lane", "_produced", "_show")

    def __init__(
        self,
        lane: ProduceLane,
        produced: Sequence[Produced],
        show: Callable[[], None] | None,
    ) -> None:
        self._lane = lane
        self._produced = produced
        self._show = show
        self._code = ErrorCode.none
        self._is_parted = False

    def refuse(self, code: ErrorCode, log: PartitionLog | None = None) -> None:
        self._code = code

    def send_part(self) -> None:
        """Answer two thirds of the requests, if they are many: they are durable.

        `send` answers the others, while the disk works on the next group. A sync takes less time
        than all answers.
        """
        count = sum([owed.count for owed, _ in self._produced])
        if count >= _PARTED_MIN and not self._is_parted:
            self._is_parted = True
            self._show_records()
            self._produced = self._lane.accept_first(self._produced, count * 2 // 3)

    def _show_records(self) -> None:
        show, self._show = self._show, None
        if show is not None:
            show()

    def send(self) -> None:
        if self._code is ErrorCode.none:
            self._show_records()
            self._lane.accept(self._produced)
            return
        for owed, _ in self._produced:
            for answer in owed.singles() if isinstance(owed, AnswerRow) else (owed,):
                self._lane.refuse(answer, self._code)
