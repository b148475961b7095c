"""The port to the partitions of a cluster, as produce and fetch need it.

A broker that is alone has no such port: it leads every partition, and asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset

if TYPE_CHECKING:  # a broker that is alone does not load it
    from cordwood.cluster.replication.leader_role import LeaderRole
    from cordwood.cluster.replication.partition_replica import PartitionReplica

_ACKS_ALL: Final = -1


class ClusterPartitions(Protocol):
    """Where the partitions of the cluster are. Any thread may ask.

    `is_alone`: no partition has a second replica, so what a log promises is all there is to wait
    for.
    """

    @property
    def is_alone(self) -> bool: ...

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        """The replica whose log it is; None: it is being made or taken away."""
        ...

    def await_deleted(
        self,
        log: PartitionLog,
        start: Offset,
        led_in: LeaderEpoch,
        timeout_s: float,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Wait until no record below `start` can come back, whichever broker leads next.

        `done` is called once, in the data loop: with `none`, or with why nobody knows.
        """
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic of that id, wherever its partitions are."""
        ...

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        """Why there is no log of that partition here."""
        ...

    def leader_of(self, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        """The id and the epoch of the leader; None if there is none."""
        ...

    def nearest_replica(
        self, leader: LeaderRole, offset: Offset, rack: str, here: ClientListener
    ) -> int | None:
        """The follower that a consumer in `rack` should read from; None: the leader. Data loop."""
        ...

    def addresses(self, node_ids: Collection[int], here: ClientListener) -> list[BrokerAddress]:
        """Where the clients of the listener `here` reach these brokers."""
        ...


class AppendedEnd(NamedTuple):
    """Records of a client were appended to `log`, and end at `end`.

    `led_in` is the epoch of the leadership in which that was; None if the log has no replicas.
    """

    log: PartitionLog
    end: Offset
    led_in: LeaderEpoch | None = None


class Fetcher(NamedTuple):
    """The broker that fetches as a follower, and its epoch, which tells its lives apart."""

    node_id: int
    broker_epoch: int


def leader_refusal(replica: PartitionReplica, epoch: int) -> ErrorCode | None:
    """Why a replica does not answer as the leader to one who knows `epoch`; -1: any epoch."""
    leader = replica.leader
    known = replica.leader_epoch
    if 0 <= epoch < known:
        return ErrorCode.fenced_leader_epoch
    if epoch > known:
        return ErrorCode.unknown_leader_epoch
    if leader is None or leader.is_over or leader.site.node.control.is_fenced_by_silence:
        return ErrorCode.not_leader_or_follower
    return None


def reader_refusal(replica: PartitionReplica, epoch: int) -> ErrorCode | None:
    """Why a replica does not answer a consumer: it neither leads nor follows (KIP-392)."""
    refused = leader_refusal(replica, epoch)
    follower = replica.follower
    if (
        refused is ErrorCode.not_leader_or_follower
        and follower is not None
        and follower.stop_reason is None
        and replica.site.log.replica.damaged_from is None
    ):
        return None
    return refused


def append_refusal(replica: PartitionReplica, acks: int) -> ErrorCode | None:
    """Why records of a client are not appended: it does not lead, or too few are in sync."""
    leader = replica.leader
    if leader is None:
        return ErrorCode.not_leader_or_follower
    refusal = leader.produce_refusal(is_acks_all=acks == _ACKS_ALL)
    return None if refusal is None else ErrorCode(refusal)


def committed_refusal(replica: PartitionReplica) -> ErrorCode | None:
    """What is wrong although the high watermark has passed records of acks = all."""
    leader = replica.leader
    if leader is not None and leader.is_under_min_isr:
        return ErrorCode.not_enough_replicas_after_append
    return None
