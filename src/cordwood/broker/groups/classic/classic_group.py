"""A group of the classic protocol: members join, the leader assigns the work, all heartbeat.

No I/O and no thread of its own: requests and timers of its scheduler drive it, all on one thread.
State that must survive goes to `persist`, and members are answered after that. The rules are
Kafka's, also where they are odd: clients rely on them.

group_transitions  the state machine, as a table
ClassicRebalance   takes the steps of the table
JoinAdmission      lets members in
MemberDeparture    removes members that leave or expire
ClassicRoster      the members and their protocols
SessionTimers      which members are alive, and which given ids are not used yet (KIP-394)
MemberReplies      answers members that wait
"""

from collections.abc import Callable
from typing import Final

from cordwood.broker.groups.classic.classic_answers import sync_error
from cordwood.broker.groups.classic.classic_member import (
    NO_MEMBER_ID,
    ClassicMember,
    JoinRequest,
    SyncRequest,
)
from cordwood.broker.groups.classic.classic_rebalance import ClassicRebalance, Persist
from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.broker.groups.classic.generation import Generation
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import ClassicState, GroupEvent
from cordwood.broker.groups.classic.join_admission import JoinAdmission
from cordwood.broker.groups.classic.member_departure import MemberDeparture
from cordwood.broker.groups.classic.member_replies import MemberReplies
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.requests.request import Deferred
from cordwood.clock import Clock
from cordwood.format.groups.group_metadata import GroupMetadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, encode_group_metadata_key
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import TimestampMs


