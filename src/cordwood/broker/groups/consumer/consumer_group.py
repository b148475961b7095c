"""A group of the consumer protocol: members send heartbeats, the group assigns partitions.

Three epochs order everything. A change of members, subscriptions or topics increases the *group
epoch*. Then new targets are computed for all members; the *assignment epoch* is the group epoch
they were computed for. Each member moves to its target at its own pace; its *member epoch* is
the assignment epoch it has reached. A group is stable when all these epochs are equal.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.consumer.assignors import Assignment
from cordwood.broker.groups.consumer.change_records import ChangeRecords
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_heartbeat import UNCHANGED_TIMEOUT, ConsumerHeartbeat
from cordwood.broker.groups.consumer.consumer_member import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    undated,
)
from cordwood.broker.groups.consumer.consumer_roster import ConsumerRoster
from cordwood.broker.groups.consumer.member_admission import find_leaving, find_sender
from cordwood.broker.groups.consumer.member_timers import MemberTimers
from cordwood.broker.groups.consumer.reconciliation import reconcile
from cordwood.broker.groups.consumer.target_assignments import TargetAssignments, preferred_assignor
from cordwood.broker.groups.consumer.topic_subscriptions import TopicDirectory
from cordwood.broker.groups.journal.group_journal import GroupJournal
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError
from cordwood.clock import Clock
from cordwood.format.groups.consumer_group_records import MemberValue
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass, replace

logger = logging.getLogger(__name__)

_TOPICS_INTERVAL_S: Final = 0.5  # how often a group checks its topics for changes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to send once `records` are durable. `assignment` None means unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    records: Sequence[GroupRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurroundings:
    """The parts of the broker that a group uses. `settings_of` has the settings of one group."""

    config: ConsumerGroupConfig
    topics: TopicDirectory
    scheduler: Scheduler
    clock: Clock
    settings_of: Callable[[str], Mapping[str, str]] = lambda group_id: {}

    def config_of(self, group_id: str) -> ConsumerGroupConfig:
        return self.config.with_settings(self.settings_of(group_id))


class ConsumerGroup:
    """One group. For the control loop alone; no I/O.

    Changes are made in memory at once and returned as records. The caller of `heartbeat` writes
    its records before it answers. Changes by timeouts are written to `journal` by the group.

    Invariant: group epoch >= assignment epoch >= every member epoch, and none of them decreases.
    No partition is held by two members, see `PartitionOwners`.
    """

    group_type: Final = "consumer"
    protocol_type: Final = "consumer"

    def __init__(
        self, group_id: str, surroundings: GroupSurroundings, journal: GroupJournal
    ) -> None:
        self.group_id = group_id
        self.journal = journal
        self.epoch = 0
        self.metadata_hash = 0
        self.roster = ConsumerRoster(surroundings.topics)
        self.targets = TargetAssignments()
        self.other_keys: Sequence[
            bytes
        ] = ()  # of records that only Kafka writes; deleted with the group
        self._config = surroundings.config
        self._surroundings = surroundings
        self._topics = surroundings.topics
        self._scheduler = surroundings.scheduler
        self._clock = surroundings.clock
        self._timers = MemberTimers(surroundings.scheduler, self._expire)
        self._topics_due_s = 0.0
        self._is_dead = False

    # --- description -------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if self._is_dead:
            return "Dead"
        if self.is_empty:
            return "Empty"
        if self.epoch > self.targets.epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.targets.epoch) for member in self.roster):
            return "Stable"
        return "Reconciling"

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def is_empty(self) -> bool:
        return not self.roster

    @property
    def assignor_name(self) -> str:
        return preferred_assignor(self.roster, self._config.assignors)

    def subscribed_topics(self) -> frozenset[str]:
        return self.roster.subscriptions.names()

    def validate_commit(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether a member may commit for any partition; see `validate_partition_commit`."""
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.none  # an admin, or a consumer that assigns its own partitions
        return self._validate_epoch(member_id, member_epoch)

    def validate_partition_commit(
        self, member_id: str, member_epoch: int, topic_name: str, partition: int
    ) -> ErrorCode:
        """Whether a member may commit for a partition, perhaps with an earlier epoch.

        It may if it has held the partition since that epoch: no other member can have committed.
        """
        code = self.validate_commit(member_id, member_epoch)
        member = self.roster.find(member_id)
        shape = self._topics.find(topic_name)
        if code is not ErrorCode.stale_member_epoch or member is None or shape is None:
            return code
        since = member.assigned_at(shape.topic_id, partition)
        is_past = since is not None and since <= member_epoch < member.epoch
        return ErrorCode.none if is_past else code

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may fetch offsets. A sender that names no member always may."""
        if not member_id and member_epoch < 0:
            return ErrorCode.none
        return self._validate_epoch(member_id or "", member_epoch)

    def _validate_epoch(self, member_id: str, member_epoch: int) -> ErrorCode:
        member = self.roster.find(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        is_current = member_epoch == member.epoch
        return ErrorCode.none if is_current else ErrorCode.stale_member_epoch

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete this group from the log, without its offsets."""
        changes = ChangeRecords(self.group_id)
        for member in self.roster:
            changes.member_gone(member.member_id)
        changes.group_gone()
        others = (*self.other_keys, *self.journal.lost_keys)
        return [*changes.records, *((key, None) for key in others)]

    # --- life --------------------------------------------------------------------------------

    def resume(self) -> None:
        """After a restart: each member has one session timeout for its next heartbeat."""
        self.roster.subscriptions.resolve()
        session_timeout_ms = self._surroundings.config_of(self.group_id).session_timeout_ms
        for member in self.roster:
            self._timers.expect_heartbeat(member.member_id, session_timeout_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._timers.expect_revocation(
                    member.member_id, max(member.about.rebalance_timeout_ms, 0)
                )

    def stop(self) -> None:
        """The group was removed, or the broker stops: cancel all timers."""
        self._is_dead = True
        self._timers.stop()

    # --- heartbeats --------------------------------------------------------------------------

    def heartbeat(self, beat: ConsumerHeartbeat) -> HeartbeatAnswer:
        """A member joins, stays or leaves. If this raises `RefusedError`, nothing changed."""
        if beat.epoch in (LEAVING_EPOCH, AWAY_EPOCH):
            return self._leave(beat)
        sender = find_sender(self.roster, beat, self._config.size_max)
        known = sender.known or sender.replaced
        base = known or ConsumerMember(member_id=beat.member_id, about=MemberValue())
        member = _with_heartbeat(base, beat)
        has_new_subscription = known is None or _subscription(member) != _subscription(base)
        if has_new_subscription:
            self._check_regex(member.about.topic_regex)
        changes = ChangeRecords(self.group_id)
        if self.roster.subscriptions.see(member.about.topic_regex, beat.may_see):
            self._topics_due_s = 0.0
        if sender.replaced is not None:
            self._take_place(sender.replaced, member, changes)
        if member is not known:
            self.roster.put(member)
        if known is None or member.about is not base.about or sender.replaced is not None:
            changes.member(member)
        self._check_topics(changes, has_new_subscription=has_new_subscription)
        self._renew_targets(changes)
        reconciled = self._reconcile(member, beat, changes, has_new_subscription)
        config = self._surroundings.config_of(self.group_id)
        self._timers.expect_heartbeat(member.member_id, config.session_timeout_ms)
        return HeartbeatAnswer(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            assignment=_changed_assignment(base, reconciled, beat),
            records=changes.records,
        )

    def _check_regex(self, regex: str | None) -> None:
        try:
            if regex:
                self.roster.subscriptions.check_regex(regex)
        except InvalidPatternError as error:
            raise RefusedError(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
            ) from error

    def _take_place(
        self, replaced: ConsumerMember, member: ConsumerMember, changes: ChangeRecords
    ) -> None:
        """A static member is back under a new id: it gets the target of its old one."""
        self._timers.forget(replaced.member_id)
        self.roster.remove(replaced)
        changes.member_gone(replaced.member_id)
        self.targets.rename(replaced.member_id, member.member_id)
        changes.targets({member.member_id: self.targets.of(member.member_id).partitions})

    def _check_topics(self, changes: ChangeRecords, *, has_new_subscription: bool) -> None:
        """Increase the group epoch if the subscriptions or their topics changed."""
        now_s = self._scheduler.now_s()
        if not has_new_subscription and now_s < self._topics_due_s:
            return
        self._topics_due_s = now_s + _TOPICS_INTERVAL_S
        self.roster.subscriptions.resolve()
        digest = self.roster.subscriptions.digest()
        if has_new_subscription or digest != self.metadata_hash:
            self._bump(digest, changes)

    def _bump(self, metadata_hash: int, changes: ChangeRecords) -> None:
        self.epoch += 1
        self.metadata_hash = metadata_hash
        changes.group_epoch(self.epoch, metadata_hash)

    def _renew_targets(self, changes: ChangeRecords) -> None:
        now_s = self._scheduler.now_s()
        if self.targets.epoch >= self.epoch or not self.targets.is_due(now_s):
            return
        changed = self.targets.renew(self.roster, self.epoch, self._config.assignors, now_s)
        changes.targets(changed)
        changes.target_epoch(self.epoch, self._clock.now_ms())

    def _reconcile(
        self,
        member: ConsumerMember,
        beat: ConsumerHeartbeat,
        changes: ChangeRecords,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        owners = self.roster.owners
        reconciled = reconcile(
            member,
            target=self.targets.of(member.member_id),
            subscribed=self.roster.subscriptions.topics(member.about),
            has_new_subscription=has_new_subscription,
            owned=beat.owned,
            is_free=lambda topic, partition: (
                owners.owner(topic, partition) in (None, member.member_id)
            ),
        )
        if reconciled is member:
            return member
        self.roster.put(reconciled)
        changes.current(reconciled)
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.expect_revocation(
                member.member_id, max(member.about.rebalance_timeout_ms, 0)
            )
        else:
            self._timers.revoked(member.member_id)
        return reconciled

    # --- leaving -----------------------------------------------------------------------------

    def _leave(self, beat: ConsumerHeartbeat) -> HeartbeatAnswer:
        member = find_leaving(self.roster, beat)
        changes = ChangeRecords(self.group_id)
        if beat.epoch == AWAY_EPOCH:
            self._leave_for_a_while(member, changes)
        else:
            self._remove(member, changes)
        return HeartbeatAnswer(
            member_id=member.member_id, member_epoch=beat.epoch, records=changes.records
        )

    def _leave_for_a_while(self, member: ConsumerMember, changes: ChangeRecords) -> None:
        """A static member left: it keeps its assignment until its session expires."""
        away = replace(
            member,
            epoch=AWAY_EPOCH,
            state=MemberState.STABLE,
            # The instance may come back under another member id and has then held these all along.
            assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()},
            revoking={},
        )
        self._timers.revoked(member.member_id)
        self.roster.put(away)
        changes.current(away)

    def _remove(self, member: ConsumerMember, changes: ChangeRecords) -> None:
        self._timers.forget(member.member_id)
        self.roster.remove(member)
        self.targets.forget(member.member_id)
        changes.member_gone(member.member_id)
        self.roster.subscriptions.resolve()
        self._bump(self.roster.subscriptions.digest(), changes)

    def _expire(self, member_id: str, reason: str) -> None:
        member = self.roster.find(member_id)
        if member is None:
            return
        logger.info("group %s: member %s removed: %s", self.group_id, member_id, reason)
        changes = ChangeRecords(self.group_id)
        self._remove(member, changes)
        self.journal.append(changes.records, self._report)

    def _report(self, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            logger.warning(
                "group %s: removal of a member not saved yet: %s", self.group_id, code.name
            )


def _changed_assignment(
    before: ConsumerMember, after: ConsumerMember, beat: ConsumerHeartbeat
) -> Assignment | None:
    """The assignment to send to a member; None if the member knows it.

    A full heartbeat is answered in full. So is a member that reports other partitions than its
    assignment, because it missed an answer; Kafka does not do that.
    """
    if beat.is_joining or beat.is_full or before.assigned != after.assigned:
        return undated(after.assigned)
    assigned = None if beat.owned is None else undated(after.assigned)
    return None if assigned == beat.owned else assigned


def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str | None]:
    return member.about.topic_names, member.about.topic_regex or None


def _with_heartbeat(base: ConsumerMember, beat: ConsumerHeartbeat) -> ConsumerMember:
    """The member with the fields of its heartbeat; the same object if nothing changed."""
    about = _updated(base.about, beat)
    if about == base.about:
        about = base.about
        if base.member_id == beat.member_id and not base.is_away:
            return base
    member = replace(base, member_id=beat.member_id, about=about)
    if not base.is_away:
        return member
    return replace(member, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)


def _updated(about: MemberValue, beat: ConsumerHeartbeat) -> MemberValue:
    """The stored fields of a member, updated with the fields that the heartbeat sets."""
    names = about.topic_names if beat.topic_names is None else tuple(sorted({*beat.topic_names}))
    keeps_timeout = beat.rebalance_timeout_ms == UNCHANGED_TIMEOUT
    return MemberValue(
        instance_id=about.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=about.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=names,
        topic_regex=about.topic_regex if beat.topic_regex is None else beat.topic_regex,
        rebalance_timeout_ms=(
            about.rebalance_timeout_ms if keeps_timeout else beat.rebalance_timeout_ms
        ),
        assignor=about.assignor if beat.assignor is None else beat.assignor,
    )
