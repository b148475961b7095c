"""The leader of one partition, in one leader epoch.

The high watermark is the smallest safe end among this replica and

    * every replica of the maximal ISR (see `isr_state`), and
    * replicas that are caught up and may join: they will be in the ISR in a moment

and it moves only while the ISR has `min.insync.replicas` members (KIP-966). A safe end is what is
on the disk of the replica, with durability=disk. So when a record is committed, it is synced on
every replica that the controllers may elect cleanly.

A follower joins the ISR if it has reached the high watermark and the start of this epoch: before
that it may have records that this leader does not. Its broker must be unfenced, not leaving, and
the same life of the broker that fetched (KIP-841, KIP-903). It leaves if it was not caught up for
`replica.lag.time.max.ms`. One change is asked of the controllers at a time.

A follower that nobody waits for gets its batches within the limit for throttled replicas
(`replication_quota`).
"""

from collections.abc import Callable, Mapping

from cordwood.cluster.cluster_control import InSyncReplica, IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.broker_image import BrokerImage
from cordwood.cluster.image.partition_image import LeaderRecovery, PartitionImage
from cordwood.cluster.replication.commit_waits import CommitWaits, WhenCommitted
from cordwood.cluster.replication.isr_state import IsrState
from cordwood.cluster.replication.replica_fetch import (
    FetchPosition,
    FollowerRead,
    LogBounds,
    ReplicaError,
)
from cordwood.cluster.replication.replica_state import ReplicaState
from cordwood.cluster.replication.replication_ports import ReplicaSite
from cordwood.cluster.replication.replication_quota import ThrottledReplica
from cordwood.errors import OffsetOutOfRangeError, StorageError
from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.quantities import NO_OFFSET, LeaderEpoch, Offset

BrokersNow = Callable[[], Mapping[int, BrokerImage]]


