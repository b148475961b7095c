"""The partitions of a cluster that has one: the one of a `ReplicationBench`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress
from cordwood.cluster.replication.leader_role import LeaderRole
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.read_replica import nearest_follower
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset
from fakes.replication_bench import ReplicationBench

RACKS = {1: "a", 2: "b", 3: "c"}


class BenchCluster:
    """Finds the one replica of a bench."""

    is_alone = False

    def __init__(self, bench: ReplicationBench) -> None:
        self._bench = bench

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        return self._bench.replica

    def await_deleted(
        self,
        log: PartitionLog,
        start: Offset,
        led_in: LeaderEpoch,
        timeout_s: float,
        done: Callable[[ErrorCode], None],
    ) -> None:
        self._bench.replica.await_deleted(
            start,
            led_in,
            lambda is_deleted: done(
                ErrorCode.none if is_deleted else ErrorCode.not_leader_or_follower
            ),
        )

    def name_of(self, topic_id: UUID) -> str | None:
        return None

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        return ErrorCode.unknown_topic_or_partition

    def leader_of(self, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        return 2, 1

    def nearest_replica(
        self, leader: LeaderRole, offset: Offset, rack: str, here: ClientListener
    ) -> int | None:
        return nearest_follower(leader, offset, rack, RACKS.get)

    def addresses(self, node_ids: Collection[int], here: ClientListener) -> list[BrokerAddress]:
        return []
