"""Types of the messages in `group_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class JoinGroupRequestProtocols:
    name: str
    metadata: bytes

class JoinGroupRequest:
    group_id: str
    session_timeout: int
    rebalance_timeout: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocols, ...]
    reason: str | None

class JoinGroupRequestProtocolsDict(TypedDict, total=False):
    name: str
    metadata: bytes

class JoinGroupRequestDict(TypedDict, total=False):
    group_id: str
    session_timeout: int
    rebalance_timeout: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocolsDict]
    reason: str | None

class JoinGroupResponseMembers:
    member_id: str
    group_instance_id: str | None
    metadata: bytes

class JoinGroupResponse:
    throttle_time: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: tuple[JoinGroupResponseMembers, ...]

class JoinGroupResponseMembersDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    metadata: bytes

class JoinGroupResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupResponseMembersDict]

class SyncGroupRequestAssignments:
    member_id: str
    assignment: bytes

class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[SyncGroupRequestAssignments, ...]

class SyncGroupRequestAssignmentsDict(TypedDict, total=False):
    member_id: str
    assignment: bytes

class SyncGroupRequestDict(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequestAssignmentsDict]

class SyncGroupResponse:
    throttle_time: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes

class SyncGroupResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes

class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None

class HeartbeatRequestDict(TypedDict, total=False):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None

class HeartbeatResponse:
    throttle_time: int
    error_code: int

class HeartbeatResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int

class LeaveGroupRequestMembers:
    member_id: str
    group_instance_id: str | None
    reason: str | None

class LeaveGroupRequest:
    group_id: str
    member_id: str
    members: tuple[LeaveGroupRequestMembers, ...]

class LeaveGroupRequestMembersDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    reason: str | None

class LeaveGroupRequestDict(TypedDict, total=False):
    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequestMembersDict]

class LeaveGroupResponseMembers:
    member_id: str
    group_instance_id: str | None
    error_code: int

class LeaveGroupResponse:
    throttle_time: int
    error_code: int
    members: tuple[LeaveGroupResponseMembers, ...]

class LeaveGroupResponseMembersDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    error_code: int

class LeaveGroupResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    members: Sequence[LeaveGroupResponseMembersDict]

class DescribeGroupsRequest:
    groups: tuple[str, ...]
    include_authorized_operations: bool

class DescribeGroupsRequestDict(TypedDict, total=False):
    groups: Sequence[str]
    include_authorized_operations: bool

class DescribeGroupsResponseMembers:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes

class DescribeGroupsResponseGroups:
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribeGroupsResponseMembers, ...]
    authorized_operations: int

class DescribeGroupsResponse:
    throttle_time: int
    groups: tuple[DescribeGroupsResponseGroups, ...]

class DescribeGroupsResponseMembersDict(TypedDict, total=False):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes

class DescribeGroupsResponseGroupsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribeGroupsResponseMembersDict]
    authorized_operations: int

class DescribeGroupsResponseDict(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[DescribeGroupsResponseGroupsDict]

class ListGroupsRequest:
    states_filter: tuple[str, ...]
    types_filter: tuple[str, ...]

class ListGroupsRequestDict(TypedDict, total=False):
    states_filter: Sequence[str]
    types_filter: Sequence[str]

class ListGroupsResponseGroups:
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str

class ListGroupsResponse:
    throttle_time: int
    error_code: int
    groups: tuple[ListGroupsResponseGroups, ...]

class ListGroupsResponseGroupsDict(TypedDict, total=False):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str

class ListGroupsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    groups: Sequence[ListGroupsResponseGroupsDict]

class DeleteGroupsRequest:
    groups_names: tuple[str, ...]

class DeleteGroupsRequestDict(TypedDict, total=False):
    groups_names: Sequence[str]

class DeleteGroupsResponseResults:
    group_id: str
    error_code: int

class DeleteGroupsResponse:
    throttle_time: int
    results: tuple[DeleteGroupsResponseResults, ...]

class DeleteGroupsResponseResultsDict(TypedDict, total=False):
    group_id: str
    error_code: int

class DeleteGroupsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[DeleteGroupsResponseResultsDict]
