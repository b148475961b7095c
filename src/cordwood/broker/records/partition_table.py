"""Which topic or log a request means: by name and, in newer requests, by id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress, ClusterView
from cordwood.broker.records.cluster_partitions import (
    ClusterPartitions,
    append_refusal,
    leader_refusal,
    reader_refusal,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.value_class import dataclass

if TYPE_CHECKING:  # a broker that is alone does not load it
    from cordwood.cluster.replication.partition_replica import PartitionReplica

# With these a client looks for the leader: the answer names it.
LEADER_ERRORS: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})

AskedTopic = tuple[str, UUID, Sequence[int]]  # name or id, and partitions


class PartitionTable:
    """Finds topics and logs of a store. Any thread may use it.

    cluster  where partitions are led, in a cluster; None: all are here, and are led here
    """

    def __init__(self, store: Store, cluster: ClusterPartitions | None = None) -> None:
        self.cluster = cluster
        self._store = store
        self._names: dict[UUID, str] = {}

    def topic(self, wanted: str | UUID) -> Topic[PartitionLog] | None:
        """The topic of that name or id; None if there is none."""
        if isinstance(wanted, str):
            return self._store.registry.find(wanted)
        name = self._names.get(wanted)
        topic = None if name is None else self._store.registry.find(name)
        if topic is not None and topic.topic_id == wanted:
            return topic
        self._names = self._store.registry.names_by_id()
        name = self._names.get(wanted)
        return None if name is None else self._store.registry.find(name)

    def log(self, wanted: str | UUID, partition: int) -> PartitionLog | None:
        """The log of a partition; None if there is no such partition.

        Raises `StorageError` for one whose directory is offline.
        """
        topic = self.topic(wanted)
        if topic is None or not topic.is_here(partition):
            return None
        return topic.partition(partition)

    def name_of(self, wanted: str | UUID) -> str | None:
        """The name of a topic, which may be led elsewhere; None if no topic has the id."""
        if isinstance(wanted, str):
            return wanted
        topic = self.topic(wanted)
        if topic is not None:
            return topic.name
        return None if self.cluster is None else self.cluster.name_of(wanted)

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        """Why `log` has found nothing."""
        if self.cluster is not None:
            return self.cluster.why_absent(wanted, partition)
        if isinstance(wanted, str) or self.topic(wanted) is not None:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.unknown_topic_id

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        """This broker's replica of a partition; None without a cluster, and while it goes."""
        return None if self.cluster is None else self.cluster.replica_of(log)

    def append_refusal(self, log: PartitionLog, acks: int) -> ErrorCode | None:
        """Why records of a client are not appended here; None if they are."""
        if self.cluster is None:
            return None
        replica = self.cluster.replica_of(log)
        if replica is None:
            return ErrorCode.not_leader_or_follower
        return append_refusal(replica, acks)

    def led_in(self, log: PartitionLog) -> LeaderEpoch | None:
        """The epoch in which this broker leads; None without a cluster."""
        replica = self.replica_of(log)
        return None if replica is None or replica.leader is None else replica.leader.epoch

    def awaited_in(self, log: PartitionLog) -> LeaderEpoch | None:
        """As `led_in`, for who waits until records are committed; None if the log alone decides."""
        return None if self.cluster is None or self.cluster.is_alone else self.led_in(log)

    def leader_refusal(self, log: PartitionLog, leader_epoch: int) -> ErrorCode | None:
        """Why this broker does not answer as leader to one who knows `leader_epoch`; -1: any.

        Without a cluster, the epoch is the log's own.
        """
        if self.cluster is not None:
            replica = self.cluster.replica_of(log)
            if replica is None:
                return ErrorCode.not_leader_or_follower
            return leader_refusal(replica, leader_epoch)
        if leader_epoch < 0:
            return None
        latest = log.epochs.known.latest
        current = 0 if latest is None else latest.epoch
        if leader_epoch == current:
            return None
        if leader_epoch < current:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def reader_refusal(self, log: PartitionLog, leader_epoch: int) -> ErrorCode | None:
        """As `leader_refusal`, for a consumer that may read from a follower."""
        replica = None if self.cluster is None else self.cluster.replica_of(log)
        if replica is None:
            return self.leader_refusal(log, leader_epoch)
        return reader_refusal(replica, leader_epoch)

    def nearest_replica(
        self, log: PartitionLog, offset: int, rack: str, here: ClientListener
    ) -> int | None:
        """The broker that a consumer in `rack` should read from; None: this one. Data loop."""
        if self.cluster is None or not rack:
            return None
        replica = self.cluster.replica_of(log)
        if replica is None or replica.leader is None:
            return None
        return self.cluster.nearest_replica(replica.leader, Offset(offset), rack, here)

    def leader_hint(self, code: int, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        """Id and epoch of the leader, for an error that says that it is another (KIP-951)."""
        if self.cluster is None or code not in LEADER_ERRORS:
            return None
        return self.cluster.leader_of(wanted, partition)

    def addresses(
        self, leaders: Iterable[tuple[int, int] | None], here: ClientListener
    ) -> list[BrokerAddress]:
        """Where the clients of the listener `here` reach the brokers that are hinted at."""
        if self.cluster is None:
            return []
        node_ids = {leader[0] for leader in leaders if leader is not None}
        return self.cluster.addresses(node_ids, here) if node_ids else []


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A topic of a request, with its partitions. `name` is None if no topic has the id."""

    name: str | None
    topic_id: UUID
    numbers: Sequence[int]

    def place(self, number: int) -> tuple[str, int]:
        return self.name or "", number


def name_topics(
    view: ClusterView, topics: Iterable[AskedTopic], *, by_id: bool
) -> list[NamedTopic]:
    """The topics of a request with both name and id, in order."""
    found: list[NamedTopic] = []
    for name, topic_id, numbers in topics:
        topic = view.topic(topic_id if by_id else name)
        if by_id:
            known = None if topic is None else topic.name
            found.append(NamedTopic(name=known, topic_id=topic_id, numbers=numbers))
        else:
            known_id = NIL_UUID if topic is None else topic.topic_id
            found.append(NamedTopic(name=name, topic_id=known_id, numbers=numbers))
    return found
