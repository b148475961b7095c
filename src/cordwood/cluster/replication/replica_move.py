"""A replica that moves to another data directory of its broker, while it leads or follows.

The new log is in the other directory (`new_log`).

    COPYING    batches are copied from the old log, as fast as the limit allows, and synced. It
               waits while the disk of the new one is short of room
    PARTING    the old log has no role any more, and the rest is copied

Invariants:

    * The new log never counts before it takes the place of the old one. Then it has every batch
      that the old one had when its role ended, on the disk, and its high watermark.
    * No two logs of a partition have a role. The old one takes nothing more once it was set aside,
      so the new one may lead in the same epoch: whatever that epoch appended is in it.
    * It leads by an image that has all in-sync replicas (`PartitionReplica.may_be_set_aside`).

The old log may be cut meanwhile, if it follows. Before each part the two are compared by epochs,
and what the old one does not have is cut from the new one.

Whoever coordinates groups or transactions keeps state for an epoch. A log of theirs, which may not
be swapped while it leads (`may_part_as_leader`), stays COPYING until another broker leads.
"""

from collections.abc import Callable
from typing import Final

from cordwood.cluster.replication.new_log import NewLog, NewLogFiles, Phase
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import MIB, LeaderEpoch, Offset

_PART_BYTES_MAX: Final = 4 * MIB
_ROOM_S: Final = 1.0  # between looks at a disk that is short of room
_IDLE_S: Final = 0.2  # between looks at an old log that grows, or may not be set aside yet


class ReplicaMove:
    """One move. Owned by the broker's `ReplicaMoves`, and called in the loop of replicas.

    For `when_made` and `when_over` see `NewLog`; `copy` begins to fill the new log.
    """

    def __init__(
        self,
        replica: PartitionReplica,
        files: NewLogFiles,
        *,
        may_part_as_leader: bool,
        when_made: Callable[[], None],
        when_over: Callable[[PartitionLog | str | None], None],
    ) -> None:
        self.replica = replica
        self.new = NewLog(replica, files, when_made=when_made, when_over=when_over)
        self._site = replica.site
        self._may_part_as_leader = may_part_as_leader
        self._epoch = LeaderEpoch(-1)

    # --- events ------------------------------------------------------------------------------

    def start(self) -> None:
        self.new.make()

    def copy(self) -> None:
        """Its turn has come."""
        self.new.begin(self._go_on)

    def image_changed(self) -> None:
        """The controllers decided something: give up if the replica is not here any more."""
        image = self.replica.image
        if image is None or self._site.node.node_id not in image.replicas:
            self.give_up()

    def give_up(self) -> None:
        """Stop, unless the swap is under way; the old replica goes on."""
        self.new.give_up()

    # --- copying -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Copy the next part, or the last one."""
        new = self.new
        if new.phase is Phase.COPYING:
            node = self._site.node
            wait_s = node.quotas.moves.wait_s(node.scheduler.now_s())
            if new.log.want_of_room is not None:
                wait_s = max(wait_s, _ROOM_S)
            if wait_s > 0:
                new.pause(wait_s, self._go_on)
                return
        old, epoch = self._site.log, self._followed()
        old_end = old.end_offset
        new.work(lambda: copy_part(old, new.log, epoch), lambda size: self._copied(size, old_end))

    def _followed(self) -> LeaderEpoch:
        """The present epoch. The new log takes its batches."""
        epoch = max(self.replica.leader_epoch, LeaderEpoch(0))
        if epoch != self._epoch:
            self._epoch = epoch
            self.new.log.replica.follow(epoch)
        return epoch

    def _copied(self, size: int, old_end: Offset) -> None:
        """`size` bytes were copied; when that began, the old log ended at `old_end`."""
        new, node = self.new, self._site.node
        node.quotas.moves.count(size, node.scheduler.now_s(), is_in_sync=False)
        end = new.log.end_offset
        if end < old_end:
            if size:
                self._go_on()
            else:
                new.end(f"nothing follows offset {end}, but it ends at {old_end}")
        elif new.phase is Phase.PARTING:
            self._swap()
        elif self._may_part:
            new.phase = Phase.PARTING
            self.replica.set_aside()
            self._go_on()
        else:
            new.pause(_IDLE_S, self._go_on)

    @property
    def _may_part(self) -> bool:
        is_led = self.replica.leader is not None
        return (self._may_part_as_leader or not is_led) and self.replica.may_be_set_aside

    def _swap(self) -> None:
        old, new, epoch = self._site.log, self.new.log, self._epoch

        def prepare() -> None:
            if old.state.start > new.state.start:
                new.replica.adopt_start(old.state.start, leader_epoch=epoch)
            new.replica.raise_high_watermark(min(old.high_watermark, new.replica.safe_end))

        self.new.swap(prepare)


def copy_part(old: PartitionLog, new: PartitionLog, epoch: LeaderEpoch) -> int:
    """Make the new log a little more like the old one; how many bytes were copied.

    Waits for the disk. What the old log does not have is cut off first.
    """
    start = old.state.start
    agreed = old.replica.agreed_end(new.epochs.known.entries, new.end_offset)
    if new.end_offset < start or (new.end_offset == new.state.start and new.state.start != start):
        new.replica.restart_at(start, leader_epoch=epoch)
    elif agreed < new.end_offset:
        if agreed <= max(new.state.start, start):
            new.replica.restart_at(start, leader_epoch=epoch)
        else:
            new.replica.truncate(agreed, leader_epoch=epoch)
    found = old.replica.read(new.end_offset, max_bytes=_PART_BYTES_MAX)
    if found is None:
        return 0
    data = found.file.read_at(found.position, found.length)
    new.replica.append(data, leader_epoch=epoch, gaps_below=old.high_watermark)
    new.sync()
    return len(data)
