"""Produce: append the records of clients, and answer when they are as durable as requested.

    acks = 0    never an answer; an error closes the connection
    acks = 1    when the kernel has the records; lookups wait for them, see `early_answers`
    acks = all  when the records have the topic's durability: see `Promises.is_kept`

Most requests take the short way, through `produce_lanes`. The long way, here, takes requests for
several partitions and everything unusual or wrong, and says what is wrong. Before it appends to a
log, the group that waits in that log's lane is appended: the order of requests is kept.

A batch is checked and written from the buffer it was received into. Nothing here waits: requests
whose records are not durable yet become `PendingProduces`, which a sync answers. A batch whose
check takes long, because it inflates to many times its size, is checked and appended by another
thread; ordinary compressed batches are not. For batches in a transaction, see
`transactional_produce`.
"""

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import Final
from uuid import UUID

from cordwood.broker.error_codes import error_code, error_message
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.answer import Answer, Connection, begin_answer
from cordwood.broker.net.requests.session import Session
from cordwood.broker.records.cluster_partitions import AppendedEnd
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.broker.records.produce_answers import encode_refusable
from cordwood.broker.records.produce_lanes import ProduceLanes
from cordwood.broker.records.transactional_produce import (
    Admission,
    Beginnings,
    Verification,
    VerifiesTransactions,
    client_version_of,
    first_sequence,
    has_transactional,
    is_transactional,
    producer_of,
)
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.audit_topic import is_audit_client
from cordwood.broker.security.client_quotas import ClientQuotas
from cordwood.errors import CordwoodError, InvalidRecordError, LongCheckError
from cordwood.format.batch_header import CODEC_MASK, HEADER_SIZE
from cordwood.format.compression import Codec
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.transactions.transaction_entry import Outcome
from cordwood.log.transactions.transaction_metadata import EPOCH_BUMPING_VERSION, ProducerIdentity
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import (
    ProducedRecords,
    ProduceRequest,
    decode_produce_request,
)
from cordwood.protocol.produce_response import ProducedPart
from cordwood.protocol.request_header import RequestHeader, decode_request_header
from cordwood.protocol.sole_produce import find_sole_produce
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)

_ACKS_ALL: Final = -1
_ACKS: Final = frozenset({0, 1, _ACKS_ALL})
_FIRST_WITH_ZSTD: Final = 7
_ATTRIBUTES_AT: Final = 22  # their lower byte, in a batch
# Without an authorizer, Kafka's own admin tools may write to internal topics, and no other client.
_ADMIN_CLIENT_ID: Final = "__admin_client"


class _RequestReply:
    """The answer to one request: a part for each partition, in the order of the request."""

    __slots__ = ("_answer", "_part_of", "_parts", "_table", "ends")

    def __init__(self, answer: Answer, table: PartitionTable) -> None:
        self._answer = answer
        self._table = table
        self._parts: list[ProducedPart] = []
        self._part_of: dict[PartitionLog, int] = {}
        self.ends: dict[PartitionLog, AppendedEnd] = {}  # of the records appended to each log

    def add(self, part: ProducedPart) -> None:
        self._parts.append(part)

    def note_appended(self, appended: AppendedEnd) -> None:
        """The next part is about records that were appended."""
        self._part_of[appended.log] = len(self._parts)
        self.ends[appended.log] = appended

    @property
    def failed_part(self) -> ProducedPart | None:
        return next((part for part in self._parts if part.error_code), None)

    def refuse(self, code: ErrorCode, log: PartitionLog | None = None) -> None:
        parts = self._parts
        indexes = range(len(parts)) if log is None else [self._part_of[log]]
        for index in indexes:
            part = parts[index]
            if log is not None or not part.error_code:
                parts[index] = ProducedPart(part.topic, part.partition, code)

    def send(self) -> None:
        header, connection = self._answer.header, self._answer.connection
        self._answer.give(
            [
                encode_refusable(
                    self._table,
                    header,
                    self._parts,
                    connection.session.listener,
                    throttle_ms=connection.throttle_ms if connection.muted_until_s else 0,
                )
            ]
        )


