"""Types of the messages in `cluster_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class ApiVersionsRequest:
    client_software_name: str
    client_software_version: str

class ApiVersionsRequestDict(TypedDict, total=False):
    client_software_name: str
    client_software_version: str

class ApiVersionsResponseApiKeys:
    api_key: int
    min_version: int
    max_version: int

class ApiVersionsResponseSupportedFeatures:
    name: str
    min_version: int
    max_version: int

class ApiVersionsResponseFinalizedFeatures:
    name: str
    max_version_level: int
    min_version_level: int

class ApiVersionsResponse:
    error_code: int
    api_keys: tuple[ApiVersionsResponseApiKeys, ...]
    throttle_time: int
    supported_features: tuple[ApiVersionsResponseSupportedFeatures, ...]
    finalized_features_epoch: int
    finalized_features: tuple[ApiVersionsResponseFinalizedFeatures, ...]
    zk_migration_ready: bool

class ApiVersionsResponseApiKeysDict(TypedDict, total=False):
    api_key: int
    min_version: int
    max_version: int

class ApiVersionsResponseSupportedFeaturesDict(TypedDict, total=False):
    name: str
    min_version: int
    max_version: int

class ApiVersionsResponseFinalizedFeaturesDict(TypedDict, total=False):
    name: str
    max_version_level: int
    min_version_level: int

class ApiVersionsResponseDict(TypedDict, total=False):
    error_code: int
    api_keys: Sequence[ApiVersionsResponseApiKeysDict]
    throttle_time: int
    supported_features: Sequence[ApiVersionsResponseSupportedFeaturesDict]
    finalized_features_epoch: int
    finalized_features: Sequence[ApiVersionsResponseFinalizedFeaturesDict]
    zk_migration_ready: bool

class MetadataRequestTopics:
    topic_id: UUID
    name: str | None

class MetadataRequest:
    topics: tuple[MetadataRequestTopics, ...] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool

class MetadataRequestTopicsDict(TypedDict, total=False):
    topic_id: UUID
    name: str | None

class MetadataRequestDict(TypedDict, total=False):
    topics: Sequence[MetadataRequestTopicsDict] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool

class MetadataResponseBrokers:
    node_id: int
    host: str
    port: int
    rack: str | None

class MetadataResponsePartitions:
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...]

class MetadataResponseTopics:
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: tuple[MetadataResponsePartitions, ...]
    topic_authorized_operations: int

class MetadataResponse:
    throttle_time: int
    brokers: tuple[MetadataResponseBrokers, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[MetadataResponseTopics, ...]
    cluster_authorized_operations: int
    error_code: int

class MetadataResponseBrokersDict(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None

class MetadataResponsePartitionsDict(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]

class MetadataResponseTopicsDict(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Sequence[MetadataResponsePartitionsDict]
    topic_authorized_operations: int

class MetadataResponseDict(TypedDict, total=False):
    throttle_time: int
    brokers: Sequence[MetadataResponseBrokersDict]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponseTopicsDict]
    cluster_authorized_operations: int
    error_code: int

class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool

class DescribeClusterRequestDict(TypedDict, total=False):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool

class DescribeClusterResponseBrokers:
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

class DescribeClusterResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: tuple[DescribeClusterResponseBrokers, ...]
    cluster_authorized_operations: int

class DescribeClusterResponseBrokersDict(TypedDict, total=False):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

class DescribeClusterResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterResponseBrokersDict]
    cluster_authorized_operations: int

class DescribeTopicPartitionsRequestTopics:
    name: str

class DescribeTopicPartitionsRequestCursor:
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsRequest:
    topics: tuple[DescribeTopicPartitionsRequestTopics, ...]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursor | None

class DescribeTopicPartitionsRequestTopicsDict(TypedDict, total=False):
    name: str

class DescribeTopicPartitionsRequestCursorDict(TypedDict, total=False):
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsRequestDict(TypedDict, total=False):
    topics: Sequence[DescribeTopicPartitionsRequestTopicsDict]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursorDict | None

class DescribeTopicPartitionsResponsePartitions:
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    offline_replicas: tuple[int, ...]

class DescribeTopicPartitionsResponseTopics:
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: tuple[DescribeTopicPartitionsResponsePartitions, ...]
    topic_authorized_operations: int

class DescribeTopicPartitionsResponseNextCursor:
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsResponse:
    throttle_time: int
    topics: tuple[DescribeTopicPartitionsResponseTopics, ...]
    next_cursor: DescribeTopicPartitionsResponseNextCursor | None

class DescribeTopicPartitionsResponsePartitionsDict(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]

class DescribeTopicPartitionsResponseTopicsDict(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartitionsDict]
    topic_authorized_operations: int

class DescribeTopicPartitionsResponseNextCursorDict(TypedDict, total=False):
    topic_name: str
    partition_index: int

class DescribeTopicPartitionsResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[DescribeTopicPartitionsResponseTopicsDict]
    next_cursor: DescribeTopicPartitionsResponseNextCursorDict | None

class ListPartitionReassignmentsRequestTopics:
    name: str
    partition_indexes: tuple[int, ...]

class ListPartitionReassignmentsRequest:
    timeout: int
    topics: tuple[ListPartitionReassignmentsRequestTopics, ...] | None

class ListPartitionReassignmentsRequestTopicsDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class ListPartitionReassignmentsRequestDict(TypedDict, total=False):
    timeout: int
    topics: Sequence[ListPartitionReassignmentsRequestTopicsDict] | None

class ListPartitionReassignmentsResponsePartitions:
    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

class ListPartitionReassignmentsResponseTopics:
    name: str
    partitions: tuple[ListPartitionReassignmentsResponsePartitions, ...]

class ListPartitionReassignmentsResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    topics: tuple[ListPartitionReassignmentsResponseTopics, ...]

class ListPartitionReassignmentsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]

class ListPartitionReassignmentsResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[ListPartitionReassignmentsResponsePartitionsDict]

class ListPartitionReassignmentsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponseTopicsDict]

class FindCoordinatorRequest:
    key: str
    key_type: int
    coordinator_keys: tuple[str, ...]

class FindCoordinatorRequestDict(TypedDict, total=False):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]

class FindCoordinatorResponseCoordinators:
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None

class FindCoordinatorResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: tuple[FindCoordinatorResponseCoordinators, ...]

class FindCoordinatorResponseCoordinatorsDict(TypedDict, total=False):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None

class FindCoordinatorResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Sequence[FindCoordinatorResponseCoordinatorsDict]
