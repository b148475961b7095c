"""A broker as a member of a cluster: images in, replicas and answers about partitions out.

control loop   the control channel: images, heartbeats, ISR changes; the group coordinator
data loop      all roles of replicas, and the fetches of followers
threads        disk work: hosting (`hosted_logs`), jobs of replicas (`replica_disk`)
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

from cordwood.broker.cluster.broker_peers import BrokerPeers
from cordwood.broker.cluster.hosted_logs import HostedLogs
from cordwood.broker.cluster.image_view import ImageView
from cordwood.broker.cluster.loop_control import LoopControl
from cordwood.broker.cluster.replica_disk import ReplicaDisk
from cordwood.broker.cluster.replica_transport import PeerTransport
from cordwood.broker.cluster.shard_leadership import ShardLeadership, ShardOwner
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.net.outbound_connection import Target
from cordwood.broker.observing.observed_broker import ClusterFacts
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.cluster.cluster_control import ClusterControl
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicationConfig
from cordwood.errors import CordwoodError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.protocol.error_code import ErrorCode

logger = logging.getLogger(__name__)


class ClusterMember:
    """Assembled by the broker. It is a `ClusterPartitions` for produce and fetch."""

    def __init__(
        self,
        *,
        store: Store,
        config: ClusterConfig,
        node_id: int,
        listener: str,
        control: ClusterControl,
        target_of: Callable[[Endpoint], Target],
        want_topic: Callable[[str], None],
        when_disk_failed: Callable[[CordwoodError], None],
        control_loop: EventLoop,
        data_loop: EventLoop,
        watch: LogWatch,
        syncs: DiskSyncs,
        is_alone: bool = False,
    ) -> None:
        """`listener` is the one that brokers use among each other.

        `when_disk_failed` is called in the data loop, once, after a write or a sync of a log
        failed: from then on this broker cannot say what is on its disk.
        """
        self.is_alone = is_alone
        self._when_disk_failed = when_disk_failed
        self._has_failed = False
        self._node_id = node_id
        self._control = control
        self._home = control_loop
        self._data = data_loop
        self.view = ImageView(
            node_id=node_id,
            cluster_id=store.cluster_id,
            image=lambda: control.image,
            want_topic=want_topic,
        )
        self.control = LoopControl(control, home=control_loop, data=data_loop)
        self._make_peers = partial(
            BrokerPeers, image=lambda: control.image, listener=listener, target_of=target_of
        )
        self._peers = self.peers_in(data_loop, "fetcher")
        self._disk = ReplicaDisk(data_loop, syncs, after_job=self._after_job)
        self._replicas = NodeReplicas(
            NodePorts(
                node_id=node_id,
                control=self.control,
                disk=self._disk,
                transport=PeerTransport(
                    self._peers,
                    node_id=node_id,
                    topic_name=lambda place: self.view.name_of(place.topic_id),
                ),
                scheduler=data_loop,
                listener=self,
                config=replication_config(config),
            ),
            when_moved=self._high_watermark_moved,
        )
        self.hosted = HostedLogs(
            store,
            self._replicas,
            node_id=node_id,
            loop=data_loop,
            watch=watch,
            log_moved=self._log_moved,
        )
        self.groups, self.transactions = (
            ShardLeadership(
                topic,
                partial(self._replica_at, topic),
                data=data_loop,
                control=control_loop,
                request_sync=syncs.request,
            )
            for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
        )
        self.stopped_replicas: dict[PartitionPlace, str] = {}

    # --- life --------------------------------------------------------------------------------

    def peers_in(self, loop: EventLoop, purpose: str) -> BrokerPeers:
        """Connections of their own to the other brokers, for one loop and one purpose."""
        return self._make_peers(loop, client_id=f"broker-{self._node_id}-{purpose}")

    def start(self, groups: ShardOwner, transactions: ShardOwner) -> None:
        """Begin, once the loops run. The coordinators learn what they coordinate."""

        def begin() -> None:
            self._replicas.start()
            self.groups.serve(groups)
            self.transactions.serve(transactions)

        self._data.call_soon(begin)

    def apply(self, image: MetadataImage, when_hosted: Callable[[], None] | None = None) -> None:
        """A new image, which has this life of the broker. Called in the control loop.

        `when_hosted` is called there once everything that the image assigns is open.
        """
        self._data.call_soon(partial(self._apply, image, when_hosted))

    def _apply(self, image: MetadataImage, when_hosted: Callable[[], None] | None) -> None:
        def hosted() -> None:
            assert when_hosted is not None
            self._home.call_soon(when_hosted)

        self.hosted.apply(image, None if when_hosted is None else hosted)
        self.groups.look_at_all()
        self.transactions.look_at_all()

    def end_roles(self) -> None:
        """Lead and follow no more. In the data loop, before the store closes."""
        self._replicas.close()
        self._peers.close()

    def stop(self) -> None:
        """Finish disk work. Called when the loops have ended, from another thread."""
        self.hosted.stop()
        self._disk.stop()

    # --- replicas ----------------------------------------------------------------------------

    def stopped(self, place: PartitionPlace, reason: str) -> None:
        """A replica needs help. Called by the machines."""
        self.stopped_replicas[place] = reason
        name = self.view.name_of(place.topic_id) or place.topic_id
        logger.error("the replica of %s-%d stopped: %s", name, place.partition, reason)

    def _log_moved(self, replica: PartitionReplica) -> None:
        log = replica.site.log
        self._disk.log_moved(log)
        replica.log_moved()
        failure = log.state.failure
        if failure is not None and not self._has_failed:
            self._has_failed = True
            self._when_disk_failed(failure)

    def _high_watermark_moved(self, replica: PartitionReplica) -> None:
        self.groups.look(replica)
        self.transactions.look(replica)

    def _after_job(self, log: PartitionLog) -> None:
        replica = self.hosted.replica_of(log)
        if replica is not None:
            self._high_watermark_moved(replica)

    def _replica_at(self, name: str, number: int) -> PartitionReplica | None:
        topic = self._control.image.topic(name)
        if topic is None:
            return None
        return self._replicas.get(PartitionPlace(topic.topic_id, number))

    def partition_count(self, name: str) -> int | None:
        """Of a topic; None while it does not exist. Any thread may ask."""
        topic = self._control.image.topic(name)
        return None if topic is None else len(topic.partitions)

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def is_fenced_by_silence(self) -> bool:
        """Whether the controllers may have given its leaderships to others. Any thread."""
        return self._control.is_fenced_by_silence

    def facts(self) -> ClusterFacts:
        """For metrics. Any thread may call it."""
        replicas = self.hosted.replicas()
        leaders = [leader for replica in replicas if (leader := replica.leader) is not None]
        image = self._control.image
        return ClusterFacts(
            partitions=len(replicas),
            leaders=len(leaders),
            under_replicated=sum(leader.is_under_replicated for leader in leaders),
            under_min_isr=sum(leader.is_under_min_isr for leader in leaders),
            offline=sum(
                not partition.has_leader
                for topic in image.topics.values()
                for partition in topic.partitions.values()
            ),
            stopped=len(self.stopped_replicas),
            is_fenced=self._is_fenced(image),
            isr_shrinks=self.control.isr_shrinks,
            isr_expands=self.control.isr_expands,
        )

    def _is_fenced(self, image: MetadataImage) -> bool:
        own = image.brokers.get(self._node_id)
        return (
            own is None
            or own.epoch != self._control.broker_epoch
            or own.is_fenced
            or self._control.is_fenced_by_silence
        )

    # --- for produce and fetch ---------------------------------------------------------------

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        return self.hosted.replica_of(log)

    def name_of(self, topic_id: UUID) -> str | None:
        return self.view.name_of(topic_id)

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        return self.view.why_absent(wanted, partition)

    def leader_of(self, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        return self.view.leader_of(wanted, partition)

    def addresses(self, node_ids: Collection[int], here: ClientListener) -> list[BrokerAddress]:
        return self.view.addresses(node_ids, here)


def replication_config(config: ClusterConfig) -> ReplicationConfig:
    return ReplicationConfig(
        lag_max_ms=config.replica_lag_time_max_ms,
        fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        fetch_bytes_min=config.replica_fetch_min_bytes,
        partition_bytes_max=config.replica_fetch_max_bytes,
        fetch_bytes_max=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )
