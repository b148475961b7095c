"""One replica of a partition on this node: which role it has, as the newest image says.

Images are ordered by the partition epoch. A role is of one leader epoch: with a greater epoch the
role before it ends, whatever the new one is, even if the leader stays the same. Nothing that was
begun for the old role goes on: waits are refused, and the log refuses late jobs (`replica_log`).
"""

from collections.abc import Callable

from cordwood.cluster.image.partition_image import NO_LEADER, LeaderRecovery, PartitionImage
from cordwood.cluster.replication.commit_waits import WhenCommitted
from cordwood.cluster.replication.follower_role import FollowerRole
from cordwood.cluster.replication.leader_role import BrokersNow, LeaderRole
from cordwood.cluster.replication.replica_fetch import (
    FetchPosition,
    FollowerRead,
    LogBounds,
    ReplicaError,
)
from cordwood.cluster.replication.replication_ports import ReplicaSite
from cordwood.errors import DiskFullError, RoleChangedError
from cordwood.quantities import NO_LEADER_EPOCH, LeaderEpoch, Offset
from cordwood.storage.disk.disk_errors import FULL_DISK_ERRNOS

FollowerChanged = Callable[[FollowerRole], None]


class PartitionReplica:
    """Owned by `NodeReplicas` and called in its loop.

    leader       the leadership, once the log leads; None while another broker leads
    follower     how it follows; None while it leads, or nobody does
    image        the newest image that was applied; None before the first
    """

    def __init__(
        self,
        site: ReplicaSite,
        *,
        brokers: BrokersNow,
        follower_changed: FollowerChanged,
        when_moved: Callable[["PartitionReplica"], None] = lambda _replica: None,
    ) -> None:
        self.site = site
        self.leader: LeaderRole | None = None
        self.follower: FollowerRole | None = None
        self.image: PartitionImage | None = None
        self._brokers = brokers
        self._follower_changed = follower_changed
        self._when_moved = when_moved
        self._is_closed = False
        self._is_set_aside = False
        self._paused_epoch = NO_LEADER_EPOCH  # in which it was said that the disk is full

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return NO_LEADER_EPOCH if self.image is None else self.image.leader_epoch

    # --- images ------------------------------------------------------------------------------

    def apply(self, image: PartitionImage) -> None:
        """Do what `image` says, unless a newer one was applied."""
        old = self.image
        if self._is_closed or (
            old is not None
            and (
                image.partition_epoch <= old.partition_epoch
                or image.leader_epoch < old.leader_epoch
            )
        ):
            return
        self.image = image
        node_id = self.site.node.node_id
        is_same_role = (
            old is not None
            and old.leader_epoch == image.leader_epoch
            and (node_id in old.replicas) == (node_id in image.replicas)
        )
        if not is_same_role:
            self._change_role(image)
        elif self.leader is not None:
            self.leader.update(image)
        elif self.follower is not None:
            self.follower.may_lose |= image.recovery is LeaderRecovery.RECOVERING
            self.follower.is_in_sync = node_id in image.in_sync

    def _change_role(self, image: PartitionImage) -> None:
        self._end_role()
        node_id, epoch = self.site.node.node_id, image.leader_epoch
        log = self.site.log
        if node_id in image.replicas and image.leader == node_id:
            log.replica.follow(LeaderEpoch(epoch - 1))  # appends end now, whatever the disk does
            if not self._is_set_aside:
                self._lead(image)
            return
        log.replica.follow(epoch)
        if node_id not in image.replicas or image.leader == NO_LEADER or self._is_set_aside:
            return
        self.follower = FollowerRole(
            self.site,
            leader=image.leader,
            epoch=epoch,
            may_lose=image.recovery is LeaderRecovery.RECOVERING,
            is_in_sync=node_id in image.in_sync,
            when_changed=self._follower_changed,
        )
        self.follower.start()

    def _lead(self, image: PartitionImage) -> None:
        """Have the log lead. One with damage leads only what is before it, if loss is accepted.

        A full disk does not take the epoch, and without it the log must not lead. It tries again
        until there is room, or another image gives it another role.
        """
        replica, epoch = self.site.log.replica, image.leader_epoch
        damaged_from = replica.damaged_from

        def lead() -> Offset:
            if damaged_from is not None:
                cut = max(damaged_from, self.site.log.state.start)
                replica.truncate(cut, leader_epoch=LeaderEpoch(epoch - 1))
            return replica.lead(epoch)

        if damaged_from is not None and image.recovery is not LeaderRecovery.RECOVERING:
            self.site.node.listener.stopped(
                self.site.place,
                f"it was elected for epoch {epoch}, but its log is damaged from offset "
                f"{damaged_from} on",
            )
        else:
            self.site.node.disk.run(self.site.log, lead, self._led(epoch))

    def _led(self, epoch: LeaderEpoch) -> Callable[[Offset | Exception], None]:
        def led(start: Offset | Exception) -> None:
            image = self.image
            if self._is_closed or image is None or image.leader_epoch != epoch:
                return
            if isinstance(start, RoleChangedError):
                return
            if _is_disk_full(start):
                if self._paused_epoch != epoch:
                    self._paused_epoch = epoch
                    self.site.node.listener.paused(
                        self.site.place,
                        f"without room on the disk it cannot lead in epoch {epoch}: {start}",
                    )
                delay_s = self.site.node.config.backoff_ms / 1000
                self.site.node.scheduler.call_later(delay_s, lambda: self._lead_again(epoch))
                return
            if isinstance(start, Exception):
                self.site.node.listener.stopped(
                    self.site.place, f"it cannot lead in epoch {epoch}: {start}"
                )
                return
            self.leader = LeaderRole(
                self.site,
                image,
                epoch_start=start,
                brokers=self._brokers,
                when_moved=lambda: self._when_moved(self),
            )
            self.leader.advance()

        return led

    def _lead_again(self, epoch: LeaderEpoch) -> None:
        image = self.image
        if not self._is_closed and image is not None and image.leader_epoch == epoch:
            self._lead(image)

    def _end_role(self) -> None:
        leader, follower = self.leader, self.follower
        self.leader = self.follower = None
        if leader is not None:
            leader.end()
        if follower is not None:
            follower.end()
            self._follower_changed(follower)

    def set_aside(self) -> None:
        """Follow no more, and do not lead: another log is about to take the place of this one.

        If it led, it would append records that the other log does not have, in the epoch in which
        that one leads next. So a leader takes no more records from here on, and whoever waits for
        records is told that the leadership ended.
        """
        self._is_set_aside = True
        led = self.leader is not None
        self._end_role()
        if led:
            self.site.log.replica.follow(self.leader_epoch)
            self._when_moved(self)

    @property
    def may_be_set_aside(self) -> bool:
        """Whether another log may take the place of this one now, in whatever role.

        The other log leads by the image, in the same epoch. So a leader must have nothing asked of
        the controllers that the image does not say: if a replica were in sync that the image does
        not have, records would be committed without it, and it could be elected.
        """
        leader, image = self.leader, self.image
        if image is None or image.leader != self.site.node.node_id:
            return True
        return (
            leader is not None
            and leader.isr.pending is None
            and leader.partition_epoch == image.partition_epoch
        )

    def resume(self) -> None:
        """Follow or lead again, as the image says: no other log takes its place."""
        if self._is_set_aside:
            self._is_set_aside = False
            image = self.image
            if not self._is_closed and image is not None:
                self._change_role(image)

    def close(self) -> None:
        """Give up the role: the node stops, or the replica was moved away."""
        self._is_closed = True
        self._end_role()
        self.site.log.replica.follow(self.leader_epoch)

    # --- what the broker asks ------------------------------------------------------------------

    def log_moved(self) -> None:
        """The log grew or was synced. Called in the loop, after the log's watcher was."""
        if self.leader is not None:
            self.leader.log_moved()

    def await_committed(self, end: Offset, epoch: LeaderEpoch, when_done: WhenCommitted) -> None:
        """Wait for records below `end`, which were appended with `led_in=epoch`."""
        if self.leader is None or self.leader.epoch != epoch:
            when_done(False)
        else:
            self.leader.await_committed(end, when_done)

    def await_deleted(self, start: Offset, epoch: LeaderEpoch, when_done: WhenCommitted) -> None:
        """Wait until no record below `start` can come back. See `LeaderRole.await_deleted`."""
        if self.leader is None or self.leader.epoch != epoch:
            when_done(False)
        else:
            self.leader.await_deleted(start, when_done)

    def fetch(
        self,
        asked: FetchPosition,
        *,
        replica: int,
        broker_epoch: int,
        bytes_max: int,
        is_again: bool = False,
    ) -> FollowerRead:
        """Answer a follower. See `LeaderRole.fetch`."""
        if self.leader is None:
            return FollowerRead(error=self._refusal_of_stranger(asked.leader_epoch))
        return self.leader.fetch(
            asked,
            replica=replica,
            broker_epoch=broker_epoch,
            bytes_max=bytes_max,
            is_again=is_again,
        )

    def bounds(self, epoch: LeaderEpoch) -> LogBounds | ReplicaError:
        if self.leader is None:
            return self._refusal_of_stranger(epoch)
        return self.leader.bounds(epoch)

    def _refusal_of_stranger(self, epoch: LeaderEpoch) -> ReplicaError:
        if epoch < self.leader_epoch:
            return ReplicaError.FENCED_LEADER_EPOCH
        if epoch > self.leader_epoch:
            return ReplicaError.UNKNOWN_LEADER_EPOCH
        return ReplicaError.NOT_LEADER_OR_FOLLOWER


def _is_disk_full(result: Offset | Exception) -> bool:
    if isinstance(result, OSError):
        return result.errno in FULL_DISK_ERRNOS
    return isinstance(result, DiskFullError)
