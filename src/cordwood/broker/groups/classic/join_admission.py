"""What happens to a JoinGroup request: refused, given a member id, added, or updated."""

import uuid
from typing import Final

from cordwood.broker.groups.classic.classic_answers import join_answer, join_error
from cordwood.broker.groups.classic.classic_member import (
    NO_MEMBER_ID,
    ClassicMember,
    JoinRequest,
    metadata_size,
)
from cordwood.broker.groups.classic.classic_rebalance import ClassicRebalance
from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import Action, ClassicState, GroupEvent
from cordwood.broker.groups.classic.member_replies import MemberReplies
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.broker.net.requests.request import Deferred, Response
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass, replace

# A new member cannot send heartbeats until its join is answered. If its client is gone, it must
# not hold up the others for longer than this.
_NEW_MEMBER_TIMEOUT_MS: Final = 300_000
_PENDING_MAX: Final = 10_000  # member ids given out and not used yet: each costs a timer
_ID_CHARS_MAX: Final = 1_000  # of the client's or instance's name in a member id


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAdmission:
    """Lets members into a group. Owned by one group; for the control loop alone."""

    roster: ClassicRoster
    pending: SessionTimers
    sessions: SessionTimers
    replies: MemberReplies
    rebalance: ClassicRebalance
    config: GroupConfig
    budget: MetadataBudget

    def join(self, request: JoinRequest, reply: Deferred) -> None:
        """Answer at once, or when the rebalance that the member takes part in has ended."""
        code = self._refusal(request)
        if code is not ErrorCode.none:
            is_full = code is ErrorCode.group_max_size_reached
            reply.resolve(join_error(code, NO_MEMBER_ID if is_full else request.member_id))
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(request, reply)
        elif request.member_id in self.pending and request.group_instance_id is None:
            self.pending.forget(request.member_id)
            self._add(request.member_id, request, reply)
        else:
            self._rejoin(request, reply)

    def _refusal(self, request: JoinRequest) -> ErrorCode:
        if self.rebalance.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        known = self.roster.get(request.member_id)
        if not self._has_room_for(request):
            if known is not None:
                self.rebalance.remove(known)
                self.rebalance.happened(GroupEvent.MEMBERS_LEFT)
            return ErrorCode.group_max_size_reached
        held = 0 if known is None else metadata_size(known.protocols)
        if not self.budget.has_room_for(metadata_size(request.protocols) - held):
            return ErrorCode.coordinator_not_available
        names = [name for name, _ in request.protocols]
        if self.rebalance.state is ClassicState.EMPTY:
            is_consistent = bool(request.protocol_type) and bool(names)
        else:
            protocol_type = self.rebalance.generation.protocol_type
            is_same_type = protocol_type == request.protocol_type
            is_consistent = is_same_type and self.roster.supports_any(names)
        return ErrorCode.none if is_consistent else ErrorCode.inconsistent_group_protocol

    def _has_room_for(self, request: JoinRequest) -> bool:
        """During the join phase only joined members count: the last to join lose their place."""
        instance_id = request.group_instance_id
        known = self.roster.static_id(instance_id) if instance_id is not None else None
        member = self.roster.get(known or request.member_id)
        state = self.rebalance.state
        if state is ClassicState.PREPARING_REBALANCE:
            has_joined = member is not None and member.is_awaiting_join
            return has_joined or self.roster.awaiting_join_count < self.config.size_max
        return (
            state is ClassicState.EMPTY
            or member is not None
            or len(self.roster) < self.config.size_max
        )

    # --- new members -------------------------------------------------------------------------

    def _join_new(self, request: JoinRequest, reply: Deferred) -> None:
        name = request.group_instance_id
        owner = request.client_id if name is None else name
        member_id = f"{owner[:_ID_CHARS_MAX]}-{uuid.uuid4()}"
        known = None if name is None else self.roster.static_id(name)
        if known is not None:
            self._replace_static(self.roster[known], member_id, request, reply)
        elif name is None and request.needs_known_member_id:
            if len(self.pending) >= min(_PENDING_MAX, self.config.size_max):
                reply.resolve(join_error(ErrorCode.group_max_size_reached))
                return
            self.pending.expect(member_id, request.session_timeout_ms)
            reply.resolve(join_error(ErrorCode.member_id_required, member_id))
        else:
            self._add(member_id, request, reply)

    def _add(self, member_id: str, request: JoinRequest, reply: Deferred) -> None:
        if not self.roster:
            self.rebalance.begin_with(request.protocol_type)
        member = ClassicMember.joining(member_id, request)
        self.roster.add(member)
        self.replies.hold_join(member, reply)
        self.sessions.expect(member_id, _NEW_MEMBER_TIMEOUT_MS)
        self.rebalance.join_phase.member_added()
        self.rebalance.happened(GroupEvent.MEMBER_JOINED, f"member {member_id} joined")

    # --- known members -----------------------------------------------------------------------

    def _rejoin(self, request: JoinRequest, reply: Deferred) -> None:
        code = self.roster.check(request.member_id, request.group_instance_id)
        if code is not ErrorCode.none:
            reply.resolve(join_error(code, request.member_id))
            return
        member = self.roster[request.member_id]
        event = self._rejoin_event(member, request)
        if self.rebalance.step(event).action is Action.ANSWER:
            reply.resolve(join_answer(member, self.rebalance.generation, self.roster))
            return
        self._update(member, request, reply)
        self.rebalance.happened(event, f"member {member.member_id} joined again")

    def _rejoin_event(self, member: ClassicMember, request: JoinRequest) -> GroupEvent:
        if member.protocols != request.protocols:
            return GroupEvent.MEMBER_JOINED
        is_leader = member.member_id == self.roster.leader_id
        return GroupEvent.LEADER_REJOINED if is_leader else GroupEvent.MEMBER_REJOINED

    def _update(self, member: ClassicMember, request: JoinRequest, reply: Deferred) -> None:
        self.roster.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.replies.hold_join(member, reply)

    # --- static members (KIP-345) ------------------------------------------------------------

    def _replace_static(
        self, old: ClassicMember, member_id: str, request: JoinRequest, reply: Deferred
    ) -> None:
        """An instance was restarted: its new member takes the place of its old one."""
        old_leader_id = self.roster.leader_id
        new = replace(
            old,
            member_id=member_id,
            client_id=request.client_id,
            client_host=request.client_host,
            is_new=False,
            join_reply=None,
            sync_reply=None,
        )
        self.replies.dismiss(old, ErrorCode.fenced_instance_id, old.member_id)
        self.roster.replace(old, new)
        self.rebalance.sync_phase.settle(old.member_id)
        self.replies.restart_session(new)
        topics = self.rebalance.generation.topics_of(self.roster)
        self._update(new, request, reply)
        is_same_work = (
            self.roster.select_protocol() == self.rebalance.generation.protocol_name
            and self.rebalance.generation.topics_of(self.roster) == topics
        )
        event = GroupEvent.INSTANCE_RESTARTED if is_same_work else GroupEvent.MEMBER_JOINED
        step = self.rebalance.happened(event, f"instance {request.group_instance_id} restarted")
        if step.action is Action.SAVE_INSTANCE:
            self._save_instance(old, new, old_leader_id, request)

    def _save_instance(
        self,
        old: ClassicMember,
        new: ClassicMember,
        old_leader_id: str | None,
        request: JoinRequest,
    ) -> None:
        """The others need not join again. The new member id is valid once it is durable."""
        generation, reply = self.rebalance.generation, new.join_reply

        def saved(code: ErrorCode) -> None:
            is_stable = self.rebalance.is_at(ClassicState.STABLE, generation)
            if not is_stable or new.join_reply is not reply:
                return  # a rebalance answers instead, or the member left or joined once more
            if code is ErrorCode.none:
                self.replies.answer_join(new, self._restarted(new, old_leader_id, request))
                return
            self.roster.replace(new, old)
            self.replies.dismiss(new, code, NO_MEMBER_ID)
            self.replies.restart_session(old)

        self.rebalance.save({m.member_id: m.assignment for m in self.roster}, saved)

    def _restarted(
        self, new: ClassicMember, old_leader_id: str | None, request: JoinRequest
    ) -> Response:
        generation = self.rebalance.generation
        if request.can_skip_assignment:
            is_leader = new.member_id == self.roster.leader_id
            return join_answer(new, generation, self.roster, skips_assignment=is_leader)
        # An old client that is named as the leader would send an assignment that is not used.
        answer = join_answer(new, generation, self.roster)
        return {**answer, "leader": old_leader_id or NO_MEMBER_ID, "members": []}
