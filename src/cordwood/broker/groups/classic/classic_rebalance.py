"""How the members of a classic group come to agree: all join, one leads, each gets its part."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.broker.groups.classic.classic_member import NO_GENERATION, SyncRequest
from cordwood.broker.groups.classic.classic_membership import (
    ClassicMembership,
    ClassicState,
    Persist,
    sync_error,
)
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.net.request import Deferred
from cordwood.broker.net.scheduler import Scheduler, Timer
from cordwood.clock import Clock
from cordwood.protocol.error_code import ErrorCode

logger = logging.getLogger(__name__)

_ABSENT_RETRY_MIN_MS: Final = 1_000  # a client may have asked not to be waited for at all


class ClassicRebalance(ClassicMembership):
    """The way from one generation to the next. For the control loop alone."""

    def __init__(
        self,
        group_id: str,
        *,
        scheduler: Scheduler,
        clock: Clock,
        config: GroupConfig,
        budget: MetadataBudget,
        persist: Persist,
    ) -> None:
        super().__init__(
            group_id,
            scheduler=scheduler,
            clock=clock,
            config=config,
            budget=budget,
            persist=persist,
        )
        self._has_grown = False  # since the initial rebalance was last put off
        self._saving = NO_GENERATION  # the generation whose assignments are on their way to disk
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None

    # --- rebalance ---------------------------------------------------------------------------

    @property
    def _is_initial_rebalance(self) -> bool:
        return (
            self.state is ClassicState.PREPARING_REBALANCE
            and self._previous_state is ClassicState.EMPTY
        )

    def _rebalance(self, reason: str) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE:
            if not self._is_initial_rebalance:
                self._complete_if_all_joined()
        else:
            self._prepare_rebalance(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self._reset_assignments(ErrorCode.rebalance_in_progress)
        self._forget_syncs()
        is_initial = self.state is ClassicState.EMPTY
        self._enter(ClassicState.PREPARING_REBALANCE)
        logger.info(
            "group %s prepares a rebalance after generation %d: %s",
            self.group_id,
            self.generation,
            reason,
        )
        if is_initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            left_ms = max(self._roster.rebalance_timeout_ms - delay_ms, 0)
            self._has_grown = False
            self._start_join_timer(delay_ms, lambda: self._initial_delay_over(delay_ms, left_ms))
        elif self._roster.has_all_joined:
            self._complete_join()
        else:
            self._start_join_timer(self._roster.rebalance_timeout_ms, self._complete_join)

    def _initial_delay_over(self, delay_ms: int, left_ms: int) -> None:
        """More members came while we waited: wait for others that start with them."""
        if self._has_grown and left_ms > 0:
            self._has_grown = False
            next_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
            after_ms = max(left_ms - delay_ms, 0)
            self._start_join_timer(next_ms, lambda: self._initial_delay_over(next_ms, after_ms))
        else:
            self._complete_join()

    def _member_lost(self, reason: str) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE:
            self._complete_if_all_joined()
        else:
            self._prepare_rebalance(reason)

    def _complete_if_all_joined(self) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE and self._roster.has_all_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation with those who joined; instances may be late, others not."""
        self._stop_join_timer()
        for member in self._roster:
            if not member.is_awaiting_join and not member.is_static:
                logger.info("group %s goes on without %s", self.group_id, member.member_id)
                self._remove(member)
        if self._roster and not self._roster.elect_leader():
            # Instances that are all away: their sessions decide.
            timeout_ms = max(self._roster.rebalance_timeout_ms, _ABSENT_RETRY_MIN_MS)
            self._start_join_timer(timeout_ms, self._complete_join)
            return
        self.generation += 1
        if not self._roster:
            self._become_empty()
            return
        self.protocol_name = self._roster.select_protocol()
        self._subscribed = self._find_subscribed()
        self._enter(ClassicState.COMPLETING_REBALANCE)
        for member in self._roster:
            self._answer_join(member, self._joined(member))
            self._expect_heartbeat(member, member.session_timeout_ms)
            member.is_new = False
            self._unsynced.add(member.member_id)
        timeout_s = self._roster.rebalance_timeout_ms / 1000
        self._sync_timer = self._scheduler.call_later(timeout_s, self._syncs_overdue)

    def _start_join_timer(self, delay_ms: int, function: Callable[[], None]) -> None:
        self._stop_join_timer()
        self._join_timer = self._scheduler.call_later(delay_ms / 1000, function)

    def _stop_join_timer(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None

    def _become_empty(self) -> None:
        self.protocol_name = None
        self._subscribed = self._find_subscribed()
        self._enter(ClassicState.EMPTY)
        # Should it not get there, a restart finds members that will not be heard of.
        self._persist(self._described({}), lambda code: None)

    # --- sync --------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, reply: Deferred) -> None:
        """Answer with the member's assignment, once the leader gave it and it is saved."""
        code = self._check_sync(request)
        if code is not ErrorCode.none:
            reply.resolve(sync_error(code))
            return
        member = self._roster.get(request.member_id)
        assert member is not None, request
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._forget_syncs()
        if self.state is ClassicState.STABLE:
            member.sync_reply = reply
            self._answer_sync(member, ErrorCode.none)
            return
        self._answer_sync(member, ErrorCode.rebalance_in_progress)  # a sync it has given up on
        member.sync_reply = reply
        if member.member_id == self._roster.leader_id and self._saving != self.generation:
            self._save_assignments(request.assignments)

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        code = self._check_member(request.member_id, request.group_instance_id)
        if code is not ErrorCode.none:
            return code
        if request.generation != self.generation:
            return ErrorCode.illegal_generation
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.inconsistent_group_protocol
        if self.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _save_assignments(self, assignments: Mapping[str, bytes]) -> None:
        # Should the leader send others before these are saved, they would be on disk after them.
        generation = self._saving = self.generation
        given = {m.member_id: assignments.get(m.member_id, b"") for m in self._roster}

        def saved(code: ErrorCode) -> None:
            if not self._is_at(ClassicState.COMPLETING_REBALANCE, generation):
                return  # someone came or went meanwhile: all are joining again
            if code is not ErrorCode.none:
                self._reset_assignments(code)
                self._prepare_rebalance(f"its assignment could not be saved: {code.name}")
                return
            self._enter(ClassicState.STABLE)
            for member in self._roster:
                member.assignment = given[member.member_id]
                self._answer_sync(member, ErrorCode.none)

        self._persist(self._described(given), saved)

    def _reset_assignments(self, code: ErrorCode) -> None:
        for member in self._roster:
            member.assignment = b""
            self._answer_sync(member, code)

    def _forget_syncs(self) -> None:
        self._unsynced.clear()
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _syncs_overdue(self) -> None:
        """Members that joined and never asked for their assignment are gone."""
        self._sync_timer = None
        late = [member for member in self._roster if member.member_id in self._unsynced]
        for member in late:
            self._remove(member)
        if late:
            self._prepare_rebalance("members did not sync in time")
