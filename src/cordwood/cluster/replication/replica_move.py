"""A replica that moves to another data directory of its broker, while it leads or follows.

    MAKING     an empty log is made in the other directory
    WAITING    others are copied first
    COPYING    batches are copied from the old log, as fast as the limit allows, and synced. It
               waits while the disk of the new one is short of room
    PARTING    the old log has no role any more, and the rest is copied
    SWAPPING   the new log takes the place of the old one (`log.topics.replica_swap`)
    OVER       done, given up or failed

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
from enum import Enum, auto
from typing import Final

from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_rebuild import RebuildFiles
from cordwood.cluster.replication.replication_ports import T, Timer
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import MIB, LeaderEpoch, Offset

_PART_BYTES_MAX: Final = 4 * MIB
_ROOM_S: Final = 1.0  # between looks at a disk that is short of room
_IDLE_S: Final = 0.2  # between looks at an old log that grows, or may not be set aside yet


class Phase(Enum):
    """See the head of this module."""

    MAKING = auto()
    WAITING = auto()
    COPYING = auto()
    PARTING = auto()
    SWAPPING = auto()
    OVER = auto()


class ReplicaMove:
    """One move. Owned by the broker's `ReplicaMoves`, and called in the loop of replicas.

    `when_made` is called once there is a new log; `copy` begins to fill it. `when_over` is called
    once: with the new log, with the reason of a failure, or with None if it was given up.
    """

    def __init__(
        self,
        replica: PartitionReplica,
        files: RebuildFiles,
        *,
        may_part_as_leader: bool,
        when_made: Callable[[], None],
        when_over: Callable[[PartitionLog | str | None], None],
    ) -> None:
        self.replica = replica
        self.phase = Phase.MAKING
        self.new: PartitionLog | None = None
        self._site = replica.site
        self._files = files
        self._may_part_as_leader = may_part_as_leader
        self._when_made = when_made
        self._when_over = when_over
        self._epoch = LeaderEpoch(-1)
        self._timer: Timer | None = None

    # --- events ------------------------------------------------------------------------------

    def start(self) -> None:
        def made(log: PartitionLog) -> None:
            self.new, self.phase = log, Phase.WAITING
            self._when_made()

        self._work(self._files.begin, made)

    def copy(self) -> None:
        """Its turn has come."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.COPYING
            self._go_on()

    def image_changed(self) -> None:
        """The controllers decided something: give up if the replica is not here any more."""
        image = self.replica.image
        if image is None or self._site.node.node_id not in image.replicas:
            self.give_up()

    def give_up(self) -> None:
        """Stop, unless the swap is under way; the old replica goes on."""
        if self.phase not in (Phase.SWAPPING, Phase.OVER):
            self._end(None)

    # --- copying -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Copy the next part, or the last one."""
        if self.phase not in (Phase.COPYING, Phase.PARTING):
            return
        node = self._site.node
        if self.phase is Phase.COPYING:
            assert self.new is not None
            wait_s = node.quotas.moves.wait_s(node.scheduler.now_s())
            if self.new.want_of_room is not None:
                wait_s = max(wait_s, _ROOM_S)
            if wait_s > 0:
                self._pause(wait_s)
                return
        new, epoch = self._followed(), self._epoch
        old_end = self._site.log.end_offset
        self._work(
            lambda: copy_part(self._site.log, new, epoch), lambda size: self._copied(size, old_end)
        )

    def _followed(self) -> PartitionLog:
        """The new log; it takes batches of the present epoch."""
        assert self.new is not None
        epoch = max(self.replica.leader_epoch, LeaderEpoch(0))
        if epoch != self._epoch:
            self._epoch = epoch
            self.new.replica.follow(epoch)
        return self.new

    def _copied(self, size: int, old_end: Offset) -> None:
        """`size` bytes were copied; when that began, the old log ended at `old_end`."""
        if self.phase not in (Phase.COPYING, Phase.PARTING):
            return
        node = self._site.node
        node.quotas.moves.count(size, node.scheduler.now_s(), is_in_sync=False)
        assert self.new is not None
        if self.new.end_offset < old_end:
            if size:
                self._go_on()
            else:
                self._end(f"nothing follows offset {self.new.end_offset}, but it ends at {old_end}")
        elif self.phase is Phase.PARTING:
            self._swap()
        elif self._may_part:
            self.phase = Phase.PARTING
            self.replica.set_aside()
            self._go_on()
        else:
            self._pause(_IDLE_S)

    @property
    def _may_part(self) -> bool:
        is_led = self.replica.leader is not None
        return (self._may_part_as_leader or not is_led) and self.replica.may_be_set_aside

    def _swap(self) -> None:
        old, new, epoch, files = self._site.log, self.new, self._epoch, self._files
        assert new is not None
        self.phase = Phase.SWAPPING

        def swap() -> PartitionLog:
            if old.state.start > new.state.start:
                new.replica.adopt_start(old.state.start, leader_epoch=epoch)
            new.replica.raise_high_watermark(min(old.high_watermark, new.replica.safe_end))
            return files.swap()

        self._work(swap, self._end)

    # --- how -----------------------------------------------------------------------------------

    def _work(self, job: Callable[[], T], go_on: Callable[[T], None]) -> None:
        def done(result: T | Exception) -> None:
            if self.phase is Phase.OVER:
                return
            if isinstance(result, Exception):
                self._end(f"{result}" or repr(result))
            else:
                go_on(result)

        self._site.node.disk.run(self._site.log, job, done)

    def _pause(self, delay_s: float) -> None:
        self._timer = self._site.node.scheduler.call_later(delay_s, self._go_on)

    def _end(self, outcome: PartitionLog | str | None) -> None:
        self.phase = Phase.OVER
        if self._timer is not None:
            self._timer.cancel()
        # If the swap failed half-way, the next start finishes it.
        if isinstance(outcome, PartitionLog) or self._site.log.is_closed:
            self._when_over(outcome)
            return

        def given_up(_result: object) -> None:
            self.replica.resume()
            self._when_over(outcome)

        self._site.node.disk.run(self._site.log, self._files.give_up, given_up)


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
