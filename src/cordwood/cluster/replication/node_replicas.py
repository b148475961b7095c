"""All replicas of one node: images in, roles and fetches out.

An image counts only if it has this life of the broker: an older one may still name this node as
the leader of an epoch of its last life, and then two lives would write in one epoch.
"""

from collections.abc import Callable, Iterator, Mapping

from cordwood.cluster.image.broker_image import BrokerImage
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.replication.follower_role import FollowerRole
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.cluster.replication.replica_fetcher import ReplicaFetcher
from cordwood.cluster.replication.replication_ports import NodePorts, ReplicaSite, Timer
from cordwood.log.partition.partition_log import PartitionLog


def assigned_places(image: MetadataImage, node_id: int) -> Iterator[PartitionPlace]:
    """The partitions that `node_id` has a replica of."""
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            if node_id in partition.replicas:
                yield PartitionPlace(topic_id, number)


class NodeReplicas:
    """Owned by the broker, or by the simulator; every method is called in one loop.

    The owner opens logs with the role `AMONG_OTHERS`, gives them to `host`, and gives every new
    image to `apply`. It calls `log_moved` after a log's watcher was called.
    """

    def __init__(
        self,
        node: NodePorts,
        *,
        when_moved: Callable[[PartitionReplica], None] = lambda _replica: None,
    ) -> None:
        self._node = node
        self._when_moved = when_moved
        self._replicas: dict[PartitionPlace, PartitionReplica] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._fetched_by: dict[FollowerRole, ReplicaFetcher] = {}
        self._image = NO_METADATA
        self._lag_timer: Timer | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[PartitionReplica]:
        return iter(self._replicas.values())

    def get(self, place: PartitionPlace) -> PartitionReplica | None:
        return self._replicas.get(place)

    def start(self) -> None:
        """Look at the lag of followers from time to time."""
        if not self._is_closed:
            period_s = self._node.config.lag_max_ms / 2000
            self._lag_timer = self._node.scheduler.call_later(period_s, self._check_lag)

    # --- replicas ----------------------------------------------------------------------------

    def host(self, place: PartitionPlace, log: PartitionLog) -> PartitionReplica:
        """Add a replica whose log was opened; its role comes from the image that was applied."""
        assert place not in self._replicas, place
        replica = PartitionReplica(
            ReplicaSite(place=place, log=log, node=self._node),
            brokers=self._brokers,
            follower_changed=self._follower_changed,
            when_moved=self._when_moved,
        )
        self._replicas[place] = replica
        image = self._image.partition(*place)
        if image is not None:
            replica.apply(image)
        return replica

    def drop(self, place: PartitionPlace) -> None:
        """Forget a replica: it was moved away, or its topic deleted. The log stays open."""
        replica = self._replicas.pop(place, None)
        if replica is not None:
            replica.close()

    def close(self) -> None:
        """Give up every role. Nothing is synced."""
        self._is_closed = True
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()
        for place in list(self._replicas):
            self.drop(place)

    # --- events ------------------------------------------------------------------------------

    def apply(self, image: MetadataImage) -> None:
        """Apply an image to every replica, unless it is older than this life of the broker."""
        own = image.brokers.get(self._node.node_id)
        if own is None or own.epoch != self._node.control.broker_epoch:
            return
        if image.end < self._image.end:
            return
        before, self._image = self._image, image
        for place, replica in list(self._replicas.items()):
            topic = image.topics.get(place.topic_id)
            if topic is None or topic is before.topics.get(place.topic_id):
                continue
            partition = topic.partitions.get(place.partition)
            if partition is not None:
                replica.apply(partition)

    def log_moved(self, place: PartitionPlace) -> None:
        """The log grew, or more of it is on the disk."""
        replica = self._replicas.get(place)
        if replica is not None:
            replica.log_moved()

    def _brokers(self) -> Mapping[int, BrokerImage]:
        return self._image.brokers

    def _check_lag(self) -> None:
        self.start()  # first: whatever goes wrong with one replica, the next look follows
        for replica in list(self._replicas.values()):
            if replica.leader is not None:
                replica.leader.check_lag()

    def _follower_changed(self, follower: FollowerRole) -> None:
        fetcher = self._fetched_by.get(follower)
        if follower.is_over:
            if fetcher is not None:
                del self._fetched_by[follower]
                fetcher.remove(follower)
                if not len(fetcher):
                    self._fetchers.pop(fetcher.leader, None)
        elif fetcher is not None:
            fetcher.go_on()
        else:
            fetcher = self._fetchers.setdefault(
                follower.leader, ReplicaFetcher(self._node, follower.leader)
            )
            self._fetched_by[follower] = fetcher
            fetcher.add(follower)
