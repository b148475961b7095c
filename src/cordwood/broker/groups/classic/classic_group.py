"""A group of the classic protocol: members join, a leader shares out the work, all heartbeat.

    Empty ──join──> PreparingRebalance ──all joined──> CompletingRebalance ──leader syncs──> Stable
      ^                  │   ^  ^                              │                               │
      └──nobody left─────┘   │  └───member comes, goes─────────┴───────────────────────────────┘
                             └──again, while nobody has joined

Pure: no I/O and no thread of its own. It is moved by calls and by timers of its scheduler, all
on one thread. What must survive goes to `persist`, and those who wait are answered afterwards.
Kafka's rules, also where they are odd: clients rely on them.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cordwood.broker.groups.classic.classic_member import (
    NO_MEMBER_ID,
    ClassicMember,
    JoinRequest,
    metadata_size,
)
from cordwood.broker.groups.classic.classic_membership import ClassicState, Persist, join_error
from cordwood.broker.groups.classic.classic_rebalance import ClassicRebalance
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.net.request import Deferred
from cordwood.broker.net.scheduler import Scheduler
from cordwood.clock import Clock
from cordwood.format.groups.group_metadata import GroupMetadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, encode_group_metadata_key
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode

# A new member has no id to heartbeat with until its join is answered; should its client be gone,
# it must not hold up the others for ever.
_NEW_MEMBER_TIMEOUT_MS: Final = 300_000
_PENDING_MAX: Final = 10_000  # members told their id and not back yet: each costs a timer
_ID_CHARS_MAX: Final = 1_000  # of a client's or instance's name in a member id


class ClassicGroup(ClassicRebalance):
    """One group, as requests see it. For the control loop alone.

    `persist` appends a generation to the log and then says how that went; `abandoned` is called
    when nothing is left of a group that nobody ever joined.
    """

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
        super().__init__(
            group_id,
            scheduler=scheduler,
            clock=clock,
            config=config,
            budget=budget,
            persist=persist,
        )
        self._abandoned = abandoned

    def restore(self, saved: GroupMetadata) -> None:
        """Become what was last saved. `resume` starts the clocks."""
        assert self.generation == 0, self.group_id
        assert not self._roster, self.group_id
        self.generation = saved.generation
        self.protocol_type = saved.protocol_type or None
        self.protocol_name = saved.protocol
        self.state = ClassicState.STABLE if saved.members else ClassicState.EMPTY
        self.state_since_ms = saved.current_state_timestamp
        for member in saved.members:
            self._roster.add(
                ClassicMember.restored(member, saved.protocol_type, saved.protocol or "")
            )
        if saved.leader in self._roster:
            self._roster.leader_id = saved.leader
        self._subscribed = self._find_subscribed()

    def resume(self) -> None:
        """After a restart: members have their session timeout to be heard of again."""
        for member in self._roster:
            self._expect_heartbeat(member, member.session_timeout_ms)
        if len(self._roster) > self._config.size_max:
            self._prepare_rebalance("it has more members than group.max.size allows")

    def tombstones(self) -> list[GroupRecord]:
        """The records that end what is kept of the group, but for its offsets."""
        return [(encode_group_metadata_key(GroupMetadataKey(group=self.group_id)), None)]

    def stop(self) -> None:
        """Nobody will call again: cancel the timers, send those who wait elsewhere."""
        self._enter(ClassicState.DEAD)
        self._stop_join_timer()
        self._forget_syncs()
        for timer in self._roster.pending.values():
            timer.cancel()
        self._roster.pending.clear()
        for member in self._roster:
            member.stop_timer()
            self._refuse_join(member, ErrorCode.not_coordinator, member.member_id)
            self._answer_sync(member, ErrorCode.not_coordinator)

    # --- join --------------------------------------------------------------------------------

    def join(self, request: JoinRequest, reply: Deferred) -> None:
        """Answer when the rebalance that it takes part in is done, or at once."""
        code = self._refusal(request)
        if code is not ErrorCode.none:
            is_full = code is ErrorCode.group_max_size_reached
            reply.resolve(join_error(code, NO_MEMBER_ID if is_full else request.member_id))
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(request, reply)
        elif request.member_id in self._roster.pending and request.group_instance_id is None:
            self._roster.pending.pop(request.member_id).cancel()
            self._add(request.member_id, request, reply)
        else:
            self._rejoin(request, reply)
        self._abandon_if_unused()

    def _refusal(self, request: JoinRequest) -> ErrorCode:
        if self.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        if not self._has_room_for(request):
            member = self._roster.get(request.member_id)
            if member is not None:
                self._remove(member)
                self._complete_if_all_joined()
            return ErrorCode.group_max_size_reached
        known = self._roster.get(request.member_id)
        held = 0 if known is None else metadata_size(known.protocols)
        if not self._budget.has_room_for(metadata_size(request.protocols) - held):
            return ErrorCode.coordinator_not_available
        names = [name for name, _ in request.protocols]
        if self.state is ClassicState.EMPTY:
            fits = bool(request.protocol_type) and bool(names)
        else:
            fits = self.protocol_type == request.protocol_type and self._roster.supports_any(names)
        return ErrorCode.none if fits else ErrorCode.inconsistent_group_protocol

    def _has_room_for(self, request: JoinRequest) -> bool:
        """Room is by those who joined while a rebalance is prepared: the last lose their place."""
        instance_id = request.group_instance_id
        known = self._roster.static_id(instance_id) if instance_id is not None else None
        member = self._roster.get(known or request.member_id)
        if self.state is ClassicState.PREPARING_REBALANCE:
            has_joined = member is not None and member.is_awaiting_join
            return has_joined or self._roster.awaiting_join_count < self._config.size_max
        return (
            self.state is ClassicState.EMPTY
            or member is not None
            or len(self._roster) < self._config.size_max
        )

    def _join_new(self, request: JoinRequest, reply: Deferred) -> None:
        name = request.group_instance_id
        owner = request.client_id if name is None else name
        member_id = f"{owner[:_ID_CHARS_MAX]}-{uuid.uuid4()}"
        known = None if name is None else self._roster.static_id(name)
        if known is not None:
            old = self._roster.get(known)
            assert old is not None, known
            self._replace_static(old, member_id, request, reply)
        elif name is None and request.needs_known_member_id:
            if len(self._roster.pending) >= min(_PENDING_MAX, self._config.size_max):
                reply.resolve(join_error(ErrorCode.group_max_size_reached))
                return
            self._roster.pending[member_id] = self._scheduler.call_later(
                request.session_timeout_ms / 1000, lambda: self._pending_expired(member_id)
            )
            reply.resolve(join_error(ErrorCode.member_id_required, member_id))
        else:
            self._add(member_id, request, reply)

    def _rejoin(self, request: JoinRequest, reply: Deferred) -> None:
        code = self._check_member(request.member_id, request.group_instance_id)
        if code is not ErrorCode.none:
            reply.resolve(join_error(code, request.member_id))
            return
        member = self._roster.get(request.member_id)
        assert member is not None, request
        is_leader = member.member_id == self._roster.leader_id
        has_changed = member.protocols != request.protocols
        # A leader that joins again asks for a rebalance: it may know of new partitions.
        if (
            self.state is ClassicState.PREPARING_REBALANCE
            or has_changed
            or (is_leader and self.state is ClassicState.STABLE)
        ):
            self._update(member, request, reply)
            self._rebalance(f"member {member.member_id} joins again")
        elif self.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            # Probably it missed the answer to its last join.
            reply.resolve(self._joined(member))
        else:
            reply.resolve(join_error(ErrorCode.unknown_member_id, member.member_id))

    def _add(self, member_id: str, request: JoinRequest, reply: Deferred) -> None:
        if not self._roster:
            self.protocol_type = request.protocol_type
        member = ClassicMember.joining(member_id, request)
        member.join_reply = reply
        self._roster.add(member)
        self._expect_heartbeat(member, _NEW_MEMBER_TIMEOUT_MS)
        if self._is_initial_rebalance:
            self._has_grown = True
        self._rebalance(f"member {member_id} joins")

    def _update(self, member: ClassicMember, request: JoinRequest, reply: Deferred) -> None:
        self._roster.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        # An earlier join of the same member: its client has given up on that connection.
        self._refuse_join(member, ErrorCode.rebalance_in_progress, member.member_id)
        member.join_reply = reply

    def _replace_static(
        self, old: ClassicMember, member_id: str, request: JoinRequest, reply: Deferred
    ) -> None:
        """The instance was started again: it takes the place of what it was before."""
        old_leader_id = self._roster.leader_id
        new = replace(
            old,
            member_id=member_id,
            client_id=request.client_id,
            client_host=request.client_host,
            is_new=False,
            join_reply=None,
            sync_reply=None,
            timer=None,
        )
        old.stop_timer()
        self._refuse_join(old, ErrorCode.fenced_instance_id, old.member_id)
        self._answer_sync(old, ErrorCode.fenced_instance_id)
        self._roster.replace(old, new)
        self._unsynced.discard(old.member_id)
        self._expect_heartbeat(new, new.session_timeout_ms)
        before = self._find_subscribed()
        self._update(new, request, reply)
        is_same_work = (
            self.state is ClassicState.STABLE
            and self._roster.select_protocol() == self.protocol_name
            and self._find_subscribed() == before
        )
        if is_same_work:
            self._save_replacement(old, new, old_leader_id, request)
        else:
            self._rebalance(f"instance {request.group_instance_id} was started again")

    def _save_replacement(
        self,
        old: ClassicMember,
        new: ClassicMember,
        old_leader_id: str | None,
        request: JoinRequest,
    ) -> None:
        """Nobody else need notice. The new member id is good once it is on disk."""
        generation, reply = self.generation, new.join_reply

        def saved(code: ErrorCode) -> None:
            if not self._is_at(ClassicState.STABLE, generation) or new.join_reply is not reply:
                return  # a rebalance came between and will answer, or it left, or came yet again
            if code is not ErrorCode.none:
                new.stop_timer()
                self._roster.replace(new, old)
                self._expect_heartbeat(old, old.session_timeout_ms)
                self._refuse_join(new, code, NO_MEMBER_ID)
                return
            answer = self._joined(new)
            if request.can_skip_assignment:
                answer["skip_assignment"] = new.member_id == self._roster.leader_id
            else:
                # An old client that is told it leads would assign anew, and nobody would ask it.
                answer.update(leader=old_leader_id or NO_MEMBER_ID, members=[])
            self._answer_join(new, answer)

        self._persist(self._described({m.member_id: m.assignment for m in self._roster}), saved)

    # --- pending members ----------------------------------------------------------------------

    def _pending_expired(self, member_id: str) -> None:
        if self._roster.pending.pop(member_id, None) is not None:
            self._complete_if_all_joined()
            self._abandon_if_unused()

    def _abandon_if_unused(self) -> None:
        if (
            self.state is ClassicState.EMPTY
            and self.generation == 0
            and not self._roster
            and not self._roster.pending
        ):
            self._abandoned(self)

    # --- heartbeat, leave, commit --------------------------------------------------------------

    def heartbeat(
        self, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        code = self._check_member(member_id, group_instance_id)
        if code is not ErrorCode.none:
            return code
        if generation != self.generation:
            return ErrorCode.illegal_generation
        self.touch(member_id)
        if self.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def touch(self, member_id: str) -> None:
        """The member was heard of."""
        member = self._roster.get(member_id)
        if member is not None:
            self._expect_heartbeat(member, member.session_timeout_ms)

    def leave(self, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Let members go, each by its id and instance id; by the latter alone, an admin's wish."""
        codes = [self._leave_one(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.none in codes:
            if self.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                self._prepare_rebalance("members left")
            elif not self._is_initial_rebalance:
                self._complete_if_all_joined()
        self._abandon_if_unused()
        return codes

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self._roster.pending:
            self._roster.pending.pop(member_id).cancel()
            return ErrorCode.none
        if member_id == NO_MEMBER_ID and instance_id is not None:
            member_id = self._roster.static_id(instance_id) or NO_MEMBER_ID
        code = self._check_member(member_id, instance_id)
        member = self._roster.get(member_id)
        if code is ErrorCode.none and member is not None:
            self._remove(member)
        return code

    def validate_commit(
        self, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Whether who sends this may commit; if it is a member, it was heard of."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        is_member = generation >= 0 or member_id != NO_MEMBER_ID or group_instance_id is not None
        if self.state is ClassicState.EMPTY and generation < 0:
            return ErrorCode.none  # an admin, or a consumer that assigns itself
        if not is_member:
            return ErrorCode.unknown_member_id
        code = self._check_member(member_id, group_instance_id)
        if code is not ErrorCode.none:
            return code
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        self.touch(member_id)
        return ErrorCode.none