class LeaderRole:
    """One leadership. Owned by its `PartitionReplica` and called in its loop.

    `epoch_start` is where the records of this epoch begin. `when_moved` is called after the high
    watermark moved.
    """

    def __init__(
        self,
        site: ReplicaSite,
        image: PartitionImage,
        *,
        epoch_start: Offset,
        brokers: BrokersNow,
        when_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.site = site
        self.epoch: LeaderEpoch = image.leader_epoch
        self.epoch_start = epoch_start
        self.partition_epoch = image.partition_epoch
        self.replicas: dict[int, ReplicaState] = {}
        self.isr = IsrState(frozenset(image.in_sync))
        self.is_over = False
        self._brokers = brokers
        self._when_moved = when_moved
        self._waits = CommitWaits()
        self._start_waits = CommitWaits()  # by the start that other replicas must have
        self._told = site.log.high_watermark  # up to here all who wait were told
        self._assigned: tuple[int, ...] = image.replicas
        self._throttled = ThrottledReplica(
            partition=site.place.partition, node_id=site.node.node_id
        )
        self._adopt_replicas(image)

    # --- facts -------------------------------------------------------------------------------

    @property
    def min_in_sync(self) -> int:
        """How many replicas must have a record; a partition with fewer needs all it has."""
        return min(self.site.log.config.min_insync_replicas, len(self._assigned))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_in_sync

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr.committed) < len(self._assigned)

    @property
    def knows_committed_end(self) -> bool:
        """Whether the high watermark covers what earlier leaders committed.

        Until then the latest offset is not available: it might go back.
        """
        return self.site.log.high_watermark >= self.epoch_start

    @property
    def wait_count(self) -> int:
        return len(self._waits)

    def produce_refusal(self, *, is_acks_all: bool) -> ReplicaError | None:
        """Why a batch must not be appended now; None: append it with `led_in=epoch`."""
        if self.is_over or self.site.node.control.is_fenced_by_silence:
            return ReplicaError.NOT_LEADER_OR_FOLLOWER
        if is_acks_all and self.is_under_min_isr:
            return ReplicaError.NOT_ENOUGH_REPLICAS
        return None

    def await_committed(self, end: Offset, when_done: WhenCommitted) -> None:
        """Call `when_done` with True once records below `end` of this epoch are committed.

        With False if this leadership ends before: nobody knows what becomes of them.
        """
        if self.is_over:
            when_done(False)
        elif self.site.log.high_watermark >= end:
            when_done(True)
        else:
            self._waits.add(end, when_done)

    @property
    def low_watermark(self) -> Offset:
        """Nothing below it comes back, whoever leads next: where the logs of all replicas start
        whose brokers are alive.
        """
        brokers = self._brokers()
        return min(
            [self.site.log.state.start]
            + [
                state.log_start
                for node_id, state in self.replicas.items()
                if (broker := brokers.get(node_id)) is not None and not broker.is_fenced
            ]
        )

    def await_deleted(self, start: Offset, when_done: WhenCommitted) -> None:
        """Call `when_done` with True once no record below `start` can come back (KIP-107).

        With False if this leadership ends before.
        """
        if self.is_over:
            when_done(False)
        else:
            self._start_waits.add(start, when_done)
            self._answer_starts()

    def _answer_starts(self) -> None:
        if len(self._start_waits):
            self._start_waits.answer(self.low_watermark)

    # --- events ------------------------------------------------------------------------------

    def log_moved(self) -> None:
        """The log grew, or more of it is on the disk."""
        if not self.is_over:
            self.advance()

    def update(self, image: PartitionImage) -> None:
        """The controllers decided something else about this leadership, in the same epoch."""
        assert image.leader_epoch == self.epoch, (image, self.epoch)
        if image.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = image.partition_epoch
        self.isr = IsrState(frozenset(image.in_sync))
        self._adopt_replicas(image)
        self.advance()
        self._answer_starts()

    def check_lag(self) -> None:
        """Ask for the removal of replicas that have not been caught up for too long."""
        if self.is_over:
            return
        if self.isr.pending is None:
            now_s, end = self._now_s, self.site.log.end_offset
            lag_max_ms = self.site.node.config.lag_max_ms
            kept = {
                node_id
                for node_id in self.isr.committed
                if node_id == self.site.node.node_id
                or (
                    node_id in self.replicas
                    and self.replicas[node_id].is_caught_up(
                        leader_end=end, now_s=now_s, lag_max_ms=lag_max_ms
                    )
                )
            }
            if kept != self.isr.committed:
                self._ask_for(kept)
        self.advance()
        self._answer_starts()  # brokers may have been fenced

    def end(self) -> None:
        """Another epoch began: nothing of this one may be acknowledged any more."""
        self.is_over = True
        self._waits.refuse_all()
        self._start_waits.refuse_all()

    # --- followers ---------------------------------------------------------------------------

    def fetch(
        self,
        asked: FetchPosition,
        *,
        replica: int,
        broker_epoch: int,
        bytes_max: int,
        is_again: bool = False,
    ) -> FollowerRead:
        """Answer a follower's fetch, and note how far it is.

        Its position counts only if it continues this log: not if it diverges. `is_again` says that
        the fetch has waited here since it was noted: it is no news of the follower. With
        `bytes_max` 0 the answer has no room for batches; everything else is as usual.
        """
        error = self._fetch_refusal(asked, replica, broker_epoch)
        if error is not None:
            return FollowerRead(error=error)
        log = self.site.log
        state = log.state
        if not state.start <= asked.offset:
            return self._out_of_range()
        if asked.last_epoch >= 0:
            known = log.replica.end_of(asked.last_epoch)
            if known.end_offset == NO_OFFSET:
                return self._out_of_range()
            if known.epoch < asked.last_epoch or known.end_offset < asked.offset:
                return self._read(diverging=known)
        if asked.offset > state.end:
            return self._out_of_range()
        if not is_again:
            self._note_fetch(asked, replica, broker_epoch)
        batches = None
        if self._is_throttled:
            bytes_max = self._throttled_bytes_max(bytes_max, replica)
        try:
            if bytes_max > 0:
                batches = log.replica.read(asked.offset, max_bytes=bytes_max)
        except OffsetOutOfRangeError:
            return self._out_of_range()
        except (OSError, StorageError):
            return FollowerRead(error=ReplicaError.KAFKA_STORAGE_ERROR)
        if batches is not None and self._is_throttled:
            self.site.node.quotas.leader.count(
                batches.length, self._now_s, is_in_sync=self._is_waited_for(replica)
            )
        is_news = batches is not None or log.high_watermark > asked.high_watermark
        return FollowerRead(
            high_watermark=log.high_watermark,
            log_start=log.archive.announced_start,
            batches=batches,
            is_news=is_news,
        )

    @property
    def _is_throttled(self) -> bool:
        return self._throttled.is_in(self.site.log.config.leader_replication_throttled_replicas)

    def _is_waited_for(self, replica: int) -> bool:
        """Whether the high watermark waits for a follower: a limit must not hold it up."""
        return replica in self.isr.maximal or self._is_about_to_join(self.replicas[replica])

    def _throttled_bytes_max(self, bytes_max: int, replica: int) -> int:
        """How much of `bytes_max` a follower gets now; 0: nothing."""
        if self._is_waited_for(replica):
            return bytes_max
        return max(min(bytes_max, self.site.node.quotas.leader.room(self._now_s)), 0)

    def bounds(self, leader_epoch: LeaderEpoch) -> LogBounds | ReplicaError:
        """Where the log starts and ends, for a follower that is out of range."""
        error = self._epoch_refusal(leader_epoch)
        if error is not None:
            return error
        state = self.site.log.state
        return LogBounds(state.start, state.end)

    def _read(self, diverging: EpochEnd | None = None) -> FollowerRead:
        log = self.site.log
        return FollowerRead(
            high_watermark=log.high_watermark,
            log_start=log.archive.announced_start,
            diverging=diverging,
        )

    def _out_of_range(self) -> FollowerRead:
        log = self.site.log
        return FollowerRead(
            error=ReplicaError.OFFSET_OUT_OF_RANGE,
            high_watermark=log.high_watermark,
            log_start=log.archive.announced_start,
        )

    def _epoch_refusal(self, epoch: LeaderEpoch) -> ReplicaError | None:
        if self.is_over:
            return ReplicaError.NOT_LEADER_OR_FOLLOWER
        if epoch < self.epoch:
            return ReplicaError.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ReplicaError.UNKNOWN_LEADER_EPOCH
        return None

    def _fetch_refusal(
        self, asked: FetchPosition, replica: int, broker_epoch: int
    ) -> ReplicaError | None:
        refusal = self._epoch_refusal(asked.leader_epoch)
        if refusal is not None:
            return refusal
        known = self.replicas.get(replica)
        if known is None:
            return ReplicaError.UNKNOWN_LEADER_EPOCH  # its image is newer, or ours is
        # A request of an earlier life. The image tells, too: a log that moved to another directory
        # leads on in its epoch, and knows no fetches of before.
        registered = self._brokers().get(replica)
        if broker_epoch < known.broker_epoch or (
            registered is not None and 0 <= broker_epoch < registered.epoch
        ):
            return ReplicaError.NOT_LEADER_OR_FOLLOWER
        return None

    def _note_fetch(self, asked: FetchPosition, replica: int, broker_epoch: int) -> None:
        state = self.replicas[replica]
        state.note_fetch(
            asked.offset,
            broker_epoch=broker_epoch,
            leader_end=self.site.log.end_offset,
            now_s=self._now_s,
        )
        state.log_start, state.high_watermark = asked.log_start, asked.high_watermark
        self._expand_by(state)
        self.advance()
        self._answer_starts()

    # --- the high watermark ------------------------------------------------------------------

    def advance(self) -> None:
        """Move the high watermark to where the rule at the head of this module allows it."""
        if self.is_under_min_isr:
            return
        log = self.site.log
        reached = log.replica.safe_end
        before = log.high_watermark
        maximal = self.isr.maximal
        for node_id, state in self.replicas.items():
            if state.end < reached and (node_id in maximal or self._is_about_to_join(state)):
                reached = state.end
                if reached <= before:
                    return
        if reached > before:
            before = log.replica.raise_high_watermark(reached)
        if before > self._told:  # also if the log has moved it: see `OwnedReplica`
            self._told = before
            self._when_moved()
            self._waits.answer(before)

    def _is_about_to_join(self, state: ReplicaState) -> bool:
        return self._is_eligible(state) and state.is_caught_up(
            leader_end=self.site.log.end_offset,
            now_s=self._now_s,
            lag_max_ms=self.site.node.config.lag_max_ms,
        )

    # --- the in-sync replicas ----------------------------------------------------------------

    def _is_eligible(self, state: ReplicaState) -> bool:
        """Whether the controllers would let the replica join now."""
        broker = self._brokers().get(state.node_id)
        return (
            broker is not None
            and not broker.is_fenced
            and not broker.is_leaving
            and broker.epoch == state.broker_epoch
        )

    def _expand_by(self, state: ReplicaState) -> None:
        if (
            self.isr.pending is None
            and state.node_id not in self.isr.committed
            and state.end >= max(self.site.log.high_watermark, self.epoch_start)
            and self._is_eligible(state)
        ):
            self._ask_for({*self.isr.committed, state.node_id})

    def _ask_for(self, wanted: set[int]) -> None:
        place = self.site.place
        change = IsrChange(
            topic_id=place.topic_id,
            partition=place.partition,
            leader_epoch=self.epoch,
            partition_epoch=self.partition_epoch,
            in_sync=tuple(
                InSyncReplica(node_id, self._broker_epoch_of(node_id))
                for node_id in self._assigned
                if node_id in wanted
            ),
            recovery=LeaderRecovery.RECOVERED,
        )
        self.isr = self.isr.asking(change)
        self._submit(change)

    def _broker_epoch_of(self, node_id: int) -> int:
        """The life of a broker that caught up; -1 for a member that has not fetched yet."""
        if node_id == self.site.node.node_id:
            return self.site.node.control.broker_epoch
        return self.replicas[node_id].broker_epoch if node_id in self.replicas else -1

    def _submit(self, change: IsrChange) -> None:
        if not self.is_over and self.isr.pending is change:
            self.site.node.control.change_isr(
                change, lambda outcome: self._isr_answered(change, outcome)
            )

    def _submit_later(self, change: IsrChange, delay_ms: int) -> None:
        self.site.node.scheduler.call_later(delay_ms / 1000, lambda: self._submit(change))

    def _isr_answered(self, change: IsrChange, outcome: IsrOutcome) -> None:
        if self.is_over or self.isr.pending is not change:
            return  # a newer image has decided
        match outcome.answer:
            case IsrAnswer.MADE:
                # The same partition epoch: nothing had to be changed, and nothing is pending.
                if outcome.partition_epoch >= self.partition_epoch:
                    self.partition_epoch = outcome.partition_epoch
                    self.isr = IsrState(frozenset(outcome.in_sync))
                    self.advance()
            case IsrAnswer.REFUSED:
                self.isr = self.isr.given_up()
                self.advance()
            case IsrAnswer.OVERTAKEN:
                # Pending until an image arrives: the controllers may have made it. If none does,
                # the controllers are asked again. That changes nothing if they have moved on, and
                # an ISR never stays as it is because of one answer.
                self._submit_later(change, self.site.node.config.isr_overtaken_ms)
            case IsrAnswer.RETRY:
                self._submit_later(change, self.site.node.config.isr_retry_ms)

    def _adopt_replicas(self, image: PartitionImage) -> None:
        """Keep what is known of followers that stay; new ones begin unknown."""
        self._assigned = image.replicas
        others = [node for node in image.replicas if node != self.site.node.node_id]
        known, self.replicas = self.replicas, {}
        for node_id in others:
            state = known.get(node_id)
            if state is None:
                state = ReplicaState(node_id)
                state.reset(now_s=self._now_s, is_in_sync=node_id in image.in_sync)
            self.replicas[node_id] = state

    @property
    def _now_s(self) -> float:
        return self.site.node.scheduler.now_s()
