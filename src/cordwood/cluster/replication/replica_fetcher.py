"""Fetches for all followers of one leader: one request at a time, for all that are ready.

The next request waits until everything that came with the last one is appended and synced. A
request with only some of the followers would wait at the leader for new batches, and the others
would wait with it.
"""

from collections.abc import Callable, Sequence

from cordwood.cluster.replication.follower_role import FollowerRole, Phase
from cordwood.cluster.replication.replica_fetch import (
    FetchedPartition,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replication_ports import NodePorts


class ReplicaFetcher:
    """The fetches from one leader. Owned by `NodeReplicas` and called in its loop."""

    def __init__(self, node: NodePorts, leader: int) -> None:
        self.leader = leader
        self._node = node
        self._followers: dict[PartitionPlace, FollowerRole] = {}
        self._sent: dict[PartitionPlace, FollowerRole] | None = None
        self._is_sending = False

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, follower: FollowerRole) -> None:
        self._followers[follower.site.place] = follower
        self.go_on()

    def remove(self, follower: FollowerRole) -> None:
        if self._followers.get(follower.site.place) is follower:
            del self._followers[follower.site.place]
            self.go_on()

    def go_on(self) -> None:
        """Send the next request, if the last one is done with."""
        if self._sent is not None or self._is_sending:
            return
        followers = self._followers.values()
        if any(follower.phase is Phase.BUSY for follower in followers):
            return
        ready = {f.site.place: f for f in followers if f.phase is Phase.READY}
        if not ready:
            return
        config = self._node.config
        fetch = ReplicaFetch(
            replica=self._node.node_id,
            broker_epoch=self._node.control.broker_epoch,
            positions=tuple(follower.position for follower in ready.values()),
            wait_max_ms=config.fetch_wait_max_ms,
            bytes_min=config.fetch_bytes_min,
            bytes_max=config.fetch_bytes_max,
            partition_bytes_max=config.partition_bytes_max,
        )
        self._sent = ready
        self._node.transport.fetch(self.leader, fetch, self._taker(ready))

    def _taker(
        self, sent: dict[PartitionPlace, FollowerRole]
    ) -> Callable[[Sequence[FetchedPartition] | None], None]:
        def take(answers: Sequence[FetchedPartition] | None) -> None:
            if self._sent is not sent:
                return
            self._sent, self._is_sending = None, True
            try:
                answered = {} if answers is None else {each.place: each for each in answers}
                for place, follower in sent.items():
                    if answers is None or place in answered:
                        follower.take(answered.get(place))
            finally:
                self._is_sending = False
            self.go_on()

        return take