class ClassicGroup:
    """One group, as requests see it. For the control loop alone.

    `persist` appends a generation to the log and then reports the result. `abandoned` is called
    when the last client of a group left that never had a generation.

    Invariant: every member has a running session timer, except before `resume` and after `stop`.
    """

    group_type: Final = "classic"

    def __init__(
        self,
        group_id: str,
        *,
        scheduler: Scheduler,
        clock: Clock,
        config: GroupConfig,
        budget: MetadataBudget,
        persist: Persist,
        abandoned: Callable[["ClassicGroup"], None] = lambda group: None,
    ) -> None:
        self.group_id = group_id
        self._config = config
        self._abandoned = abandoned
        self._roster = ClassicRoster(budget)
        self._pending = SessionTimers(scheduler, self._pending_expired)
        self._sessions = SessionTimers(
            scheduler,
            lambda member_id: self._departure.expire(member_id),  # noqa: PLW0108  # made below
        )
        self._replies = MemberReplies(scheduler, self._sessions)
        self._rebalance = ClassicRebalance(
            group_id,
            roster=self._roster,
            pending=self._pending,
            replies=self._replies,
            scheduler=scheduler,
            clock=clock,
            config=config,
            persist=persist,
        )
        self._admission = JoinAdmission(
            roster=self._roster,
            pending=self._pending,
            sessions=self._sessions,
            replies=self._replies,
            rebalance=self._rebalance,
            config=config,
            budget=budget,
        )
        self._departure = MemberDeparture(
            group_id=group_id,
            roster=self._roster,
            pending=self._pending,
            replies=self._replies,
            rebalance=self._rebalance,
        )

    # --- description -------------------------------------------------------------------------

    @property
    def state(self) -> ClassicState:
        return self._rebalance.state

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def state_since_ms(self) -> TimestampMs:
        return self._rebalance.state_since_ms

    @property
    def generation(self) -> int:
        return self._rebalance.generation.number

    @property
    def protocol_type(self) -> str | None:
        return self._rebalance.generation.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._rebalance.generation.protocol_name

    @property
    def leader_id(self) -> str | None:
        return self._roster.leader_id

    @property
    def member_count(self) -> int:
        return len(self._roster)

    @property
    def pending_count(self) -> int:
        """How many clients were given a member id and have not come back with it."""
        return len(self._pending)

    @property
    def is_empty(self) -> bool:
        return self.state in (ClassicState.EMPTY, ClassicState.DEAD)

    def members(self) -> list[ClassicMember]:
        return list(self._roster)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that this generation reads; None if the group does not know."""
        return self._rebalance.generation.subscribed

    # --- life --------------------------------------------------------------------------------

    def restore(self, saved: GroupMetadata) -> None:
        """Take over a saved group. `resume` starts the session timers."""
        assert self._rebalance.generation == Generation(), self.group_id
        for member in saved.members:
            self._roster.add(
                ClassicMember.restored(member, saved.protocol_type, saved.protocol or "")
            )
        if saved.leader in self._roster:
            self._roster.leader_id = saved.leader
        self._rebalance.restore(saved)

    def resume(self) -> None:
        """After a restart: each member has one session timeout for its next heartbeat."""
        for member in self._roster:
            self._replies.restart_session(member)
        if len(self._roster) > self._config.size_max:
            reason = f"{len(self._roster)} members, group.max.size is {self._config.size_max}"
            self._rebalance.happened(GroupEvent.SIZE_EXCEEDED, reason)

    def tombstones(self) -> list[GroupRecord]:
        """The records that delete the group from the log, without its offsets."""
        return [(encode_group_metadata_key(GroupMetadataKey(group=self.group_id)), None)]

    def stop(self) -> None:
        """Cancel all timers, and send members that wait to another coordinator."""
        self._rebalance.stop()
        self._pending.stop()
        self._sessions.stop()
        for member in self._roster:
            self._replies.dismiss(member, ErrorCode.not_coordinator, member.member_id)

    # --- requests ----------------------------------------------------------------------------

    def join(self, request: JoinRequest, reply: Deferred) -> None:
        """Answer at once, or when the rebalance that the member takes part in has ended."""
        self._admission.join(request, reply)
        self._abandon_if_unused()

    def sync(self, request: SyncRequest, reply: Deferred) -> None:
        """Answer with the member's assignment, once the leader's assignment is saved."""
        code = self._check(request.member_id, request.generation, request.group_instance_id)
        generation = self._rebalance.generation
        if code is ErrorCode.none and (
            request.protocol_type not in (None, generation.protocol_type)
            or request.protocol_name not in (None, generation.protocol_name)
        ):
            code = ErrorCode.inconsistent_group_protocol
        if code is not ErrorCode.none:
            reply.resolve(sync_error(code))
            return
        self._rebalance.sync(self._roster[request.member_id], request.assignments, reply)

    def heartbeat(
        self, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        code = self._check(member_id, generation, group_instance_id)
        if code is ErrorCode.none:
            self._replies.restart_session(self._roster[member_id])
            code = self._rebalance.happened(GroupEvent.HEARTBEAT).code
        return code

    def validate_commit(
        self, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Whether the sender may commit offsets. It restarts the session of a member."""
        names_member = generation >= 0 or member_id != NO_MEMBER_ID or group_instance_id is not None
        is_outside = generation < 0 and (not names_member or self.state is ClassicState.EMPTY)
        if is_outside and self.state is not ClassicState.DEAD:
            return self._rebalance.happened(GroupEvent.OUTSIDE_COMMIT).code
        code = self._check(member_id, generation, group_instance_id)
        if code is ErrorCode.none:
            code = self._rebalance.happened(GroupEvent.COMMIT).code
        if code is ErrorCode.none:
            self._replies.restart_session(self._roster[member_id])
        return code

    def validate_pending_commit(
        self, member_id: str, generation: int, group_instance_id: str | None
    ) -> ErrorCode:
        """Whether the sender may commit in a transaction. One that names no member always may."""
        if generation < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
            return ErrorCode.none
        return self._check(member_id, generation, group_instance_id)

    def leave(self, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members by member id and instance id; an admin gives the instance id alone."""
        if self.state is ClassicState.DEAD:
            return [ErrorCode.coordinator_not_available for _ in leaving]
        codes = self._departure.leave(leaving)
        self._abandon_if_unused()
        return codes

    def _check(self, member_id: str, generation: int, instance_id: str | None) -> ErrorCode:
        if self.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        code = self._roster.check(member_id, instance_id)
        if code is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return code

    def _pending_expired(self, member_id: str) -> None:
        self._rebalance.happened(GroupEvent.PENDING_EXPIRED)
        self._abandon_if_unused()

    def _abandon_if_unused(self) -> None:
        is_new = self.state is ClassicState.EMPTY and self.generation == 0
        if is_new and not self._roster and not self._pending:
            self._abandoned(self)
