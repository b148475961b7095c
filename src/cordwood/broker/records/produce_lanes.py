"""The short way of a produce: small requests are appended together, one write and one sync for all.

A lane collects the batches for one log. Requests that come in the same turn of the loop are read,
checked and copied behind the other batches of their lane together, in two compiled passes. When
every ready socket has had its turn, the group is appended. If the log is being synced and the
whole group needs the next sync, the group goes on growing until this sync ends. With fifty
producers waiting for the disk, that is one write and one sync for dozens of records.

A large batch is not copied: it is appended by itself, from where it was received.
"""

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from cordwood.broker.error_codes import RefusedError, error_code
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.answer import Connection, SoleAnswer
from cordwood.broker.net.rows.answer_row import AnswerRow
from cordwood.broker.net.rows.gathered_frames import Gathering
from cordwood.broker.records.cluster_partitions import AppendedEnd, append_refusal
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.known_logs import KnownLogs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.pending_produces import PendingProduces
from cordwood.broker.records.produce_lane import (
    ACKS_ALL,
    GroupReply,
    Owed,
    Produced,
    ProduceLane,
    TransactionPermit,
    with_results,
)
from cordwood.broker.records.sole_fetches import COPIED_BYTES_MAX
from cordwood.broker.records.transactional_produce import client_version_of
from cordwood.broker.security import access_table as needs
from cordwood.clock import Clock
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.transactions.transaction_entry import Lease
from cordwood.log.transactions.transaction_metadata import EPOCH_BUMPING_VERSION, ProducerIdentity
from cordwood.protocol.produce_request import FIRST_WITH_TOPIC_ID
from cordwood.protocol.sole_produce import find_sole_produce, find_sole_produces
from cordwood.quantities import NO_PRODUCER_ID, Offset, TimestampMs

if TYPE_CHECKING:  # a broker that is alone does not load it
    from cordwood.cluster.replication.partition_replica import PartitionReplica

logger = logging.getLogger(__name__)

_WRITE, _TRANSACTION = needs.PRODUCE_TOPIC.operation, needs.PRODUCE_TRANSACTION.resource
_SIZE_BYTES: Final = 4  # the size of a frame, before it
_GROUP_BYTES_MAX: Final = 1024 * 1024  # larger groups gain nothing and wait longer
_LARGE_BATCH: Final = 96 * 1024  # from here on a copy costs more than a write of its own
_ALL_PLACED: Final = {int}  # the types of the answers of a log that took every batch


class TakesAppended(Protocol):
    """Is told of a group of batches, with the answers of the log and where that ended before."""

    def __call__(
        self, log: PartitionLog, group: BatchGroup, bases: Sequence[object], end_before: Offset
    ) -> None: ...


