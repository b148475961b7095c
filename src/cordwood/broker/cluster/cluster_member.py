"""A broker as a member of a cluster: images in, replicas and answers about partitions out.

control loop   the control channel: images, heartbeats, ISR changes; the group coordinator
data loop      all roles of replicas, and the fetches of followers
threads        disk work: hosting (`hosted_logs`), jobs of replicas (`replica_disk`)
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol
from uuid import UUID

from cordwood.broker.cluster.broker_peers import BrokerPeers
from cordwood.broker.cluster.control.loop_control import LoopControl
from cordwood.broker.cluster.image_view import ImageView
from cordwood.broker.cluster.replicas.hosted_logs import HostedLogs
from cordwood.broker.cluster.replicas.replica_disk import ReplicaDisk
from cordwood.broker.cluster.replicas.replica_moves import ReplicaMoves
from cordwood.broker.cluster.replicas.replica_places import Assign, ReplicaPlaces
from cordwood.broker.cluster.replicas.replica_rebuilds import ReplicaRebuilds
from cordwood.broker.cluster.replicas.replica_transport import PeerTransport
from cordwood.broker.cluster.shard_leadership import ShardLeadership, ShardOwner
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import BrokerAddress
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.dynamic_keys import ConfigLayers
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.broker.observing.observed_broker import ClusterFacts
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.cluster.cluster_control import ClusterControl
from cordwood.cluster.control.fencing import fencing_reason
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.cluster.replication.leader_role import LeaderRole
from cordwood.cluster.replication.node_replicas import NodeReplicas
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.read_replica import nearest_follower
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicationConfig
from cordwood.cluster.replication.replication_quota import ReplicationQuotas
from cordwood.errors import ConfigError, CordwoodError, StorageError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import NO_LEADER_EPOCH, LeaderEpoch, Offset

logger = logging.getLogger(__name__)


class DirectoryFailed(Protocol):
    """Hears that a data directory has failed; `is_last`: no other is left."""

    def __call__(self, directory_id: UUID, error: CordwoodError, *, is_last: bool) -> None: ...


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
        when_disk_failed: DirectoryFailed,
        assign_directory: Assign,
        control_loop: EventLoop,
        data_loop: EventLoop,
        watch: LogWatch,
        syncs: DiskSyncs,
        follow_settings: Callable[[ConfigLayers], None] = lambda _layers: None,
        note_unsynced: Callable[[], None] = lambda: None,
        is_alone: bool = False,
    ) -> None:
        """`listener` is the one that brokers use among each other.

        `when_disk_failed` is called in the data loop, once for each data directory, after a write
        or a sync of a log failed: from then on this broker cannot say what is on that disk.
        `assign_directory` is called in the control loop. `follow_settings` gets what the
        controllers keep of brokers, in a thread of its own. There, too, `note_unsynced` is called
        before a topic counts records that are not on the disk; it may raise `OSError`.
        """
        self.is_alone = is_alone
        self._when_disk_failed = when_disk_failed
        self._node_id = node_id
        self.data_directories = frozenset(store.data_dirs)
        self._selects_by_rack = config.selects_by_rack
        self._session_timeout_ms = config.broker_session_timeout_ms
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
        self._copy_peers = self.peers_in(data_loop, "rebuild")
        self.rebuilds = ReplicaRebuilds(
            store.hosting.swaps,
            PeerTransport(
                self._copy_peers,
                node_id=node_id,
                topic_name=lambda place: self.view.name_of(place.topic_id),
            ),
            loop=data_loop,
            topic_name=self.view.name_of,
            when_replaced=self._replaced,
            when_failed=self.stopped,
        )
        self.moves = ReplicaMoves(
            store.hosting.swaps,
            loop=data_loop,
            topic_name=self.view.name_of,
            when_moved=self._replaced,
        )
        self._quotas = ReplicationQuotas()
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
                quotas=self._quotas,
                rebuild=self.rebuilds.want,
            ),
            when_moved=self._high_watermark_moved,
        )
        self.rebuilds.serve(self._replicas)
        self.moves.serve(self._replicas)
        self._places = ReplicaPlaces(
            directory_ids(store),
            node_id=node_id,
            assign=lambda *place: control_loop.call_soon(partial(assign_directory, *place)),
        )
        self.hosted = HostedLogs(
            store,
            self._replicas,
            node_id=node_id,
            loop=data_loop,
            watch=watch,
            log_moved=self._log_moved,
            places=self._places,
            follow_settings=follow_settings,
            note_unsynced=note_unsynced,
            keeps_strays=not is_alone,
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
        self.stopped_replicas: dict[PartitionPlace, LeaderEpoch] = {}  # and in which role
        self._watch_disks(store)

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

    def limit_replication(self, broker: BrokerConfig) -> None:
        """Have throttled replicas copied no faster than `broker` says. Any thread may call it."""
        self._quotas.leader.limit = broker.leader_replication_throttled_rate
        self._quotas.follower.limit = broker.follower_replication_throttled_rate
        self._quotas.moves.limit = broker.replica_alter_log_dirs_io_max_bytes_per_second

    @property
    def steps(self) -> int:
        """Grows for as long as `apply` makes progress on the disk. Any thread may ask."""
        return self.hosted.steps + self._disk.steps

    def apply(self, image: MetadataImage, when_hosted: Callable[[], None] | None = None) -> None:
        """A new image, which has this life of the broker. Called in the control loop.

        `when_hosted` is called there once everything that the image assigns is open, and is led
        if this broker leads it.
        """
        self._data.call_soon(partial(self._apply, image, when_hosted))

    def _apply(self, image: MetadataImage, when_hosted: Callable[[], None] | None) -> None:
        def hosted() -> None:
            assert when_hosted is not None
            self._disk.after_jobs(partial(self._home.call_soon, when_hosted))

        self.hosted.apply(image, None if when_hosted is None else hosted)
        self._forget_stopped()
        self.rebuilds.image_changed()
        self.moves.image_changed()
        self.groups.look_at_all()
        self.transactions.look_at_all()

    def end_roles(self) -> None:
        """Lead and follow no more. In the data loop, before the store closes."""
        self.rebuilds.stop()
        self.moves.stop()
        self._replicas.close()
        self._peers.close()
        self._copy_peers.close()

    def stop(self) -> None:
        """Finish disk work. Called when the loops have ended, from another thread."""
        self.hosted.stop()
        self._disk.stop()

    # --- replicas ----------------------------------------------------------------------------

    def paused(self, place: PartitionPlace, reason: str) -> None:
        """A replica could not take what its leader sent. Called by the machines."""
        name = self.view.name_of(place.topic_id) or place.topic_id
        logger.warning("the replica of %s-%d tries again: %s", name, place.partition, reason)

    def stopped(self, place: PartitionPlace, reason: str) -> None:
        """A replica needs help. Called by the machines."""
        replica = self._replicas.get(place)
        self.stopped_replicas[place] = NO_LEADER_EPOCH if replica is None else replica.leader_epoch
        name = self.view.name_of(place.topic_id) or place.topic_id
        logger.error("the replica of %s-%d stopped: %s", name, place.partition, reason)

    def _forget_stopped(self) -> None:
        """A replica that was moved away needs no help, and a new role begins again."""
        for place, epoch in list(self.stopped_replicas.items()):
            replica = self._replicas.get(place)
            if replica is None or replica.leader_epoch != epoch:
                del self.stopped_replicas[place]

    def _replaced(self, place: PartitionPlace, log: PartitionLog) -> None:
        """Another log took the place of a replica's."""
        self.stopped_replicas.pop(place, None)
        self.hosted.replaced(place, log)

    def _log_moved(self, replica: PartitionReplica) -> None:
        log = replica.site.log
        self._disk.log_moved(log)
        replica.log_moved()
        failure = log.state.failure
        if failure is not None:
            self._fail_directory(self._places.directory_of(log), failure)

    def _watch_disks(self, store: Store) -> None:
        """Hear of writes that fail, too: a log whose write failed has not failed itself."""

        def failed(path: str, error: OSError) -> None:
            reason = StorageError(f"data directory {path} is offline: {error}")
            self._data.call_soon(partial(self._fail_directory, path, reason))

        for directory in store.directories:
            directory.health.when_failed = partial(failed, directory.path)

    def _fail_directory(self, path: str, error: CordwoodError) -> None:
        directory_id = self.hosted.fail_directory(path)
        if directory_id is not None:
            self.moves.image_changed()  # those of the replicas that are gone end
            self.groups.look_at_all()
            self.transactions.look_at_all()
            self._when_disk_failed(directory_id, error, is_last=not self._places.has_any)

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
        image, now_s = self._control.image, self._data.now_s()
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
            fencing=fencing_reason(
                image,
                node_id=self._node_id,
                epoch=self._control.broker_epoch,
                is_silent=self._control.is_fenced_by_silence,
                session_timeout_ms=self._session_timeout_ms,
            ),
            isr_shrinks=self.control.isr_shrinks,
            isr_expands=self.control.isr_expands,
            leader_replication_rate=self._quotas.leader.rate(now_s),
            follower_replication_rate=self._quotas.follower.rate(now_s),
            move_rate=self._quotas.moves.rate(now_s),
        )

    # --- for produce and fetch ---------------------------------------------------------------

    def replica_of(self, log: PartitionLog) -> PartitionReplica | None:
        return self.hosted.replica_of(log)

    def await_deleted(
        self,
        log: PartitionLog,
        start: Offset,
        led_in: LeaderEpoch,
        timeout_s: float,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """See `ClusterPartitions`. Any thread may call it."""
        codes: list[ErrorCode] = []

        def settle(code: ErrorCode) -> None:
            if not codes:
                codes.append(code)
                done(code)

        def wait() -> None:
            replica = self.hosted.replica_of(log)
            if replica is None:
                settle(ErrorCode.not_leader_or_follower)
                return
            replica.await_deleted(
                start,
                led_in,
                lambda is_deleted: settle(
                    ErrorCode.none if is_deleted else ErrorCode.not_leader_or_follower
                ),
            )
            if not codes:
                self._data.call_later(timeout_s, partial(settle, ErrorCode.request_timed_out))

        self._data.call_soon(wait)

    def place_of(self, topic: str, partition: int) -> PartitionPlace | None:
        """The partition, if this broker has a replica of it. Any thread may ask."""
        found = self._control.image.topic(topic)
        image = None if found is None else found.partitions.get(partition)
        if found is None or image is None or self._node_id not in image.replicas:
            return None
        return PartitionPlace(found.topic_id, partition)

    def name_of(self, topic_id: UUID) -> str | None:
        return self.view.name_of(topic_id)

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        return self.view.why_absent(wanted, partition)

    def leader_of(self, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        return self.view.leader_of(wanted, partition)

    def nearest_replica(
        self, leader: LeaderRole, offset: Offset, rack: str, here: ClientListener
    ) -> int | None:
        if not self._selects_by_rack:
            return None
        return nearest_follower(leader, offset, rack, lambda each: self.view.rack_of(each, here))

    def addresses(self, node_ids: Collection[int], here: ClientListener) -> list[BrokerAddress]:
        return self.view.addresses(node_ids, here)


def directory_ids(store: Store) -> dict[str, UUID]:
    """The ids of the data directories that can be used, by path. Raises `ConfigError`."""
    found: dict[str, UUID] = {}
    for directory in store.directories:
        meta = directory.meta
        if meta is None or meta.directory_id is None:
            raise ConfigError("log.dirs", directory.path, "has no directory.id: format it again")
        found[directory.path] = meta.directory_id
    if len(set(found.values())) < len(found):
        raise ConfigError(
            "log.dirs",
            ",".join(found),
            "two directories have the same directory.id: one is a copy of the other",
        )
    return found


def replication_config(config: ClusterConfig) -> ReplicationConfig:
    return ReplicationConfig(
        lag_max_ms=config.replica_lag_time_max_ms,
        fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        fetch_bytes_min=config.replica_fetch_min_bytes,
        partition_bytes_max=config.replica_fetch_max_bytes,
        fetch_bytes_max=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )
