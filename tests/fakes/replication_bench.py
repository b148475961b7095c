"""One node of a cluster by hand: its log is real, its ports do what the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from cordwood.cluster.cluster_control import IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.broker_image import BrokerImage
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    FetchPosition,
    FollowerRead,
    LogBounds,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicationConfig
from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log

TOPIC_ID = UUID(int=7)
PLACE = PartitionPlace(TOPIC_ID, 0)
ME = 1


def partition(
    leader: int,
    epoch: int,
    *,
    in_sync: tuple[int, ...] = (1, 2, 3),
    version: int | None = None,
    **fields: Any,
) -> PartitionImage:
    """Replicas 1, 2, 3; the partition epoch is that of the leader unless `version` is given."""
    return PartitionImage(
        **{
            "replicas": (1, 2, 3),
            "in_sync": in_sync,
            "leader": leader,
            "leader_epoch": LeaderEpoch(epoch),
            "partition_epoch": epoch * 10 if version is None else version,
            **fields,
        }
    )


class ReplicationBench:
    """Node 1 of three. All ports are this object."""

    def __init__(self, config: dict[str, object] | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.scheduler = ManualScheduler(self.clock)
        self.fs = SimulatedFileSystem(clock=self.clock)
        settings: dict[str, object] = {"min.insync.replicas": 2, **(config or {})}
        self.store, self.log = new_log(self.fs, settings, clock=self.clock, role=AMONG_OTHERS)
        self.broker_epoch = 100
        self.is_fenced_by_silence = False
        self.brokers = {
            node: BrokerImage(
                node_id=node,
                epoch=node * 100,
                incarnation=UUID(int=node),
                endpoints=(),
                is_fenced=False,
            )
            for node in (1, 2, 3)
        }
        self.image = MetadataImage()
        self.asked: list[tuple[IsrChange, Callable[[IsrOutcome], None]]] = []
        self.fetches: list[tuple[int, ReplicaFetch, Callable[[Any], None]]] = []
        self.queries: list[Callable[[LogBounds | None], None]] = []
        self.reasons: list[str] = []
        self.troubles: list[str] = []
        self.waiting_jobs: list[Callable[[], None]] | None = None  # None: jobs run at once
        self.replicas = NodeReplicas(
            NodePorts(
                node_id=ME,
                control=self,
                disk=self,
                transport=self,
                scheduler=self.scheduler,
                listener=self,
                config=ReplicationConfig(lag_max_ms=1000, backoff_ms=100),
            )
        )
        self.replica: PartitionReplica = self.replicas.host(PLACE, self.log)

    # --- what a test does ------------------------------------------------------------------------

    def apply(self, image: PartitionImage) -> None:
        """The controllers have decided."""
        self.image = replace(
            self.image,
            end=Offset(self.image.end + 1),
            brokers=dict(self.brokers),
            topics={TOPIC_ID: TopicImage(name="events", topic_id=TOPIC_ID, partitions={0: image})},
        )
        self.replicas.apply(self.image)

    def lead(self, epoch: int = 1, **fields: Any) -> None:
        self.apply(partition(ME, epoch, **fields))

    def follow(self, epoch: int = 1, **fields: Any) -> None:
        self.apply(partition(2, epoch, **fields))

    def append(self, *values: bytes, sync: bool = True) -> Offset:
        """As a client with acks=all; returns the end."""
        leader = self.replica.leader
        assert leader is not None
        appended = self.log.batches.append_batch(
            client_batch(*values), wait=False, led_in=leader.epoch
        )
        if sync:
            self.sync_log()
        return Offset(appended.last_offset + 1)

    def note_room(self, *, is_short: bool) -> None:
        """The free bytes of the disk were counted."""
        self.log._holder.health.note_room(is_short=is_short, free_bytes_min=1_000)

    def sync_log(self) -> None:
        self.log.syncing.sync_pending()
        self.replicas.log_moved(PLACE)

    def fetch_from(
        self,
        node: int,
        offset: int,
        *,
        epoch: int = 1,
        last_epoch: int = -1,
        life: int | None = None,
        log_start: int = 0,
        is_again: bool = False,
    ) -> FollowerRead:
        """Node 2 or 3 fetches from this leader."""
        asked = FetchPosition(
            place=PLACE,
            leader_epoch=LeaderEpoch(epoch),
            offset=Offset(offset),
            last_epoch=LeaderEpoch(last_epoch),
            log_start=Offset(log_start),
            high_watermark=Offset(0),
        )
        return self.replica.fetch(
            asked,
            replica=node,
            broker_epoch=node * 100 if life is None else life,
            bytes_max=1 << 20,
            is_again=is_again,
        )

    def answer_fetch(self, **fields: Any) -> None:
        """The leader answers the fetch under way."""
        _, _, when_done = self.fetches.pop()
        when_done([FetchedPartition(**{"place": PLACE, **fields})])

    def answer_isr(self, answer: IsrAnswer, **fields: Any) -> None:
        self.asked.pop(0)[1](IsrOutcome(answer=answer, **fields))

    @property
    def position(self) -> FetchPosition:
        """What the fetch under way asks for."""
        return self.fetches[-1][1].positions[0]

    def run_jobs(self) -> None:
        jobs, self.waiting_jobs = self.waiting_jobs or [], None
        for job in jobs:
            job()

    # --- the ports -------------------------------------------------------------------------------

    def run(
        self, log: PartitionLog, job: Callable[[], Any], when_done: Callable[[Any], None]
    ) -> None:
        def work() -> None:
            try:
                result = job()
            except (OSError, CordwoodError) as error:
                when_done(error)
            else:
                when_done(result)

        if self.waiting_jobs is None:
            work()
        else:
            self.waiting_jobs.append(work)

    def sync(self, log: PartitionLog, when_done: Callable[[], None]) -> None:
        self.run(log, log.syncing.sync_pending, lambda _none: when_done())

    def fetch(
        self,
        leader: int,
        fetch: ReplicaFetch,
        when_done: Callable[[Sequence[FetchedPartition] | None], None],
    ) -> None:
        self.fetches.append((leader, fetch, when_done))

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None:
        self.queries.append(when_done)

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        self.asked.append((change, when_done))

    def paused(self, place: PartitionPlace, reason: str) -> None:
        self.troubles.append(reason)

    def stopped(self, place: PartitionPlace, reason: str) -> None:
        self.reasons.append(reason)
