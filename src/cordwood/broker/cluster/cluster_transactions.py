"""The transactions of a member of a cluster, put together from their parts."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.cluster.transactions.coordinator_lookup import CoordinatorLookup
from cordwood.broker.cluster.transactions.marker_sender import MarkerSender
from cordwood.broker.cluster.transactions.partition_markers import PartitionMarkers, WrittenMarkers
from cordwood.broker.cluster.transactions.transaction_shards import SharedWork, TransactionShards
from cordwood.broker.cluster.transactions.transaction_verification import TransactionVerification
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.clock import Clock
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import StorageError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.format.groups.group_offsets import group_partition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.marker_writer import WantedMarker
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset, ProducerId

logger = logging.getLogger(__name__)

_ACKS_ALL = -1


class StatePartitions:
    """The partitions of ``__transaction_state`` that are here. See `LedPartitions`."""

    def __init__(self, member: ClusterMember, table: PartitionTable) -> None:
        self._member = member
        self._table = table

    def count(self) -> int | None:
        return self._member.partition_count(TRANSACTION_STATE_TOPIC)

    def log(self, number: int) -> PartitionLog | None:
        try:
            return self._table.log(TRANSACTION_STATE_TOPIC, number)
        except StorageError as error:  # its directory is offline
            logger.warning("__transaction_state-%d cannot be used: %s", number, error)
            return None

    def refusal(self, number: int) -> Refusal | None:
        log = self.log(number)
        code = ErrorCode.not_leader_or_follower
        if log is not None:
            code = self._table.append_refusal(log, _ACKS_ALL) or ErrorCode.none
        if code is ErrorCode.none:
            return None
        is_elsewhere = code is ErrorCode.not_leader_or_follower
        return Refusal.NOT_COORDINATOR if is_elsewhere else Refusal.COORDINATOR_NOT_AVAILABLE

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        return self._member.transactions.await_committed(partition, end, led_in)

    @property
    def is_fenced(self) -> bool:
        return self._member.is_fenced_by_silence


class ClusterAdmission:
    """Asks whether offsets of a group may be committed in a transaction, wherever that is.

    Any thread may ask. The log is looked at by a worker, because its lock may be held for long.
    """

    def __init__(
        self,
        member: ClusterMember,
        table: PartitionTable,
        verification: TransactionVerification,
        workers: Executor,
    ) -> None:
        self._member = member
        self._table = table
        self._verification = verification
        self._workers = workers

    def begin(
        self,
        group_id: str,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        client_version: int,
        done: Callable[[Outcome, VerificationGuard | None], None],
    ) -> None:
        def begin() -> None:
            place, log = self._log_of(group_id)
            if log is None:
                done(Refused(Refusal.NOT_COORDINATOR), None)
                return
            # Also if the transaction is open here: it may end before the offsets are written.
            guard = log.producers.guard(
                producer.producer_id,
                producer.epoch,
                bumps_epochs=client_version >= EPOCH_BUMPING_VERSION,
            )
            if log.producers.is_in_transaction(producer.producer_id, producer.epoch):
                done(Granted(identity=producer), guard)
                return
            self._verification.begin_append(
                transactional_id,
                producer,
                {place},
                client_version=client_version,
                done=lambda outcome: done(outcome, guard),
            )

        self._workers.submit(begin)

    def _log_of(self, group_id: str) -> tuple[tuple[str, int], PartitionLog | None]:
        count = self._member.partition_count(CONSUMER_OFFSETS_TOPIC)
        place = (CONSUMER_OFFSETS_TOPIC, group_partition(group_id, count or 1))
        try:
            return place, None if count is None else self._table.log(*place)
        except StorageError:
            return place, None


class ClusterTransactions:
    """Assembled by the broker.

    shards        the coordinator: the ids whose partition this broker leads
    verification  asks coordinators anywhere
    admission     the same for offsets of groups
    """

    def __init__(
        self,
        member: ClusterMember,
        image: Callable[[], MetadataImage],
        *,
        offsets: CommittedOffsets,
        table: PartitionTable,
        control_loop: EventLoop,
        data_loop: EventLoop,
        request_sync: Callable[[PartitionLog], None],
        workers: Executor,
        allocate: Callable[[], ProducerId],
        clock: Clock,
    ) -> None:
        self._loop = control_loop
        self._workers = workers
        self._markers = PartitionMarkers(
            table, offsets, data=data_loop, request_sync=request_sync, clock=clock
        )
        lookup = CoordinatorLookup(image)
        self._peers = [member.peers_in(control_loop, name) for name in ("markers", "transactions")]
        sender = MarkerSender(
            control_loop,
            lookup,
            self._peers[0],
            node_id=member.node_id,
            write_here=self._write_by_worker,
        )
        partitions = StatePartitions(member, table)
        self.shards = TransactionShards(
            partitions,
            SharedWork(partitions, sender, control_loop, allocate),
            loop=control_loop,
            workers=workers,
            clock=clock,
        )
        self.verification = TransactionVerification(
            control_loop,
            lookup,
            self._peers[1],
            node_id=member.node_id,
            local=self.shards,
            is_verifying=lambda: self.shards.config.verifies_partitions,
        )
        self.admission = ClusterAdmission(member, table, self.verification, workers)

    def write_markers(self, markers: Sequence[WantedMarker], done: WrittenMarkers) -> None:
        """Write markers for a coordinator anywhere. For a thread that may wait for the disk."""
        self._markers.write(markers, done)

    def _write_by_worker(self, markers: Sequence[WantedMarker], done: WrittenMarkers) -> None:
        def write() -> None:
            try:
                self._markers.write(markers, done)
            except Exception:  # a bug of ours: the sender must go on
                logger.exception("transaction markers could not be written")
                done([ErrorCode.unknown_server_error] * len(markers))

        try:
            self._workers.submit(write)
        except RuntimeError:  # the broker stops
            done([ErrorCode.not_leader_or_follower] * len(markers))

    def stop(self) -> None:
        """Coordinate no more. Any thread; safe to repeat."""
        self.shards.close()
        for peers in self._peers:
            self._loop.call_soon(peers.close)
