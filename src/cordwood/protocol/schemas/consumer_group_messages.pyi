"""Types of the messages in `consumer_group_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: UUID
    partitions: tuple[int, ...]

class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...] | None

class ConsumerGroupHeartbeatRequestTopicPartitionsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupHeartbeatRequestDict(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitionsDict] | None

class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: UUID
    partitions: tuple[int, ...]

class ConsumerGroupHeartbeatResponseAssignment:
    topic_partitions: tuple[ConsumerGroupHeartbeatResponseTopicPartitions, ...]

class ConsumerGroupHeartbeatResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None

class ConsumerGroupHeartbeatResponseTopicPartitionsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[int]

class ConsumerGroupHeartbeatResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitionsDict]

class ConsumerGroupHeartbeatResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    assignment: ConsumerGroupHeartbeatResponseAssignmentDict | None

class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...]
    include_authorized_operations: bool

class ConsumerGroupDescribeRequestDict(TypedDict, total=False):
    group_ids: Sequence[str]
    include_authorized_operations: bool

class ConsumerGroupDescribeResponseAssignmentTopicPartitions:
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]

class ConsumerGroupDescribeResponseAssignment:
    topic_partitions: tuple[ConsumerGroupDescribeResponseAssignmentTopicPartitions, ...]

class ConsumerGroupDescribeResponseTargetAssignmentTopicPartitions:
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]

class ConsumerGroupDescribeResponseTargetAssignment:
    topic_partitions: tuple[ConsumerGroupDescribeResponseTargetAssignmentTopicPartitions, ...]

class ConsumerGroupDescribeResponseMembers:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseTargetAssignment
    member_type: int

class ConsumerGroupDescribeResponseGroups:
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ConsumerGroupDescribeResponseMembers, ...]
    authorized_operations: int

class ConsumerGroupDescribeResponse:
    throttle_time: int
    groups: tuple[ConsumerGroupDescribeResponseGroups, ...]

class ConsumerGroupDescribeResponseAssignmentTopicPartitionsDict(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ConsumerGroupDescribeResponseAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseAssignmentTopicPartitionsDict]

class ConsumerGroupDescribeResponseTargetAssignmentTopicPartitionsDict(TypedDict, total=False):
    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]

class ConsumerGroupDescribeResponseTargetAssignmentDict(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTargetAssignmentTopicPartitionsDict]

class ConsumerGroupDescribeResponseMembersDict(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignmentDict
    target_assignment: ConsumerGroupDescribeResponseTargetAssignmentDict
    member_type: int

class ConsumerGroupDescribeResponseGroupsDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMembersDict]
    authorized_operations: int

class ConsumerGroupDescribeResponseDict(TypedDict, total=False):
    throttle_time: int
    groups: Sequence[ConsumerGroupDescribeResponseGroupsDict]
