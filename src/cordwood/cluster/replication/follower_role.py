"""A follower of one partition, in one leader epoch.

    BUSY      the disk works: an append, a sync, a truncation, a restart
    READY     it can be fetched for, from `position`
    PAUSED    something went wrong; it tries again after a while
    STOPPED   it needs help; it tries no more in this role

The rounds are: fetch from the safe end, append verbatim, sync, note the high watermark, and again.
A fetch from an offset tells the leader that everything below is safe here, so nothing is fetched
while there is an unsynced tail.

A pause is `replica.fetch.backoff.ms` long. If the leader only does not know yet that it leads, or
we do not know yet that it does not, the first pauses are short: an image is on its way, and until
the fetch is answered no record of the new epoch can be committed.

It never cuts below its own high watermark after a clean election: what was committed is in the log
of every clean leader, so such a cut would mean that the leader lost records. The replica stops
instead, and its copy can be compared. An unclean election, which the image shows or the topic
allows, may lose records; then it follows.

While its disk is short of room, it appends nothing and pauses. It goes on asking, for as little as
possible: a replica that has all that the leader has stays in sync.

A throttled replica that is neither in sync nor caught up is held up while the limit is used up
(`replication_quota`).
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from cordwood.cluster.replication.epoch_truncation import cut_for
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    FetchPosition,
    LogBounds,
    ReplicaError,
)
from cordwood.cluster.replication.replication_ports import ReplicaSite, T, Timer
from cordwood.cluster.replication.replication_quota import ThrottledReplica
from cordwood.errors import CordwoodError, LogClosedError, LogFailedError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.quantities import MIB, LeaderEpoch, Offset

# Whoever answers so has another image than we have, or its log does not lead yet.
_ABOUT_LEADERSHIP: Final = frozenset(
    {
        ReplicaError.NOT_LEADER_OR_FOLLOWER,
        ReplicaError.FENCED_LEADER_EPOCH,
        ReplicaError.UNKNOWN_LEADER_EPOCH,
    }
)
_HERE_BYTES_MAX: Final = 2 * MIB  # what the loop appends itself: a millisecond or two
_FIRST_PAUSE_S: Final = 0.01  # about as long as a disk takes to note a new epoch


class Phase(Enum):
    """See the head of this module."""

    BUSY = auto()
    READY = auto()
    PAUSED = auto()
    STOPPED = auto()


class FollowerRole:
    """Follows one leader in one epoch. Owned by its `PartitionReplica` and called in its loop.

    `when_changed` is called after every change of `phase`. `may_lose` says that the leader was
    elected uncleanly, `is_in_sync` that the image has this replica among those in sync.
    """

    def __init__(
        self,
        site: ReplicaSite,
        *,
        leader: int,
        epoch: LeaderEpoch,
        may_lose: bool,
        is_in_sync: bool = False,
        when_changed: Callable[["FollowerRole"], None],
    ) -> None:
        self.site = site
        self.leader = leader
        self.epoch = epoch
        self.may_lose = may_lose
        self.is_in_sync = is_in_sync
        self.phase = Phase.BUSY
        self.is_over = False
        self.stop_reason: str | None = None
        self.last_error: Exception | None = None  # why it paused, if its own side refused
        self._when_changed = when_changed
        self._timer: Timer | None = None
        self._refusals = 0  # about leadership, since the last round
        self._committed: Offset | None = None  # by the leader, as it answered last
        self._throttled = ThrottledReplica(
            partition=site.place.partition, node_id=site.node.node_id
        )

    def start(self) -> None:
        """Begin. What an earlier role left unsynced is synced first.

        A log with damage is fetched again, from where the leader's log starts.
        """
        if self.site.log.replica.damaged_from is None:
            self._sync_then(self._ready)
        elif self.site.node.rebuild is not None:
            self.stop_reason = "its log is damaged, and it is fetched again"
            self._set(Phase.STOPPED)
            self.site.node.rebuild(self.site.place)
        else:
            self._ask_bounds(self._fill_again)

    def end(self) -> None:
        """The role is over; answers that still come are ignored."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def position(self) -> FetchPosition:
        """Where to fetch from. Only while it is ready."""
        log = self.site.log
        return FetchPosition(
            place=self.site.place,
            leader_epoch=self.epoch,
            offset=log.replica.safe_end,
            last_epoch=log.replica.last_epoch,
            log_start=log.state.start,
            high_watermark=log.high_watermark,
            bytes_max=self._limited_bytes if log.want_of_room is None else 1,
        )

    @property
    def _limited_bytes(self) -> int | None:
        """How much a limit allows now; None if none counts. A batch may be larger."""
        if not self._is_throttled or self._is_level:
            return None
        node = self.site.node
        room = node.quotas.follower.room(node.scheduler.now_s())
        return min(max(room, 1), node.config.partition_bytes_max)

    @property
    def is_held_up(self) -> bool:
        """Whether it must not be fetched for now: the limit for throttled replicas is used up."""
        node = self.site.node
        return (
            self._is_throttled
            and not self._is_level
            and node.quotas.follower.room(node.scheduler.now_s()) <= 0
        )

    @property
    def _is_throttled(self) -> bool:
        return self._throttled.is_in(self.site.log.config.follower_replication_throttled_replicas)

    @property
    def _is_level(self) -> bool:
        """Whether it is in sync, or has all that the leader has committed and may join."""
        committed = self._committed
        return self.is_in_sync or (
            committed is not None and self.site.log.replica.safe_end >= committed
        )

    # --- events ------------------------------------------------------------------------------

    def take(self, answer: FetchedPartition | None) -> None:
        """The leader answered a fetch from `position`; None: it did not answer."""
        if self.is_over or self.phase is not Phase.READY:
            return
        if answer is None:
            self._pause()
        elif answer.error == ReplicaError.OFFSET_OUT_OF_RANGE:
            self._ask_bounds(self._take_bounds)
        elif answer.error in _ABOUT_LEADERSHIP:
            self._pause_for_an_image()
        elif answer.error != ReplicaError.NONE:
            self._pause()
        elif answer.diverging is not None:
            self._cut_for(answer.diverging)
        elif self._begins_before_the_end(answer):
            self._restart_at(answer.log_start)
        elif len(answer.data):
            shortage = self.site.log.want_of_room
            if shortage is None:
                self._append(answer)
            else:
                self._pause(shortage)
        else:
            self._finish_round(answer)

    def fail(self, error: Exception) -> None:
        """Something went wrong that nobody expected. It tries again after a while."""
        if not self.is_over and self.phase is not Phase.STOPPED:
            self._pause(error)

    # --- appending ---------------------------------------------------------------------------

    def _begins_before_the_end(self, answer: FetchedPartition) -> bool:
        """Whether the leader starts inside of its first batch, at or behind the end of this log.

        The batch cannot be appended behind records of other batches. The leader has deleted
        everything that this log has, so it starts again with that batch.
        """
        state = self.site.log.state
        if len(answer.data) < HEADER_SIZE or not state.start < state.end <= answer.log_start:
            return False
        return decode_batch_header(memoryview(answer.data)).base_offset < state.end

    def _append(self, answer: FetchedPartition) -> None:
        if self._is_throttled:
            node = self.site.node
            node.quotas.follower.count(
                len(answer.data), node.scheduler.now_s(), is_in_sync=self._is_level
            )
        is_brief = self.is_in_sync and len(answer.data) <= _HERE_BYTES_MAX
        taken = self._append_here(answer) if is_brief else 0
        if taken is None:
            return
        if taken == len(answer.data):
            self._appended(answer)
        else:
            self._append_by_job(answer, memoryview(answer.data)[taken:])

    def _append_here(self, answer: FetchedPartition) -> int | None:
        """Append in the loop what need not wait for the disk; None if it paused or stopped.

        Producers wait for a replica that is in sync, so the way to a thread and back is spared.
        One that catches up leaves the loop to others.
        """
        try:
            return self.site.log.replica.append_at_once(
                answer.data, leader_epoch=self.epoch, gaps_below=_gaps_below(answer)
            )
        except (OSError, CordwoodError) as error:
            self._failed(error)
            return None

    def _append_by_job(self, answer: FetchedPartition, data: memoryview) -> None:
        replica, epoch, gaps_below = self.site.log.replica, self.epoch, _gaps_below(answer)
        self._work(
            lambda: replica.append(data, leader_epoch=epoch, gaps_below=gaps_below),
            lambda _end: self._appended(answer),
        )

    def _appended(self, answer: FetchedPartition) -> None:
        self.last_error = None
        self._sync_then(lambda: self._finish_round(answer))

    def _finish_round(self, answer: FetchedPartition) -> None:
        """Note what the leader knows: where the log starts, and how far is committed.

        The start comes first. Records that this replica has before it may be others than those
        that the leader had there and deleted: no epoch tells them apart any more.
        """
        self._refusals = 0
        self._committed = answer.high_watermark
        log, epoch = self.site.log, self.epoch
        committed = min(answer.high_watermark, log.replica.safe_end)
        start = min(answer.log_start, committed)
        if start > log.state.start:
            self._work(
                lambda: log.replica.adopt_start(start, leader_epoch=epoch),
                lambda _start: self._commit(committed),
            )
        else:
            self._commit(committed)

    def _commit(self, committed: Offset) -> None:
        self.site.log.replica.raise_high_watermark(committed)
        self._ready()

    def _sync_then(self, go_on: Callable[[], None]) -> None:
        """Sync if a tail is unsynced and the topic promises the disk; then go on."""
        state = self.site.log.state
        if not self.site.is_disk or state.durable >= state.end:
            go_on()
            return

        def synced() -> None:
            if self.is_over:
                return
            state = self.site.log.state
            if state.failure is not None or state.is_closed:
                self._stop(f"its disk failed: {state.failure or 'the log is closed'}")
            elif state.durable < state.end:
                self._sync_then(go_on)  # the sync began before the append
            else:
                go_on()

        self._set(Phase.BUSY)
        self.site.node.disk.sync(self.site.log, synced)

    # --- cutting -----------------------------------------------------------------------------

    def _cut_for(self, diverging: EpochEnd) -> None:
        log = self.site.log
        end = log.end_offset
        self._cut_at(cut_for(diverging, log.replica.end_of(diverging.epoch), end))

    def _cut_at(self, cut: Offset) -> None:
        log = self.site.log
        high_watermark, start = log.high_watermark, log.state.start
        if cut < high_watermark and not self._may_lose_now:
            self._stop(
                f"the leader of epoch {self.epoch} has other records from offset {cut} on, but "
                f"records below {high_watermark} were committed and no unclean election is known; "
                "compare the replicas before one is given up"
            )
            return
        replica, epoch = log.replica, self.epoch
        if cut < start:
            self._restart_at(cut)
        else:
            self._work(
                lambda: replica.truncate(cut, leader_epoch=epoch),
                lambda _end: self._sync_then(self._ready),
            )

    @property
    def _may_lose_now(self) -> bool:
        return self.may_lose or self.site.log.config.unclean_leader_election_enable

    def _ask_bounds(self, go_on: Callable[[LogBounds], None]) -> None:
        """Ask where the leader's log starts and ends; pause if it does not say."""

        def take(bounds: LogBounds | None) -> None:
            if self.is_over:
                return
            if bounds is None:
                self._pause()
            else:
                go_on(bounds)

        self._set(Phase.PAUSED)  # the network, not the disk: others need not wait for it
        query = BoundsQuery(place=self.site.place, leader_epoch=self.epoch)
        self.site.node.transport.bounds(self.leader, query, take)

    def _take_bounds(self, bounds: LogBounds) -> None:
        """The leader does not have the offset that was asked for."""
        end = self.site.log.end_offset
        if bounds.start > end:
            self._restart_at(bounds.start)
        elif bounds.end < end:
            self._cut_at(bounds.end)
        else:
            self._pause()

    def _fill_again(self, bounds: LogBounds) -> None:
        """The log is damaged: what the leader has replaces it, if that is not less.

        A leader that lost records must not make the last copy of them disappear.
        """
        if bounds.end < self.site.log.high_watermark and not self._may_lose_now:
            self._stop(
                f"its log is damaged, but the leader of epoch {self.epoch} ends at {bounds.end}, "
                f"before the committed end {self.site.log.high_watermark}"
            )
        else:
            self._restart_at(bounds.start)

    def _restart_at(self, offset: Offset) -> None:
        replica, epoch = self.site.log.replica, self.epoch
        self._work(lambda: replica.restart_at(offset, leader_epoch=epoch), lambda _: self._ready())

    # --- phases ------------------------------------------------------------------------------

    def _work(self, job: Callable[[], T], go_on: Callable[[T], None]) -> None:
        """Have the disk do something; then go on, or pause if it could not."""

        def done(result: T | Exception) -> None:
            if self.is_over:
                return
            if isinstance(result, Exception):
                self._failed(result)
            else:
                go_on(result)

        self._set(Phase.BUSY)
        self.site.node.disk.run(self.site.log, job, done)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, (LogFailedError, LogClosedError)):
            self._stop(f"its disk failed: {error}")
        else:
            self._pause(error)

    def _ready(self) -> None:
        self._set(Phase.READY)

    def _pause(self, error: Exception | None = None, *, delay_s: float | None = None) -> None:
        """Try again after a while. An error of this side is told once, not with every try."""
        if error is not None and repr(self.last_error) != repr(error):
            self.site.node.listener.paused(self.site.place, str(error) or repr(error))
        self.last_error = error
        if self._timer is not None:
            self._timer.cancel()
        self._set(Phase.PAUSED)
        backoff_s = self.site.node.config.backoff_ms / 1000
        self._timer = self.site.node.scheduler.call_later(
            backoff_s if delay_s is None else min(delay_s, backoff_s), self._resume
        )

    def _pause_for_an_image(self) -> None:
        """Try again soon, and then less and less often."""
        self._refusals += 1
        self._pause(delay_s=_FIRST_PAUSE_S * 2 ** min(self._refusals - 1, 20))

    def _resume(self) -> None:
        if not self.is_over and self.phase is Phase.PAUSED:
            self.start()

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        self._set(Phase.STOPPED)
        self.site.node.listener.stopped(self.site.place, reason)

    def _set(self, phase: Phase) -> None:
        self.phase = phase
        self._when_changed(self)


def _gaps_below(answer: FetchedPartition) -> Offset:
    return Offset(max(answer.high_watermark, 0))
