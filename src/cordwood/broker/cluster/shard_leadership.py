"""Which partitions of a coordinator's topic this broker leads, told to the coordinator.

Groups are coordinated by the leaders of ``__consumer_offsets``, transactions by those of
``__transaction_state``.

A partition is ready to be coordinated when its leader knows what earlier leaders committed: then
the high watermark has passed the start of its epoch, and everything below it can be loaded. Any
other epoch ends that, before the new role does anything.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import ReplicaError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset


class ShardOwner(Protocol):
    """A coordinator. Called in the control loop."""

    def begin_shard(self, number: int, epoch: LeaderEpoch) -> None: ...

    def end_shard(self, number: int) -> None: ...


class ShardLeadership:
    """Belongs to the data loop; any thread may call `refusal` and `await_committed`."""

    def __init__(
        self,
        topic: str,
        replica_at: Callable[[int], PartitionReplica | None],
        *,
        data: EventLoop,
        control: EventLoop,
        request_sync: Callable[[PartitionLog], None],
    ) -> None:
        """`replica_at` gives this broker's replica of a partition of the topic."""
        self._topic = topic
        self._request_sync = request_sync
        self._replica_at = replica_at
        self._data = data
        self._control = control
        self._owner: ShardOwner | None = None
        self._told: dict[int, LeaderEpoch] = {}

    def serve(self, owner: ShardOwner) -> None:
        """Tell `owner` from here on. Called once, in the data loop."""
        self._owner = owner

    def look(self, replica: PartitionReplica) -> None:
        """A replica may have another role, or know more. Of other topics: nothing is done."""
        log = replica.site.log
        if self._owner is None or log.topic != self._topic:
            return
        leader = replica.leader
        epoch = None
        if leader is not None and not leader.is_over and leader.knows_committed_end:
            epoch = leader.epoch
        self._tell(self._owner, log.partition, epoch)

    def look_at_all(self) -> None:
        """An image was applied: roles may have ended, and replicas may be gone."""
        owner = self._owner
        if owner is None:
            return
        for number in list(self._told):
            replica = self._replica_at(number)
            if replica is None:
                self._tell(owner, number, None)
            else:
                self.look(replica)

    def _tell(self, owner: ShardOwner, number: int, epoch: LeaderEpoch | None) -> None:
        told = self._told.get(number)
        if epoch == told:
            return
        if epoch is None:
            del self._told[number]
            self._control.call_soon(lambda: owner.end_shard(number))
        else:
            self._told[number] = epoch
            self._control.call_soon(lambda: owner.begin_shard(number, epoch))

    # --- commitments -------------------------------------------------------------------------

    def refusal(self, partition: int, led_in: LeaderEpoch) -> ErrorCode | None:
        """Why records are not appended: another leadership began, or too few are in sync."""
        replica = self._replica_at(partition)
        leader = None if replica is None else replica.leader
        if leader is None or leader.epoch != led_in:
            return ErrorCode.not_coordinator
        refused = leader.produce_refusal(is_acks_all=True)
        if refused is None:
            return None
        if refused is ReplicaError.NOT_ENOUGH_REPLICAS:
            return ErrorCode.coordinator_not_available
        return ErrorCode.not_coordinator

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        """True once records below `end` are committed; False if the leadership ends before."""
        future: Future[bool] = Future()

        def done(is_committed: bool) -> None:
            if not future.done():
                future.set_result(is_committed)

        def wait() -> None:
            replica = self._replica_at(partition)
            if replica is None:
                done(False)
                return
            log = replica.site.log
            if not log.promises.is_kept(end):
                self._request_sync(log)
            replica.await_committed(end, led_in, done)

        self._data.call_soon(wait)
        return future
