"""Types of the messages in `offset_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class ListOffsetsRequestPartitions:
    partition_index: int
    current_leader_epoch: int
    timestamp: int

class ListOffsetsRequestTopics:
    name: str
    partitions: tuple[ListOffsetsRequestPartitions, ...]

class ListOffsetsRequest:
    replica_id: int
    isolation_level: int
    topics: tuple[ListOffsetsRequestTopics, ...]
    timeout: int

class ListOffsetsRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    current_leader_epoch: int
    timestamp: int

class ListOffsetsRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsRequestPartitionsDict]

class ListOffsetsRequestDict(TypedDict, total=False):
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequestTopicsDict]
    timeout: int

class ListOffsetsResponsePartitions:
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int

class ListOffsetsResponseTopics:
    name: str
    partitions: tuple[ListOffsetsResponsePartitions, ...]

class ListOffsetsResponse:
    throttle_time: int
    topics: tuple[ListOffsetsResponseTopics, ...]

class ListOffsetsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int

class ListOffsetsResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsResponsePartitionsDict]

class ListOffsetsResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[ListOffsetsResponseTopicsDict]

class OffsetForLeaderEpochRequestPartitions:
    partition: int
    current_leader_epoch: int
    leader_epoch: int

class OffsetForLeaderEpochRequestTopics:
    topic: str
    partitions: tuple[OffsetForLeaderEpochRequestPartitions, ...]

class OffsetForLeaderEpochRequest:
    replica_id: int
    topics: tuple[OffsetForLeaderEpochRequestTopics, ...]

class OffsetForLeaderEpochRequestPartitionsDict(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    leader_epoch: int

class OffsetForLeaderEpochRequestTopicsDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochRequestPartitionsDict]

class OffsetForLeaderEpochRequestDict(TypedDict, total=False):
    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequestTopicsDict]

class OffsetForLeaderEpochResponsePartitions:
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int

class OffsetForLeaderEpochResponseTopics:
    topic: str
    partitions: tuple[OffsetForLeaderEpochResponsePartitions, ...]

class OffsetForLeaderEpochResponse:
    throttle_time: int
    topics: tuple[OffsetForLeaderEpochResponseTopics, ...]

class OffsetForLeaderEpochResponsePartitionsDict(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int

class OffsetForLeaderEpochResponseTopicsDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartitionsDict]

class OffsetForLeaderEpochResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[OffsetForLeaderEpochResponseTopicsDict]

class OffsetCommitRequestPartitions:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class OffsetCommitRequestTopics:
    name: str
    topic_id: UUID
    partitions: tuple[OffsetCommitRequestPartitions, ...]

class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    retention_time: int
    group_instance_id: str | None
    topics: tuple[OffsetCommitRequestTopics, ...]

class OffsetCommitRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class OffsetCommitRequestTopicsDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetCommitRequestPartitionsDict]

class OffsetCommitRequestDict(TypedDict, total=False):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    retention_time: int
    group_instance_id: str | None
    topics: Sequence[OffsetCommitRequestTopicsDict]

class OffsetCommitResponsePartitions:
    partition_index: int
    error_code: int

class OffsetCommitResponseTopics:
    name: str
    topic_id: UUID
    partitions: tuple[OffsetCommitResponsePartitions, ...]

class OffsetCommitResponse:
    throttle_time: int
    topics: tuple[OffsetCommitResponseTopics, ...]

class OffsetCommitResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class OffsetCommitResponseTopicsDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetCommitResponsePartitionsDict]

class OffsetCommitResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[OffsetCommitResponseTopicsDict]

class OffsetFetchRequestTopics:
    name: str
    partition_indexes: tuple[int, ...]

class OffsetFetchRequestGroupsTopics:
    name: str
    topic_id: UUID
    partition_indexes: tuple[int, ...]

class OffsetFetchRequestGroups:
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: tuple[OffsetFetchRequestGroupsTopics, ...] | None

class OffsetFetchRequest:
    group_id: str
    topics: tuple[OffsetFetchRequestTopics, ...] | None
    groups: tuple[OffsetFetchRequestGroups, ...]
    require_stable: bool

class OffsetFetchRequestTopicsDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class OffsetFetchRequestGroupsTopicsDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partition_indexes: Sequence[int]

class OffsetFetchRequestGroupsDict(TypedDict, total=False):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[OffsetFetchRequestGroupsTopicsDict] | None

class OffsetFetchRequestDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchRequestTopicsDict] | None
    groups: Sequence[OffsetFetchRequestGroupsDict]
    require_stable: bool

class OffsetFetchResponseTopicsPartitions:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int

class OffsetFetchResponseTopics:
    name: str
    partitions: tuple[OffsetFetchResponseTopicsPartitions, ...]

class OffsetFetchResponseGroupsTopicsPartitions:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int

class OffsetFetchResponseGroupsTopics:
    name: str
    topic_id: UUID
    partitions: tuple[OffsetFetchResponseGroupsTopicsPartitions, ...]

class OffsetFetchResponseGroups:
    group_id: str
    topics: tuple[OffsetFetchResponseGroupsTopics, ...]
    error_code: int

class OffsetFetchResponse:
    throttle_time: int
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: int
    groups: tuple[OffsetFetchResponseGroups, ...]

class OffsetFetchResponseTopicsPartitionsDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int

class OffsetFetchResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetFetchResponseTopicsPartitionsDict]

class OffsetFetchResponseGroupsTopicsPartitionsDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int

class OffsetFetchResponseGroupsTopicsDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    partitions: Sequence[OffsetFetchResponseGroupsTopicsPartitionsDict]

class OffsetFetchResponseGroupsDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchResponseGroupsTopicsDict]
    error_code: int

class OffsetFetchResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[OffsetFetchResponseTopicsDict]
    error_code: int
    groups: Sequence[OffsetFetchResponseGroupsDict]

class OffsetDeleteRequestPartitions:
    partition_index: int

class OffsetDeleteRequestTopics:
    name: str
    partitions: tuple[OffsetDeleteRequestPartitions, ...]

class OffsetDeleteRequest:
    group_id: str
    topics: tuple[OffsetDeleteRequestTopics, ...]

class OffsetDeleteRequestPartitionsDict(TypedDict, total=False):
    partition_index: int

class OffsetDeleteRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartitionsDict]

class OffsetDeleteRequestDict(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopicsDict]

class OffsetDeleteResponsePartitions:
    partition_index: int
    error_code: int

class OffsetDeleteResponseTopics:
    name: str
    partitions: tuple[OffsetDeleteResponsePartitions, ...]

class OffsetDeleteResponse:
    error_code: int
    throttle_time: int
    topics: tuple[OffsetDeleteResponseTopics, ...]

class OffsetDeleteResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class OffsetDeleteResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartitionsDict]

class OffsetDeleteResponseDict(TypedDict, total=False):
    error_code: int
    throttle_time: int
    topics: Sequence[OffsetDeleteResponseTopicsDict]

class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int
    producer_epoch: int

class InitProducerIdRequestDict(TypedDict, total=False):
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int
    producer_epoch: int

class InitProducerIdResponse:
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int

class InitProducerIdResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int
