"""How a classic group gets from one generation to the next: all join, one leads, all sync."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.broker.groups.classic.classic_answers import join_answer, sync_answer, sync_error
from cordwood.broker.groups.classic.classic_member import NO_MEMBER_ID, ClassicMember
from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.broker.groups.classic.generation import Generation
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.group_transitions import (
    Action,
    ClassicState,
    GroupEvent,
    Step,
    next_step,
)
from cordwood.broker.groups.classic.member_replies import MemberReplies
from cordwood.broker.groups.classic.rebalance_phases import JoinPhase, SyncPhase
from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.requests.request import Deferred
from cordwood.clock import Clock
from cordwood.format.groups.group_metadata import GroupMetadata
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import NO_TIMESTAMP, TimestampMs
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

_EXTENSION_MIN_MS: Final = 1_000  # clients may ask for a rebalance timeout of 0

Persist = Callable[[GroupMetadata, Callable[[ErrorCode], None]], None]


class ClassicRebalance:
    """The state and the generation of a group. Owned by one group; for the control loop alone.

    `happened` is the only place that changes the state. It takes the step that the table in
    `group_transitions` has for the event. Callers change the roster first, then report the event.
    """

    def __init__(
        self,
        group_id: str,
        *,
        roster: ClassicRoster,
        pending: SessionTimers,
        replies: MemberReplies,
        scheduler: Scheduler,
        clock: Clock,
        config: GroupConfig,
        persist: Persist,
    ) -> None:
        self.state = ClassicState.EMPTY
        self.state_since_ms: TimestampMs = NO_TIMESTAMP
        self.generation = Generation()
        self.join_phase = JoinPhase(scheduler, self._end_join)
        self.sync_phase = SyncPhase(scheduler, self._remove_late)
        self._group_id = group_id
        self._roster = roster
        self._pending = pending
        self._replies = replies
        self._clock = clock
        self._config = config
        self._persist = persist
        self._given: Mapping[str, bytes] = {}  # the assignment that is being written
        self._actions: Mapping[Action, Callable[[], None]] = {
            Action.COMPLETE_JOIN: self._complete_join,
            Action.START_FIRST_JOIN: self._start_first_join,
            Action.START_JOIN: self._start_join,
            Action.RESTART_JOIN: self._restart_join,
            Action.EXTEND_JOIN: self._extend_join,
            Action.BEGIN_GENERATION: self._begin_generation,
            Action.SAVE_EMPTY: self._save_empty,
            Action.HAND_OUT: self._hand_out,
        }

    def step(self, event: GroupEvent) -> Step:
        """What `event` would do now. Changes nothing."""
        return next_step(self.state, event)

    def happened(self, event: GroupEvent, reason: str = "") -> Step:
        """Take the step for `event`. The reason is logged if a rebalance begins."""
        step = next_step(self.state, event)
        if step.state is not self.state:
            if step.state is ClassicState.PREPARING_REBALANCE:
                number = self.generation.number
                logger.info(
                    "group %s: rebalance after generation %d: %s", self._group_id, number, reason
                )
            self.state = step.state
            self.state_since_ms = self._clock.now_ms()
        action = self._actions.get(step.action)
        if action is not None:
            action()
        return step

    def is_at(self, state: ClassicState, generation: Generation) -> bool:
        return self.state is state and self.generation.number == generation.number

    def restore(self, saved: GroupMetadata) -> None:
        """Take over a saved generation, whose members are in the roster."""
        restored = Generation(
            number=saved.generation,
            protocol_type=saved.protocol_type or None,
            protocol_name=saved.protocol,
        )
        self.generation = replace(restored, subscribed=restored.topics_of(self._roster))
        if self._roster:
            self.happened(GroupEvent.RESTORED)
        self.state_since_ms = saved.current_state_timestamp

    def begin_with(self, protocol_type: str) -> None:
        """The first member of an empty group determines the type of protocol."""
        self.generation = replace(self.generation, protocol_type=protocol_type)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member. The caller reports the event, after it removed all that it will."""
        self._roster.remove(member)
        self.sync_phase.settle(member.member_id)
        # If its client is still there, it joins as a new member.
        self._replies.dismiss(member, ErrorCode.unknown_member_id, NO_MEMBER_ID)

    def save(self, assignments: Mapping[str, bytes], done: Callable[[ErrorCode], None]) -> None:
        """Write the generation with these assignments to the log, then call `done`."""
        saved = self.generation.saved(self._roster, assignments, self.state_since_ms)
        self._persist(saved, done)

    def stop(self) -> None:
        self.happened(GroupEvent.STOPPED)
        self.join_phase.end()
        self.sync_phase.end()

    # --- joining -----------------------------------------------------------------------------

    def _start_first_join(self) -> None:
        self.join_phase.begin_first(
            step_ms=self._config.initial_rebalance_delay_ms,
            timeout_ms=self._roster.rebalance_timeout_ms,
        )

    def _restart_join(self) -> None:
        self._drop_assignments(ErrorCode.rebalance_in_progress)
        self._start_join()

    def _start_join(self) -> None:
        self.sync_phase.end()
        self.join_phase.begin(self._roster.rebalance_timeout_ms)
        self._complete_join()

    def _extend_join(self) -> None:
        self.join_phase.begin(max(self._roster.rebalance_timeout_ms, _EXTENSION_MIN_MS))

    def _complete_join(self) -> None:
        if not self.join_phase.is_first and not self._pending and self._roster.has_all_joined:
            self._end_join()

    def _end_join(self) -> None:
        """Go on with the members that joined. Static members may be late; others are removed."""
        self.join_phase.end()
        for member in self._roster:
            if not member.is_awaiting_join and not member.is_static:
                logger.info(
                    "group %s: member %s did not join in time; removed",
                    self._group_id,
                    member.member_id,
                )
                self.remove(member)
        if not self._roster:
            self.happened(GroupEvent.NO_MEMBERS)
        elif self._roster.elect_leader():
            self.happened(GroupEvent.MEMBERS_READY)
        else:
            self.happened(GroupEvent.ALL_ABSENT)

    def _begin_generation(self) -> None:
        self._count_up(self._roster.select_protocol())
        for member in self._roster:
            self._replies.answer_join(member, join_answer(member, self.generation, self._roster))
            member.is_new = False
        member_ids = [member.member_id for member in self._roster]
        self.sync_phase.begin(member_ids, self._roster.rebalance_timeout_ms)

    def _save_empty(self) -> None:
        self._count_up(None)
        # If this write fails, a restart restores members whose sessions then expire.
        self.save({}, lambda code: None)

    def _count_up(self, protocol_name: str | None) -> None:
        number = self.generation.number + 1
        following = replace(self.generation, number=number, protocol_name=protocol_name)
        self.generation = replace(following, subscribed=following.topics_of(self._roster))

    # --- syncing -----------------------------------------------------------------------------

    def sync(
        self, member: ClassicMember, assignments: Mapping[str, bytes], reply: Deferred
    ) -> None:
        """Answer once the leader's assignment is saved; at once if it is."""
        step = self.happened(GroupEvent.SYNC)
        if step.code is not ErrorCode.none:
            reply.resolve(sync_error(step.code))
            return
        self.sync_phase.settle(member.member_id)
        self._replies.hold_sync(member, reply)
        if step.action is Action.ANSWER:
            self._replies.answer_sync(member, sync_answer(member, self.generation))
        elif member.member_id == self._roster.leader_id and not self.is_saving:
            self._save_assignments(assignments)

    @property
    def is_saving(self) -> bool:
        """Whether the leader's assignment for this generation has arrived."""
        return self.sync_phase.saving == self.generation.number

    def _save_assignments(self, assignments: Mapping[str, bytes]) -> None:
        # A second assignment of the same generation is ignored: it would be in the log after
        # the one that members are given.
        generation = self.generation
        self.sync_phase.saving = generation.number
        self._given = {m.member_id: assignments.get(m.member_id, b"") for m in self._roster}

        def saved(code: ErrorCode) -> None:
            if not self.is_at(ClassicState.COMPLETING_REBALANCE, generation):
                return  # a member joined or left meanwhile: all members join again
            if code is ErrorCode.none:
                self.happened(GroupEvent.ASSIGNMENT_SAVED)
                return
            self._drop_assignments(code)
            reason = f"the assignment could not be saved: {code.name}"
            self.happened(GroupEvent.ASSIGNMENT_NOT_SAVED, reason)

        self.save(self._given, saved)

    def _hand_out(self) -> None:
        for member in self._roster:
            member.assignment = self._given[member.member_id]
            self._replies.answer_sync(member, sync_answer(member, self.generation))

    def _drop_assignments(self, code: ErrorCode) -> None:
        for member in self._roster:
            member.assignment = b""
            self._replies.answer_sync(member, sync_error(code))

    def _remove_late(self, member_ids: list[str]) -> None:
        for member in self._roster:
            if member.member_id in member_ids:
                self.remove(member)
        if member_ids:
            self.happened(GroupEvent.SYNCS_OVERDUE, "members did not sync in time")