class ProduceHandler:
    """Runs in the data loop. Long checks run in `long_work`, one after the other."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        syncs: DiskSyncs,
        pending: PendingProduces,
        lanes: ProduceLanes,
        loop: EventLoop,
        long_work: Executor,
        transactions: VerifiesTransactions,
        quotas: ClientQuotas,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        """Nobody may write to `closed_topics`, whatever the rules say.

        `transactions` is replaced in a member of a cluster: coordinators are on any broker there.
        """
        self._closed_topics = closed_topics
        self._quotas = quotas
        self._loop = loop
        self._long_work = long_work
        self._table = table
        self._syncs = syncs
        self._pending = pending
        self._lanes = lanes
        self.transactions = transactions

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> None:
        """Handle the request in ``data[begin:end]``, the short way if that is possible."""
        if self._quotas.is_set:
            self._start_counted(connection, data, begin, end)
        elif not self._lanes.take(connection, data, begin, end):
            self._take(*begin_answer(connection, data, begin, end))

    def _start_counted(
        self, connection: Connection, data: memoryview, begin: int, end: int
    ) -> None:
        """As `start`, and count it under the quotas of its client. It is appended in any case.

        A client that is over its quota is muted before it is answered, so the answer tells it. The
        time of handlers is not limited with acks = 0, because no answer would tell.
        """
        quotas, user = self._quotas, connection.session.principal.name
        client_id = decode_request_header(data[begin:end])[0].client_id or ""
        pause_s = quotas.produced(user, client_id, end - begin)
        if pause_s:
            connection.mute(pause_s)
        started_s = perf_counter()
        sole = find_sole_produce(data, begin, end) if quotas.times_requests else None
        acks = 0 if sole is None else sole[2]
        if not self._lanes.take(connection, data, begin, end):
            acks = self._take(*begin_answer(connection, data, begin, end))
        if quotas.times_requests and acks != 0:
            pause_s = quotas.took(user, client_id, perf_counter() - started_s)
            if pause_s:
                connection.mute(pause_s)

    def _take(self, answer: Answer, body: memoryview) -> int:
        """The long way. The acks of the request."""
        request = decode_produce_request(answer.header.api_version, body)
        reply = _RequestReply(answer, self._table)
        if request.acks not in _ACKS:
            _refuse_all(request, reply, ErrorCode.invalid_required_acks)
        elif has_transactional(request.parts):
            self._take_transactional(request, answer, reply)
        else:
            self._append_all(request, answer, reply, None)
        return request.acks

    # --- in a transaction --------------------------------------------------------------------

    def _take_transactional(
        self, request: ProduceRequest, answer: Answer, reply: _RequestReply
    ) -> None:
        """Ask the coordinator, unless the transaction is open in all logs of the request."""
        producer = producer_of(request.transactional_id, request.parts)
        if isinstance(producer, ErrorCode):
            _refuse_all(request, reply, producer)
            return
        assert request.transactional_id is not None
        need = needs.PRODUCE_TRANSACTION
        if not answer.connection.session.may(
            need, request.transactional_id, answer.header.client_id
        ):
            _refuse_all(request, reply, need.code)
            return
        version = answer.header.api_version
        begins = self._logs_to_begin_in(request, producer, answer, client_version_of(version))
        if not begins:
            self._append_all(request, answer, reply, Admission(api_version=version))
            return

        def admitted(request: ProduceRequest, outcome: Outcome) -> None:
            admission = Admission(api_version=version, begins=begins, outcome=outcome)
            self._append_all(request, answer, reply, admission)

        def wait() -> Callable[[Outcome], None]:
            # A copy: the buffer it lies in is used for the next receive.
            answer.is_alone = True
            kept = request._replace(parts=[_copied(part) for part in request.parts])
            return lambda outcome: admitted(kept, outcome)

        verification = Verification(self._loop)
        self.transactions.begin_append(
            request.transactional_id,
            producer,
            {(log.topic, log.partition) for log in begins},
            client_version=client_version_of(version),
            done=verification.done,
        )
        outcome = verification.take(wait)
        if outcome is not None:
            admitted(request, outcome)

    def _logs_to_begin_in(
        self,
        request: ProduceRequest,
        producer: ProducerIdentity,
        answer: Answer,
        client_version: int,
    ) -> Beginnings:
        """The logs of the request in which the transaction is not open yet, and may be."""
        found: dict[PartitionLog, VerificationGuard | None] = {}
        is_of_cluster = self._table.cluster is not None
        for topic, partition, records in request.parts:
            with contextlib.suppress(CordwoodError):  # the append finds it again, and answers
                log = self._table.log(topic, partition)
                if (
                    log is not None
                    and log.topic not in INTERNAL_TOPICS
                    and is_transactional(records)
                    and self._refusal(answer, topic) is None
                    and not log.producers.is_in_transaction(producer.producer_id, producer.epoch)
                    and self._table.append_refusal(log, request.acks) is None
                ):
                    found[log] = None
                    if is_of_cluster:
                        found[log] = log.producers.guard(
                            producer.producer_id,
                            producer.epoch,
                            bumps_epochs=client_version >= EPOCH_BUMPING_VERSION,
                        )
                    log.producers.await_sequence(
                        producer.producer_id, producer.epoch, first_sequence(records)
                    )
        return found

    # --- appending ---------------------------------------------------------------------------

    def _append_all(
        self,
        request: ProduceRequest,
        answer: Answer,
        reply: _RequestReply,
        admission: Admission | None,
    ) -> None:
        try:
            for index, produced in enumerate(request.parts):
                try:
                    part = self._append(
                        produced, request.acks, answer, reply, admission, is_brief=True
                    )
                    reply.add(part)
                except LongCheckError:
                    kept, admission = admission, None
                    self._continue_elsewhere(request, index, answer, reply, kept)
                    return
        finally:
            if admission is not None:
                admission.release()
        self._finish(request, answer, reply)

    def _continue_elsewhere(
        self,
        request: ProduceRequest,
        index: int,
        answer: Answer,
        reply: _RequestReply,
        admission: Admission | None,
    ) -> None:
        """Leave the rest of the request to another thread, and keep its place in the order."""
        answer.is_alone = True
        rest: list[ProducedRecords] = []
        for part in request.parts[index:]:
            with contextlib.suppress(CordwoodError):  # the append finds it again, and answers
                log = self._table.log(part.topic, part.partition)
                if log is not None:
                    self._lanes.append_waiting(log)
            # A copy: the buffer it lies in is used for the next receive.
            rest.append(_copied(part))

        def append() -> None:
            try:
                for produced in rest:
                    part = self._append(
                        produced, request.acks, answer, reply, admission, is_brief=False
                    )
                    reply.add(part)
            except Exception:  # a bug of ours: the client gets to know all the same
                logger.exception("a produce request failed")
                answer.abandon("the broker failed")
                return
            finally:
                if admission is not None:
                    admission.release()
            self._loop.call_soon(lambda: self._finish(request, answer, reply))

        self._long_work.submit(append)

    def _finish(self, request: ProduceRequest, answer: Answer, reply: _RequestReply) -> None:
        """Answer when the records are as durable as requested."""
        unkept: list[AppendedEnd] = []
        for appended in reply.ends.values():
            log, end, led_in = appended
            is_kept = log.promises.is_kept(end)
            if not is_kept or led_in is not None:
                unkept.append(appended)
            if not is_kept:
                self._syncs.request(log)  # with any acks: readers see the records after it
                if request.acks != _ACKS_ALL and led_in is None:
                    log.promises.acknowledge_early(end)
        if request.acks == 0:
            _finish_unacknowledged(answer, reply.failed_part)
        elif request.acks == _ACKS_ALL and unkept:
            self._pending.add(reply, unkept, request.timeout_ms)
        else:
            reply.send()

    def _append(
        self,
        produced: ProducedRecords,
        acks: int,
        answer: Answer,
        reply: _RequestReply,
        admission: Admission | None,
        *,
        is_brief: bool,
    ) -> ProducedPart:
        """Append one part. In the loop only if `is_brief`; then it may raise `LongCheckError`."""
        topic, partition, records = produced
        header = answer.header
        try:
            code = self._refusal(answer, topic)
            if code is not None:
                return ProducedPart(topic, partition, code)
            log = self._table.log(topic, partition)
            if log is None:
                return ProducedPart(topic, partition, self._table.why_absent(topic, partition))
            code = self._table.append_refusal(log, acks)
            if code is not None:
                log.batches.note_refused_bytes(records)
                return ProducedPart(topic, partition, code)
            led_in = self._table.led_in(log)
            if header.api_version < _FIRST_WITH_ZSTD and _is_zstd(records):
                return ProducedPart(topic, partition, ErrorCode.unsupported_compression_type)
            if is_brief:
                self._lanes.append_waiting(log)
            rules = None
            if admission is not None:
                if log in admission.refused:
                    return ProducedPart(topic, partition, admission.code)
                rules = admission.rules_for(log)
            placed = log.batches.append_batch(
                records, wait=False, is_brief=is_brief, transaction=rules, led_in=led_in
            )
        except LongCheckError:
            raise
        except (CordwoodError, OSError) as error:
            return _refused(topic, partition, error)
        awaited_in = None if led_in is None else self._table.awaited_in(log)
        reply.note_appended(AppendedEnd(log, Offset(placed.last_offset + 1), awaited_in))
        return ProducedPart(
            topic,
            partition,
            base_offset=placed.base_offset,
            log_append_time_ms=placed.timestamp_ms if log.config.is_log_append_time else -1,
            log_start_offset=log.archive.known_start_offset,
        )

    def _refusal(self, answer: Answer, topic: str | UUID) -> ErrorCode | None:
        """Why the client may not write to a topic. An unknown id is no secret, as in Kafka."""
        session = answer.connection.session
        name = self._table.name_of(topic)
        if name is None:
            return ErrorCode.unknown_topic_id
        if name in self._closed_topics and self._is_of_a_broker(answer):
            return None
        if not session.may(needs.PRODUCE_TOPIC, name, answer.header.client_id):
            return needs.PRODUCE_TOPIC.code
        if name in self._closed_topics:
            return ErrorCode.invalid_topic_exception
        if name in INTERNAL_TOPICS and not _may_write_internal(session, answer.header):
            return needs.PRODUCE_INTERNAL.code
        return None

    def _is_of_a_broker(self, answer: Answer) -> bool:
        """Whether another broker of the cluster writes audit lines, which this one leads."""
        return (
            self._table.cluster is not None
            and is_audit_client(answer.header.client_id)
            and answer.connection.session.may(needs.REPLICA_FETCH)
        )


def _may_write_internal(session: Session, header: RequestHeader) -> bool:
    if session.access.is_unlimited:
        return header.client_id == _ADMIN_CLIENT_ID
    return session.may(needs.PRODUCE_INTERNAL, client_id=header.client_id)


def _refuse_all(request: ProduceRequest, reply: _RequestReply, code: ErrorCode) -> None:
    for produced in request.parts:
        reply.add(ProducedPart(produced.topic, produced.partition, code))
    reply.send()


def _copied(part: ProducedRecords) -> ProducedRecords:
    return part._replace(records=memoryview(bytearray(part.records)))


def _finish_unacknowledged(answer: Answer, failed: ProducedPart | None) -> None:
    if failed is None:
        answer.give(())
        return
    name = ErrorCode(failed.error_code).name
    answer.abandon(f"produce without acks to {failed.topic}-{failed.partition} failed: {name}")


def _is_zstd(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD


def _refused(topic: str | UUID, partition: int, error: Exception) -> ProducedPart:
    if isinstance(error, OSError):
        logger.error("an append to %s-%d failed: %s", topic, partition, error)
    return ProducedPart(
        topic,
        partition,
        error_code(error),
        record_errors=error.record_errors if isinstance(error, InvalidRecordError) else (),
        error_message=error_message(error),
    )
