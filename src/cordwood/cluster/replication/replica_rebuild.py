"""A replica of one partition, fetched again beside the old one, which it then replaces.

The new replica is filled like a consumer reads: only with committed records, and without telling
the leader who fetches. So it never counts for anything before it takes the place of the old one.

Committed records are fetched from the leader, appended and synced (COPYING in `new_log`). It waits
while the disk is short of room.

Invariant: a replica never has less than what it told a leader. The leader counted everything below
the old log's safe end. So the old one stops fetching before the swap, and the new one takes its
place when

    * it has everything below the old one's safe end, or
    * the old one did not fetch at all in this role (it is damaged, or it stopped), and the image
      has it neither among the in-sync nor among the eligible replicas: no clean election takes it

A log that is sound goes on following until the copy has caught up, and it goes on again if the new
one does not reach its end soon.
"""

from collections.abc import Callable
from typing import Final, Protocol

from cordwood.cluster.image.partition_image import NO_LEADER, LeaderRecovery, PartitionImage
from cordwood.cluster.replication.follower_role import Phase as FollowerPhase
from cordwood.cluster.replication.new_log import NewLog, NewLogFiles
from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replica_fetch import (
    BoundsQuery,
    FetchedPartition,
    LogBounds,
    PartitionPlace,
    ReplicaError,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import MIB, LeaderEpoch, Offset
from cordwood.value_class import dataclass

_COPY_BYTES_MAX: Final = 4 * MIB
_RESTARTS_MAX: Final = 20  # the leader deletes faster than we copy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQuery:
    """Committed batches that are asked of a leader, from `offset` on."""

    place: PartitionPlace
    leader_epoch: LeaderEpoch
    offset: Offset
    bytes_max: int = _COPY_BYTES_MAX


class CopySource(Protocol):
    """Requests to the leader, as a consumer sends them. Each is answered once, or never."""

    def copy(
        self, leader: int, query: CopyQuery, when_done: Callable[[FetchedPartition | None], None]
    ) -> None: ...

    def bounds(
        self, leader: int, query: BoundsQuery, when_done: Callable[[LogBounds | None], None]
    ) -> None: ...


class ReplicaRebuild:
    """One rebuild. Owned by the broker's `ReplicaRebuilds`, and called in the loop of replicas.

    For `when_made` and `when_over` see `NewLog`; `copy` begins to fill the new log.
    `is_forced`: an operator accepts that the leader may have less than this replica.
    """

    def __init__(
        self,
        replica: PartitionReplica,
        source: CopySource,
        files: NewLogFiles,
        *,
        is_forced: bool,
        when_over: Callable[[PartitionLog | str | None], None],
        when_made: Callable[[], None] = lambda: None,
    ) -> None:
        self.replica = replica
        self.new = NewLog(replica, files, when_made=when_made, when_over=when_over)
        self._source = source
        self._is_forced = is_forced
        self._site = replica.site
        self._epoch = LeaderEpoch(-1)
        self._restarts = 0
        self._must_restart = False
        self._wanted_end: Offset | None = None  # what the old one told the leader
        self._aside_s = 0.0
        follower = replica.follower
        self._was_silent = self._site.log.replica.damaged_from is not None or (
            follower is not None and follower.phase is FollowerPhase.STOPPED
        )

    # --- events ------------------------------------------------------------------------------

    def start(self) -> None:
        if self._was_silent:
            self._set_aside()
        self.new.make()

    def copy(self) -> None:
        """Its turn has come."""
        self.new.begin(self._ask_bounds)

    def image_changed(self) -> None:
        """The controllers decided something: give up if this replica leads or is not here."""
        image = self.replica.image
        node_id = self._site.node.node_id
        if image is None or node_id not in image.replicas or image.leader == node_id:
            self.give_up()

    def give_up(self) -> None:
        """Stop, unless the swap is under way; the old replica goes on."""
        self.new.give_up()

    # --- copying -----------------------------------------------------------------------------

    def _leader(self) -> PartitionImage | None:
        """The image, if another broker leads now. The new log follows it."""
        image = self.replica.image
        if image is None or image.leader in (NO_LEADER, self._site.node.node_id):
            return None
        if image.leader_epoch != self._epoch:
            is_later = self._epoch >= 0
            self._epoch = image.leader_epoch
            self.new.log.replica.follow(image.leader_epoch)
            if is_later and image.recovery is LeaderRecovery.RECOVERING:
                self._must_restart = True  # what was committed before may be gone
        return image

    def _ask_bounds(self) -> None:
        image = self._leader()
        if image is None:
            self._pause(self._ask_bounds)
            return
        self._must_restart = False

        def take(bounds: LogBounds | None) -> None:
            if not self.new.is_filling:
                return
            if bounds is None:
                self._pause(self._ask_bounds)
                return
            committed = self._site.log.high_watermark
            if bounds.end < committed and not self._may_lose(image):
                self.new.end(
                    f"the leader of epoch {image.leader_epoch} ends at {bounds.end}, before the "
                    f"committed end {committed} of this replica"
                )
                return
            new, epoch = self.new.log, self._epoch
            self.new.work(
                lambda: new.replica.restart_at(bounds.start, leader_epoch=epoch),
                lambda _none: self._fetch(),
            )

        query = BoundsQuery(place=self._site.place, leader_epoch=image.leader_epoch)
        self._source.bounds(image.leader, query, take)

    def _may_lose(self, image: PartitionImage) -> bool:
        return (
            self._is_forced
            or image.recovery is LeaderRecovery.RECOVERING
            or self._site.log.config.unclean_leader_election_enable
        )

    def _restart(self) -> None:
        """Begin again where the leader's log starts now."""
        self._restarts += 1
        if self._restarts > _RESTARTS_MAX:
            self.new.end("the leader deleted records faster than they were copied")
        else:
            self._ask_bounds()

    def _fetch(self) -> None:
        image = self._leader()
        if image is None or self.new.log.want_of_room is not None:
            self._pause(self._fetch)
            return
        if self._must_restart:
            self._restart()
            return
        query = CopyQuery(
            place=self._site.place,
            leader_epoch=image.leader_epoch,
            offset=self.new.log.end_offset,
        )
        self._source.copy(image.leader, query, self._take)

    def _take(self, answer: FetchedPartition | None) -> None:
        if not self.new.is_filling:
            return
        if answer is None:
            self._pause(self._fetch)
        elif answer.error == ReplicaError.OFFSET_OUT_OF_RANGE:
            self._restart()
        elif answer.error != ReplicaError.NONE:
            self._pause(self._fetch)
        elif len(answer.data):
            self._append(answer)
        else:
            self._note(answer)
            self._caught_up()

    def _append(self, answer: FetchedPartition) -> None:
        new, epoch, data = self.new.log, self._epoch, answer.data
        before = new.end_offset

        def append() -> Offset:
            committed = Offset(max(answer.high_watermark, 0))
            end = new.replica.append(data, leader_epoch=epoch, gaps_below=committed)
            new.sync()
            return end

        def appended(end: Offset) -> None:
            self._note(answer)
            if end == before:
                self.new.end(f"a batch at offset {before} cannot be copied")
            elif end >= answer.high_watermark:
                self._caught_up()
            else:
                self._fetch()

        self.new.work(append, appended)

    def _note(self, answer: FetchedPartition) -> None:
        """What the leader says is committed, and where its log starts."""
        new = self.new.log
        new.replica.raise_high_watermark(min(answer.high_watermark, new.replica.safe_end))

    # --- the swap ------------------------------------------------------------------------------

    def _caught_up(self) -> None:
        """The new one has all that is committed."""
        if self._wanted_end is None:
            self._set_aside()
        if self._may_swap:
            self.new.swap()
            return
        config = self._site.node.config
        waited_s = self._site.node.scheduler.now_s() - self._aside_s
        if not self._was_silent and waited_s * 1000 > config.lag_max_ms / 2:
            self._wanted_end = None
            self.replica.resume()  # before it falls out of sync
            self._pause(self._fetch)
        else:
            self._pause(self._fetch, is_short=True)

    @property
    def _may_swap(self) -> bool:
        assert self._wanted_end is not None
        if self.new.log.replica.safe_end >= self._wanted_end:
            return True
        image = self.replica.image
        node_id = self._site.node.node_id
        return (
            self._was_silent
            and image is not None
            and node_id not in image.in_sync
            and node_id not in image.eligible
        )

    def _set_aside(self) -> None:
        self.replica.set_aside()
        self._wanted_end = self._site.log.replica.safe_end
        self._aside_s = self._site.node.scheduler.now_s()

    def _pause(self, go_on: Callable[[], None], *, is_short: bool = False) -> None:
        delay_s = self._site.node.config.backoff_ms / 1000
        self.new.pause(delay_s / (10 if is_short else 1), go_on)
