"""How members get out of a classic group: they leave, or their session expires."""

import logging

from cordwood.broker.groups.classic.classic_member import NO_MEMBER_ID
from cordwood.broker.groups.classic.classic_rebalance import ClassicRebalance
from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.broker.groups.classic.group_transitions import GroupEvent
from cordwood.broker.groups.classic.member_replies import MemberReplies
from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDeparture:
    """Removes members of a group. Owned by one group; for the control loop alone."""

    group_id: str
    roster: ClassicRoster
    pending: SessionTimers
    replies: MemberReplies
    rebalance: ClassicRebalance

    def leave(self, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members by member id and instance id; an admin gives the instance id alone."""
        codes = [self._leave_one(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.none in codes:
            self.rebalance.happened(GroupEvent.MEMBERS_LEFT, "members left")
        return codes

    def expire(self, member_id: str) -> None:
        """Remove a member whose session expired, unless it waits for an answer of ours."""
        member = self.roster[member_id]
        if member.is_excused:
            self.replies.restart_session(member)
            return
        logger.info("group %s: no heartbeat from %s; removed", self.group_id, member_id)
        self.rebalance.remove(member)
        reason = f"the session of {member_id} expired"
        self.rebalance.happened(GroupEvent.SESSION_EXPIRED, reason)

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self.pending:
            self.pending.forget(member_id)
            return ErrorCode.none
        if member_id == NO_MEMBER_ID and instance_id is not None:
            member_id = self.roster.static_id(instance_id) or NO_MEMBER_ID
        code = self.roster.check(member_id, instance_id)
        if code is ErrorCode.none:
            self.rebalance.remove(self.roster[member_id])
        return code
