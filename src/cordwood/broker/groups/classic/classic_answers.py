"""The answers to JoinGroup and SyncGroup, as values. Pure."""

from cordwood.broker.groups.classic.classic_member import NO_GENERATION, NO_MEMBER_ID, ClassicMember
from cordwood.broker.groups.classic.classic_roster import ClassicRoster
from cordwood.broker.groups.classic.generation import Generation
from cordwood.broker.net.requests.request import Response
from cordwood.protocol.error_code import ErrorCode


def join_answer(
    member: ClassicMember,
    generation: Generation,
    roster: ClassicRoster,
    *,
    skips_assignment: bool = False,
) -> Response:
    """A member is in the generation. Only the leader is sent the list of members."""
    is_leader = member.member_id == roster.leader_id
    return {
        "error_code": ErrorCode.none,
        "generation_id": generation.number,
        "protocol_type": generation.protocol_type,
        "protocol_name": generation.protocol_name,
        "leader": roster.leader_id or NO_MEMBER_ID,
        "skip_assignment": skips_assignment,
        "member_id": member.member_id,
        "members": [
            {
                "member_id": other.member_id,
                "group_instance_id": other.group_instance_id,
                "metadata": other.metadata(generation.protocol_name),
            }
            for other in (roster if is_leader else ())
        ],
    }


def join_error(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> Response:
    return {
        "error_code": code,
        "generation_id": NO_GENERATION,
        "protocol_type": None,
        "protocol_name": None,
        "leader": NO_MEMBER_ID,
        "member_id": member_id,
        "members": [],
    }


def sync_answer(member: ClassicMember, generation: Generation) -> Response:
    return {
        "error_code": ErrorCode.none,
        "protocol_type": generation.protocol_type,
        "protocol_name": generation.protocol_name,
        "assignment": member.assignment,
    }


def sync_error(code: ErrorCode) -> Response:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}