class AdmitsTransactions(Protocol):
    """A coordinator in this process."""

    def begin_append_now(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[tuple[str, int]],
        *,
        client_version: int,
    ) -> Lease | None:
        """A lease for a batch that begins a transaction in a partition; None: ask in full."""
        ...


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
        appended: TakesAppended,
        transactions: AdmitsTransactions | None = None,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        """`appended` is told of each group: when it was appended, and when it is durable.

        Without `transactions`, batches of transactions take the long way.
        """
        self._appended = appended
        self._transactions = transactions
        self._closed_topics = closed_topics
        self._table = table
        self._watch = watch
        self._syncs = syncs
        self._pending = pending
        self._loop = loop
        self._clock = clock
        self._lanes = KnownLogs(table, watch, self._make_lane)
        self._clock_turn = -1  # the turn of the loop in which `_now_ms` was read
        self._now_ms = TimestampMs(0)

    def take(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        """Whether the produce in ``data[begin:end]`` was taken, and will be answered.

        If not, nothing was done: it is for several partitions, or unusual, or wrong.
        """
        sole = find_sole_produce(data, begin, end)
        if sole is None:
            return False
        version, correlation_id, acks, timeout_ms, name_at, name_end, partition = sole[:7]
        at, stop, id_at, id_end = sole[7:]
        lane = self._lane_for(version, bytes(data[name_at:name_end]), partition, acks)
        if lane is None or not lane.admits(connection):
            return False
        batch = lane.gate.survey_part(data, at, stop, self._now())
        if batch is None:
            return False
        permit = None
        if batch.is_transactional:
            permit = self._permit(lane, batch, data[id_at:id_end], connection, version)
            if permit is None:
                return False
        answer = SoleAnswer(connection, version, correlation_id, acks)
        if stop - at >= _LARGE_BATCH:
            self._append_large(lane, data[at:stop], batch, answer, timeout_ms, permit)
            return True
        self._enter(lane, data[at:stop], batch, answer, timeout_ms, permit)
        if not lane.is_scheduled:
            lane.is_scheduled = True
            self._loop.call_soon(lambda: self._append_in_turn(lane))
        return True

    def take_all(
        self,
        connections: Sequence[Gathering],
        data: memoryview,
        ends: list[int],
        start: Callable[[int], None],
    ) -> None:
        """Take small produces of several connections: see `gathered_frames.TakesFrames`."""
        lanes: dict[ProduceLane, None] = {}
        for run in find_sole_produces(data, ends):
            lane = self._take_run(run, connections, data)
            if lane is not None:
                lanes[lane] = None
                continue
            version, *_, indexes, _ids, _spans = run
            for index in indexes:
                begin = (ends[index - 1] if index else 0) + _SIZE_BYTES
                connections[index].leave_row()
                # An unusual one may be less or more than the frame that its size announces.
                if version < 0 or not self.take(connections[index], data, begin, ends[index]):
                    start(index)
        for lane in lanes:
            self._append_in_turn(lane)

    def _take_run(
        self,
        run: tuple[int, int, int, bytes, int, list[int], list[int], list[int]],
        connections: Sequence[Gathering],
        data: memoryview,
    ) -> ProduceLane | None:
        """The lane that the requests of a run were entered in; None if each must be looked at."""
        version, acks, timeout_ms, name, partition, indexes, ids, spans = run
        lane = None if version < 0 else self._lane_for(version, name, partition, acks)
        if lane is None:
            return None
        clients = [connections[index] for index in indexes]
        if not lane.admits_all(clients):
            return None
        surveyed = lane.gate.survey_all(data, spans, self._now())
        if surveyed is None:
            return None
        batches, joined, is_numbered = surveyed
        if is_numbered and any(batch.is_transactional for batch in batches):
            return None
        if is_numbered and not _are_of_different_producers(batches):
            row = AnswerRow(clients, ids, version, acks)
            self._enter_each(lane, batches, joined, row.singles(), timeout_ms)
            return lane
        self._add_all(lane, batches, joined, is_numbered=is_numbered)
        lane.enter_row(clients, ids, version, acks, timeout_ms)
        return lane

    def _lane_for(self, version: int, name: bytes, partition: int, acks: int) -> ProduceLane | None:
        """The lane for a request; None if the long way has to find out what is wrong."""
        is_id = version >= FIRST_WITH_TOPIC_ID
        key = (name, partition)
        lane = (self._lanes.by_id if is_id else self._lanes.by_name).get(key)
        if lane is None or not lane.requests:  # what a group began with holds for all of it
            lane = self._open_lane(lane, key, is_id=is_id)
        if lane is None or not ACKS_ALL <= acks <= 1:
            return None
        if lane.replica is not None and append_refusal(lane.replica, acks) is not None:
            return None
        return lane

    def _now(self) -> TimestampMs:
        """The time, which is read once in a turn of the loop."""
        turns = self._loop.turns
        if turns != self._clock_turn:
            self._clock_turn, self._now_ms = turns, self._clock.now_ms()
        return self._now_ms

    def _permit(
        self,
        lane: ProduceLane,
        batch: UnplacedBatch,
        id_data: memoryview,
        connection: Connection,
        version: int,
    ) -> TransactionPermit | None:
        """How a batch of a transaction is checked, and the lease if it begins one in this log.

        None: the long way asks the coordinator, or refuses it.
        """
        transactions, log = self._transactions, lane.log
        if transactions is None or lane.replica is not None or not id_data:
            return None
        try:
            transactional_id = str(id_data, "utf-8")
        except UnicodeDecodeError:
            return None
        access = connection.session.access
        if not (access.is_unlimited or access.allows(_WRITE, _TRANSACTION, transactional_id)):
            return None
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        lease = None
        may_begin = False
        client_version = client_version_of(version)
        group = lane.group
        is_ruled = producer_id in group.rules and group.has_room_for(batch)
        if not (is_ruled or log.producers.is_in_transaction(producer_id, epoch)):
            may_begin = True
            lease = transactions.begin_append_now(
                transactional_id,
                ProducerIdentity(producer_id=producer_id, epoch=epoch),
                frozenset([(log.topic, log.partition)]),
                client_version=client_version,
            )
            if lease is None:
                return None
        starts_at_zero = client_version >= EPOCH_BUMPING_VERSION
        return TransactionRules(may_begin=may_begin, starts_at_zero=starts_at_zero), lease

    # --- groups ------------------------------------------------------------------------------

    def _enter(
        self,
        lane: ProduceLane,
        records: memoryview,
        batch: UnplacedBatch,
        answer: SoleAnswer,
        timeout_ms: int,
        permit: TransactionPermit | None = None,
    ) -> None:
        """Add a batch to the group of its lane; if it does not fit, that is appended before."""
        group = lane.group
        if lane.requests and (
            len(group.data) + len(records) > _GROUP_BYTES_MAX
            or (batch.producer_id != NO_PRODUCER_ID and not group.has_room_for(batch))
        ):
            self._append(lane)
            group = lane.group
        group.add(records, batch)
        if permit is not None:
            lane.permit(batch.producer_id, permit)
        lane.enter(answer, timeout_ms)

    def _enter_each(
        self,
        lane: ProduceLane,
        batches: Sequence[UnplacedBatch],
        joined: bytearray,
        answers: Sequence[SoleAnswer],
        timeout_ms: int,
    ) -> None:
        """Add batches of which some have a producer. Their bytes follow each other in `joined`."""
        rest = memoryview(joined)
        for batch, answer in zip(batches, answers, strict=True):
            self._enter(lane, rest[: batch.size], batch, answer, timeout_ms)
            rest = rest[batch.size :]

    def _add_all(
        self,
        lane: ProduceLane,
        batches: list[UnplacedBatch],
        joined: bytearray,
        *,
        is_numbered: bool,
    ) -> None:
        """Add batches that have no producer, or each another one, to the group of their lane."""
        if lane.requests and (
            len(lane.group.data) + len(joined) > _GROUP_BYTES_MAX
            or (is_numbered and not all(map(lane.group.has_room_for, batches)))
        ):
            self._append(lane)
        if is_numbered:
            lane.group.add_numbered(joined, batches)
        else:
            lane.group.add_unnumbered(joined, batches)

    def _append_large(
        self,
        lane: ProduceLane,
        records: memoryview,
        batch: UnplacedBatch,
        answer: SoleAnswer,
        timeout_ms: int,
        permit: TransactionPermit | None,
    ) -> None:
        """A group of its own, behind the one that waits.

        Now: the buffer that it lies in is used for the next receive.
        """
        if lane.requests:
            self._append(lane)
        lane.group = BatchGroup.alone(records, batch)
        if permit is not None:
            lane.permit(batch.producer_id, permit)
        lane.enter(answer, timeout_ms)
        self._append(lane)

    def append_waiting(self, log: PartitionLog) -> None:
        """Append the group of `log`, so that a batch on the long way comes after it."""
        lane = self._lanes.of(log)
        if lane is not None and lane.requests:
            self._append(lane)

    def _open_lane(
        self, lane: ProduceLane | None, key: tuple[bytes, int], *, is_id: bool
    ) -> ProduceLane | None:
        """The lane of an open log; None if the long way has to find out what is wrong."""
        if lane is not None:
            if not lane.log.state.is_closed:
                config = lane.log.config
                if lane.gate.config is not config:
                    lane.gate = BatchGate(config)
                return lane
            self._lanes.forget(lane)
        return self._lanes.find(key, is_id=is_id)

    def _make_lane(self, log: PartitionLog, topic_id: UUID) -> ProduceLane | None:
        if log.topic in INTERNAL_TOPICS or log.topic in self._closed_topics:
            return None
        if self._table.cluster is not None and self._table.replica_of(log) is None:
            return None
        return ProduceLane(log, topic_id, self._table)

    def _append_in_turn(self, lane: ProduceLane) -> None:
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

    def _append(self, lane: ProduceLane) -> None:
        log, requests, leases = lane.log, lane.requests, lane.leases
        timeout_ms, is_patient = lane.timeout_ms, lane.is_patient
        end_before = log.state.end
        results: Sequence[Offset | Exception]
        try:
            results = (
                log.batches.append_group(lane.group)
                if lane.replica is None
                else self._append_led(lane, lane.replica)
            )
        except Exception as error:  # a bug of ours: every client gets an answer all the same
            logger.exception("%s: an append failed", log.name)
            results = [error] * len(lane.group)
        finally:
            for lease in leases:
                lease.release()
        is_small = len(lane.group.data) <= COPIED_BYTES_MAX  # a larger group is not kept for long
        show = partial(self._appended, log, lane.group, results, end_before)
        lane.clear()
        show()
        end = log.end_offset  # behind all of them; batches that were stored before lie below
        is_promised = log.promises.is_kept(end)
        if not is_promised:
            self._syncs.request(log)  # with any acks: readers see the records after it
            if not is_patient and lane.is_alone:
                log.promises.acknowledge_early(end)
        led_in = None
        if not lane.is_alone:
            led_in, is_promised = self._table.led_in(log), False
        accepted: Sequence[Produced]
        waiting: Sequence[Produced]
        if is_patient and set(map(type, results)) == _ALL_PLACED:
            produced: list[Produced]
            produced = list(with_results(requests, results))  # type: ignore[arg-type]
            accepted, waiting = (produced, []) if is_promised else ([], produced)
        else:
            accepted, waiting = self._sorted_out(lane, requests, results, is_promised=is_promised)
        if accepted:
            lane.accept(accepted)
        if waiting:
            ends = (AppendedEnd(log, end, led_in),)
            reply = GroupReply(lane, waiting, show if is_small else None)
            self._pending.add(reply, ends, timeout_ms, reply.send_part)

    def _sorted_out(
        self,
        lane: ProduceLane,
        requests: Sequence[Owed],
        results: Sequence[Offset | Exception],
        *,
        is_promised: bool,
    ) -> tuple[list[Produced], list[Produced]]:
        """Requests that are answered now, and those that wait. Refusals are answered here."""
        accepted: list[Produced] = []
        waiting: list[Produced] = []
        for owed, found in with_results(requests, results):
            is_due = owed.acks == 1 or is_promised
            if owed.acks and set(map(type, found)) == _ALL_PLACED:
                (accepted if is_due else waiting).append((owed, found))  # type: ignore[arg-type]
                continue
            singles = owed.singles() if isinstance(owed, AnswerRow) else [owed]
            for answer, result in zip(singles, found, strict=True):
                if isinstance(result, Exception):
                    self._refuse(lane, answer, result)
                elif not answer.acks:
                    answer.give_here(())
                else:
                    (accepted if is_due else waiting).append((answer, [result]))
        return accepted, waiting

    def _refuse(self, lane: ProduceLane, answer: SoleAnswer, error: Exception) -> None:
        code = error_code(error)
        if answer.acks:
            lane.refuse(answer, code, error)
        else:
            answer.abandon(f"produce without acks to {lane.log.name} failed: {code.name}")

    def _append_led(
        self, lane: ProduceLane, replica: "PartitionReplica"
    ) -> Sequence[Offset | Exception]:
        """Append as the leader of the partition: its role may have changed since requests came.

        With too few replicas in sync, all are refused if one has acks=all: the order stays.
        """
        acks = min(answer.acks for answer in lane.requests)
        code = append_refusal(replica, acks)
        if code is not None:
            lane.log.batches.note_refused(lane.group.batches)
            return [RefusedError(code, "this replica cannot append now")] * len(lane.group)
        return lane.log.batches.append_group(lane.group, led_in=self._table.led_in(lane.log))


def _are_of_different_producers(batches: Sequence[UnplacedBatch]) -> bool:
    """Whether no producer has two of the batches. Any number may be without a producer."""
    producers = [b.producer_id for b in batches if b.producer_id != NO_PRODUCER_ID]
    return len(set(producers)) == len(producers)
