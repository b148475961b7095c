"""Fetches for all followers of one leader: one request at a time, for all that are ready.

The next request waits until everything that came with the last one is appended and synced. A
request with only some of the followers would wait at the leader for new batches, and the others
would wait with it. So there are two exceptions:

* Followers that a limit holds up are left out (`replication_quota`). They are asked for again with
  the next request, or when there is room.
* A follower whose disk takes longer than `_PATIENCE_S` is late: a log that is truncated, a roll, a
  disk that stalls. The others go on without it. Their requests wait at the leader for a moment
  only, so it joins them soon after it is done.
"""

from collections.abc import Callable, Sequence
from typing import Final

from cordwood.cluster.replication.follower_role import FollowerRole, Phase
from cordwood.cluster.replication.replica_fetch import (
    FetchedPartition,
    PartitionPlace,
    ReplicaFetch,
)
from cordwood.cluster.replication.replication_ports import NodePorts, Timer

_PATIENCE_S: Final = 0.05  # many times what a sync takes
_LATE_WAIT_MS: Final = 50  # how long a request may wait at the leader while a follower is late


class ReplicaFetcher:
    """The fetches from one leader. Owned by `NodeReplicas` and called in its loop."""

    def __init__(self, node: NodePorts, leader: int) -> None:
        self.leader = leader
        self._node = node
        self._followers: dict[PartitionPlace, FollowerRole] = {}
        self._sent: dict[PartitionPlace, FollowerRole] | None = None
        self._is_taking = False
        self._is_closed = False
        self._room_timer: Timer | None = None  # while all that are ready are held up
        self._busy_timer: Timer | None = None  # while one that is ready waits for one that is busy
        self._late: set[FollowerRole] = set()  # busy for so long that the others do not wait

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, follower: FollowerRole) -> None:
        self._followers[follower.site.place] = follower
        self.go_on()

    def remove(self, follower: FollowerRole) -> None:
        if self._followers.get(follower.site.place) is follower:
            del self._followers[follower.site.place]
            self.go_on()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._await_no_room()
        self._await_none()

    def go_on(self) -> None:
        """Send the next request, if the last one is done with."""
        if self._sent is not None or self._is_taking or self._is_closed:
            return
        followers = self._followers.values()
        if any(f.phase is Phase.BUSY and f not in self._late for f in followers):
            self._await_busy()
            return
        self._await_none()
        self._late = {f for f in self._late if f.phase is Phase.BUSY and not f.is_over}
        waiting = {f.site.place: f for f in followers if f.phase is Phase.READY}
        ready = {place: f for place, f in waiting.items() if not f.is_held_up}
        self._await_no_room()
        if not ready:
            if waiting:
                self._await_room()
            return
        config = self._node.config
        fetch = ReplicaFetch(
            replica=self._node.node_id,
            broker_epoch=self._node.control.broker_epoch,
            positions=tuple(follower.position for follower in ready.values()),
            wait_max_ms=min(config.fetch_wait_max_ms, _LATE_WAIT_MS)
            if self._late
            else config.fetch_wait_max_ms,
            bytes_min=config.fetch_bytes_min,
            bytes_max=config.fetch_bytes_max,
            partition_bytes_max=config.partition_bytes_max,
        )
        self._sent = ready
        self._node.transport.fetch(self.leader, fetch, self._taker(ready))

    def _await_busy(self) -> None:
        """Be patient with those that are busy, from when the first of the others is ready."""
        followers = self._followers.values()
        if self._busy_timer is None and any(f.phase is Phase.READY for f in followers):
            self._busy_timer = self._node.scheduler.call_later(_PATIENCE_S, self._go_on_without)

    def _await_none(self) -> None:
        if self._busy_timer is not None:
            self._busy_timer.cancel()
            self._busy_timer = None

    def _go_on_without(self) -> None:
        """Those that are busy now have been for too long."""
        self._busy_timer = None
        self._late = {f for f in self._followers.values() if f.phase is Phase.BUSY}
        self.go_on()

    def _await_room(self) -> None:
        scheduler = self._node.scheduler
        wait_s = self._node.quotas.follower.wait_s(scheduler.now_s())
        self._room_timer = scheduler.call_later(wait_s, self.go_on)

    def _await_no_room(self) -> None:
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None

    def _taker(
        self, sent: dict[PartitionPlace, FollowerRole]
    ) -> Callable[[Sequence[FetchedPartition] | None], None]:
        def take(answers: Sequence[FetchedPartition] | None) -> None:
            if self._sent is not sent:
                return
            self._sent, self._is_taking = None, True
            try:
                answered = {} if answers is None else {each.place: each for each in answers}
                for place, follower in sent.items():
                    if answers is None or place in answered:
                        _give(follower, answered.get(place))
            finally:
                self._is_taking = False
            self.go_on()

        return take


def _give(follower: FollowerRole, answer: FetchedPartition | None) -> None:
    """One follower that fails must not keep the others from fetching, nor itself for ever."""
    try:
        follower.take(answer)
    except Exception as error:
        follower.fail(error)
