"""A follower of one partition, in one leader epoch.

    BUSY      the disk works: an append, a sync, a truncation, a restart
    READY     it can be fetched for, from `position`
    PAUSED    something went wrong; it tries again after a while
    STOPPED   it needs help; it tries no more in this role

The rounds are: fetch from the safe end, append verbatim, sync, note the high watermark, and again.
A fetch from an offset tells the leader that everything below is safe here, so nothing is fetched
while there is an unsynced tail.

It never cuts below its own high watermark after a clean election: what was committed is in the log
of every clean leader, so such a cut would mean that the leader lost records. The replica stops
instead, and its copy can be compared. An unclean election, which the image shows or the topic
allows, may lose records; then it follows.
"""

from collections.abc import Callable
from enum import Enum, auto

from cordwood.cluster.replication.epoch_truncation import cut_for
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    FetchPosition,
    LogBounds,
    ReplicaError,
)
from cordwood.cluster.replication.replication_ports import ReplicaSite, T, Timer
from cordwood.errors import LogClosedError, LogFailedError, RoleChangedError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.quantities import LeaderEpoch, Offset


class Phase(Enum):
    """See the head of this module."""

    BUSY = auto()
    READY = auto()
    PAUSED = auto()
    STOPPED = auto()


class FollowerRole:
    """Follows one leader in one epoch. Owned by its `PartitionReplica` and called in its loop.

    `when_changed` is called after every change of `phase`. `may_lose` says that the leader was
    elected uncleanly.
    """

    def __init__(
        self,
        site: ReplicaSite,
        *,
        leader: int,
        epoch: LeaderEpoch,
        may_lose: bool,
        when_changed: Callable[["FollowerRole"], None],
    ) -> None:
        self.site = site
        self.leader = leader
        self.epoch = epoch
        self.may_lose = may_lose
        self.phase = Phase.BUSY
        self.is_over = False
        self.stop_reason: str | None = None
        self.last_error: Exception | None = None  # why it paused, if its own log refused
        self._when_changed = when_changed
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin. What an earlier role left unsynced is synced first.

        A log with damage is fetched anew, from where the leader's log starts.
        """
        if self.site.log.replica.damaged_from is None:
            self._sync_then(self._ready)
        elif self.site.node.rebuild is not None:
            self.stop_reason = "its log is damaged, and it is fetched anew"
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
        elif answer.error != ReplicaError.NONE:
            self._pause()  # an image that explains it is on its way, here or there
        elif answer.diverging is not None:
            self._cut_for(answer.diverging)
        elif self._begins_before_the_end(answer):
            self._restart_at(answer.log_start)
        elif len(answer.data):
            self._append(answer)
        else:
            self._finish_round(answer)

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
        replica, epoch, data = self.site.log.replica, self.epoch, answer.data
        self._work(
            lambda: replica.append(data, leader_epoch=epoch),
            lambda _end: self._sync_then(lambda: self._finish_round(answer)),
        )

    def _finish_round(self, answer: FetchedPartition) -> None:
        """Note what the leader knows: where the log starts, and how far is committed.

        The start comes first. Records that this replica has before it may be others than those
        that the leader had there and deleted: no epoch tells them apart any more.
        """
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

        self._set(Phase.BUSY)
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
            if not isinstance(result, Exception):
                go_on(result)
            elif isinstance(result, (LogFailedError, LogClosedError)):
                self._stop(f"its disk failed: {result}")
            elif not isinstance(result, RoleChangedError):
                self._pause(result)

        self._set(Phase.BUSY)
        self.site.node.disk.run(self.site.log, job, done)

    def _ready(self) -> None:
        self._set(Phase.READY)

    def _pause(self, error: Exception | None = None) -> None:
        """Try again after a while."""
        self.last_error = error
        self._set(Phase.PAUSED)
        delay_s = self.site.node.config.backoff_ms / 1000
        self._timer = self.site.node.scheduler.call_later(delay_s, self._resume)

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
