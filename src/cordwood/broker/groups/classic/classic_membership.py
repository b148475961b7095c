"""The members of a classic group: who they are, whether they are heard of, how they are answered.

`ClassicRebalance` adds how they agree on who does what, `ClassicGroup` what they may ask.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from cordwood.broker.groups.classic.classic_member import NO_GENERATION, NO_MEMBER_ID, ClassicMember
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.member_roster import MemberRoster
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.net.request import Deferred, Response
from cordwood.broker.net.scheduler import Scheduler
from cordwood.clock import Clock
from cordwood.format.groups.consumer_subscription import subscribed_topics
from cordwood.format.groups.group_metadata import GroupMetadata
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import NO_TIMESTAMP, TimestampMs

logger = logging.getLogger(__name__)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_RESOLUTION_S: Final = 0.001

Persist = Callable[[GroupMetadata, Callable[[ErrorCode], None]], None]


class ClassicState(Enum):
    """Where a group is in its life, as clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicMembership(ABC):
    """What a group knows of its members. For the control loop alone.

    Those who wait are answered by way of the scheduler, never from within a change: an answer
    may bring in the next request at once.
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
    ) -> None:
        self.group_id = group_id
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.state = ClassicState.EMPTY
        self.state_since_ms: TimestampMs = NO_TIMESTAMP
        self._previous_state = ClassicState.EMPTY
        self._scheduler = scheduler
        self._clock = clock
        self._config = config
        self._persist = persist
        self._budget = budget
        self._roster = MemberRoster(budget)
        self._subscribed: frozenset[str] | None = None
        self._unsynced: set[str] = set()  # joined, and not asked for their assignment yet

    # --- what others ask ---------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self._roster)

    @property
    def pending_count(self) -> int:
        """Members that were told their id and have not come back yet."""
        return len(self._roster.pending)

    @property
    def is_empty(self) -> bool:
        return self.state in (ClassicState.EMPTY, ClassicState.DEAD)

    @property
    def leader_id(self) -> str | None:
        return self._roster.leader_id

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def members(self) -> list[ClassicMember]:
        return list(self._roster)

    def subscribed_topics(self) -> frozenset[str] | None:
        """What the members of this generation read; None where the group does not know."""
        return self._subscribed

    # --- sessions ----------------------------------------------------------------------------

    def _expect_heartbeat(self, member: ClassicMember, timeout_ms: int) -> None:
        """Only the deadline moves with each heartbeat; the timer looks at it when it is due."""
        member.deadline_s = self._scheduler.now_s() + timeout_ms / 1000
        if member.timer is None or member.timer_due_s > member.deadline_s:
            member.stop_timer()
            self._arm(member)

    def _arm(self, member: ClassicMember) -> None:
        member.timer_due_s = member.deadline_s
        delay_s = max(member.deadline_s - self._scheduler.now_s(), 0.0)
        member.timer = self._scheduler.call_later(delay_s, lambda: self._session_due(member))

    def _session_due(self, member: ClassicMember) -> None:
        member.timer = None
        if self._roster.get(member.member_id) is not member:
            return
        if self._scheduler.now_s() + _RESOLUTION_S < member.deadline_s:
            self._arm(member)
        elif not member.is_excused:
            logger.info("group %s has not heard of %s", self.group_id, member.member_id)
            self._remove(member)
            self._member_lost(f"the session of {member.member_id} ran out")

    @abstractmethod
    def _member_lost(self, reason: str) -> None:
        """A member was removed: see what that means for the others."""

    # --- the parts of it ---------------------------------------------------------------------

    def _check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if self.state is ClassicState.DEAD:
            return ErrorCode.coordinator_not_available
        if group_instance_id is not None:
            known = self._roster.static_id(group_instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self._roster else ErrorCode.unknown_member_id

    def _remove(self, member: ClassicMember) -> None:
        member.stop_timer()
        self._roster.remove(member)
        self._unsynced.discard(member.member_id)
        # Its client, should it still be there, joins anew.
        self._refuse_join(member, ErrorCode.unknown_member_id, NO_MEMBER_ID)
        self._answer_sync(member, ErrorCode.unknown_member_id)

    def _enter(self, state: ClassicState) -> None:
        self._previous_state, self.state = self.state, state
        self.state_since_ms = self._clock.now_ms()

    def _is_at(self, state: ClassicState, generation: int) -> bool:
        return self.state is state and self.generation == generation

    def _find_subscribed(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        found: frozenset[str] = frozenset()
        for member in self._roster:
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            found |= topics
        return found

    # --- answers -----------------------------------------------------------------------------

    def _joined(self, member: ClassicMember) -> dict[str, Any]:
        is_leader = member.member_id == self._roster.leader_id
        return {
            "error_code": ErrorCode.none,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "leader": self._roster.leader_id or NO_MEMBER_ID,
            "skip_assignment": False,
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": other.member_id,
                    "group_instance_id": other.group_instance_id,
                    "metadata": other.metadata(self.protocol_name),
                }
                for other in (self._roster if is_leader else ())
            ],
        }

    def _answer_join(self, member: ClassicMember, answer: Mapping[str, Any]) -> None:
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self._answer(reply, answer)

    def _answer(self, reply: Deferred, answer: Response) -> None:
        def answer_now() -> None:
            reply.resolve(answer)

        self._scheduler.call_soon(answer_now)

    def _refuse_join(self, member: ClassicMember, code: ErrorCode, member_id: str) -> None:
        self._answer_join(member, join_error(code, member_id))

    def _answer_sync(self, member: ClassicMember, code: ErrorCode) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is None:
            return
        if code is not ErrorCode.none:
            self._answer(reply, sync_error(code))
            return
        self._expect_heartbeat(member, member.session_timeout_ms)
        self._answer(
            reply,
            {
                "error_code": ErrorCode.none,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocol_name,
                "assignment": member.assignment,
            },
        )

    def _described(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self._roster.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=tuple(
                member.saved(self.protocol_name, assignments[member.member_id])
                for member in self._roster
                if member.member_id in assignments
            ),
        )


def join_error(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> dict[str, Any]:
    return {
        "error_code": code,
        "generation_id": NO_GENERATION,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def sync_error(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}
