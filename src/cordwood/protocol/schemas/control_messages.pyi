"""Types of the messages in `control_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class ElectLeadersRequestTopicPartitions:
    topic: str
    partitions: tuple[int, ...]

class ElectLeadersRequest:
    election_type: int
    topic_partitions: tuple[ElectLeadersRequestTopicPartitions, ...] | None
    timeout: int

class ElectLeadersRequestTopicPartitionsDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class ElectLeadersRequestDict(TypedDict, total=False):
    election_type: int
    topic_partitions: Sequence[ElectLeadersRequestTopicPartitionsDict] | None
    timeout: int

class ElectLeadersResponsePartitionResult:
    partition_id: int
    error_code: int
    error_message: str | None

class ElectLeadersResponseReplicaElectionResults:
    topic: str
    partition_result: tuple[ElectLeadersResponsePartitionResult, ...]

class ElectLeadersResponse:
    throttle_time: int
    error_code: int
    replica_election_results: tuple[ElectLeadersResponseReplicaElectionResults, ...]

class ElectLeadersResponsePartitionResultDict(TypedDict, total=False):
    partition_id: int
    error_code: int
    error_message: str | None

class ElectLeadersResponseReplicaElectionResultsDict(TypedDict, total=False):
    topic: str
    partition_result: Sequence[ElectLeadersResponsePartitionResultDict]

class ElectLeadersResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResultsDict]

class AlterPartitionReassignmentsRequestPartitions:
    partition_index: int
    replicas: tuple[int, ...] | None

class AlterPartitionReassignmentsRequestTopics:
    name: str
    partitions: tuple[AlterPartitionReassignmentsRequestPartitions, ...]

class AlterPartitionReassignmentsRequest:
    timeout: int
    allow_replication_factor_change: bool
    topics: tuple[AlterPartitionReassignmentsRequestTopics, ...]

class AlterPartitionReassignmentsRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int] | None

class AlterPartitionReassignmentsRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsRequestPartitionsDict]

class AlterPartitionReassignmentsRequestDict(TypedDict, total=False):
    timeout: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequestTopicsDict]

class AlterPartitionReassignmentsResponsePartitions:
    partition_index: int
    error_code: int
    error_message: str | None

class AlterPartitionReassignmentsResponseResponses:
    name: str
    partitions: tuple[AlterPartitionReassignmentsResponsePartitions, ...]

class AlterPartitionReassignmentsResponse:
    throttle_time: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: tuple[AlterPartitionReassignmentsResponseResponses, ...]

class AlterPartitionReassignmentsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None

class AlterPartitionReassignmentsResponseResponsesDict(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsResponsePartitionsDict]

class AlterPartitionReassignmentsResponseDict(TypedDict, total=False):
    throttle_time: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponseResponsesDict]

class AlterReplicaLogDirsRequestTopics:
    name: str
    partitions: tuple[int, ...]

class AlterReplicaLogDirsRequestDirs:
    path: str
    topics: tuple[AlterReplicaLogDirsRequestTopics, ...]

class AlterReplicaLogDirsRequest:
    dirs: tuple[AlterReplicaLogDirsRequestDirs, ...]

class AlterReplicaLogDirsRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AlterReplicaLogDirsRequestDirsDict(TypedDict, total=False):
    path: str
    topics: Sequence[AlterReplicaLogDirsRequestTopicsDict]

class AlterReplicaLogDirsRequestDict(TypedDict, total=False):
    dirs: Sequence[AlterReplicaLogDirsRequestDirsDict]

class AlterReplicaLogDirsResponsePartitions:
    partition_index: int
    error_code: int

class AlterReplicaLogDirsResponseResults:
    topic_name: str
    partitions: tuple[AlterReplicaLogDirsResponsePartitions, ...]

class AlterReplicaLogDirsResponse:
    throttle_time: int
    results: tuple[AlterReplicaLogDirsResponseResults, ...]

class AlterReplicaLogDirsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class AlterReplicaLogDirsResponseResultsDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirsResponsePartitionsDict]

class AlterReplicaLogDirsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[AlterReplicaLogDirsResponseResultsDict]

class DescribeQuorumRequestPartitions:
    partition_index: int

class DescribeQuorumRequestTopics:
    topic_name: str
    partitions: tuple[DescribeQuorumRequestPartitions, ...]

class DescribeQuorumRequest:
    topics: tuple[DescribeQuorumRequestTopics, ...]

class DescribeQuorumRequestPartitionsDict(TypedDict, total=False):
    partition_index: int

class DescribeQuorumRequestTopicsDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumRequestPartitionsDict]

class DescribeQuorumRequestDict(TypedDict, total=False):
    topics: Sequence[DescribeQuorumRequestTopicsDict]

class DescribeQuorumResponseCurrentVoters:
    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int

class DescribeQuorumResponseObservers:
    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int

class DescribeQuorumResponsePartitions:
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: tuple[DescribeQuorumResponseCurrentVoters, ...]
    observers: tuple[DescribeQuorumResponseObservers, ...]

class DescribeQuorumResponseTopics:
    topic_name: str
    partitions: tuple[DescribeQuorumResponsePartitions, ...]

class DescribeQuorumResponseListeners:
    name: str
    host: str
    port: int

class DescribeQuorumResponseNodes:
    node_id: int
    listeners: tuple[DescribeQuorumResponseListeners, ...]

class DescribeQuorumResponse:
    error_code: int
    error_message: str | None
    topics: tuple[DescribeQuorumResponseTopics, ...]
    nodes: tuple[DescribeQuorumResponseNodes, ...]

class DescribeQuorumResponseCurrentVotersDict(TypedDict, total=False):
    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int

class DescribeQuorumResponseObserversDict(TypedDict, total=False):
    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int

class DescribeQuorumResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseCurrentVotersDict]
    observers: Sequence[DescribeQuorumResponseObserversDict]

class DescribeQuorumResponseTopicsDict(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartitionsDict]

class DescribeQuorumResponseListenersDict(TypedDict, total=False):
    name: str
    host: str
    port: int

class DescribeQuorumResponseNodesDict(TypedDict, total=False):
    node_id: int
    listeners: Sequence[DescribeQuorumResponseListenersDict]

class DescribeQuorumResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponseTopicsDict]
    nodes: Sequence[DescribeQuorumResponseNodesDict]

class AlterPartitionRequestNewIsrWithEpochs:
    broker_id: int
    broker_epoch: int

class AlterPartitionRequestPartitions:
    partition_index: int
    leader_epoch: int
    new_isr: tuple[int, ...]
    new_isr_with_epochs: tuple[AlterPartitionRequestNewIsrWithEpochs, ...]
    leader_recovery_state: int
    partition_epoch: int

class AlterPartitionRequestTopics:
    topic_id: UUID
    partitions: tuple[AlterPartitionRequestPartitions, ...]

class AlterPartitionRequest:
    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionRequestTopics, ...]

class AlterPartitionRequestNewIsrWithEpochsDict(TypedDict, total=False):
    broker_id: int
    broker_epoch: int

class AlterPartitionRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    leader_epoch: int
    new_isr: Sequence[int]
    new_isr_with_epochs: Sequence[AlterPartitionRequestNewIsrWithEpochsDict]
    leader_recovery_state: int
    partition_epoch: int

class AlterPartitionRequestTopicsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AlterPartitionRequestPartitionsDict]

class AlterPartitionRequestDict(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionRequestTopicsDict]

class AlterPartitionResponsePartitions:
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int

class AlterPartitionResponseTopics:
    topic_id: UUID
    partitions: tuple[AlterPartitionResponsePartitions, ...]

class AlterPartitionResponse:
    throttle_time: int
    error_code: int
    topics: tuple[AlterPartitionResponseTopics, ...]

class AlterPartitionResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int

class AlterPartitionResponseTopicsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AlterPartitionResponsePartitionsDict]

class AlterPartitionResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    topics: Sequence[AlterPartitionResponseTopicsDict]

class UpdateFeaturesRequestFeatureUpdates:
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int

class UpdateFeaturesRequest:
    timeout: int
    feature_updates: tuple[UpdateFeaturesRequestFeatureUpdates, ...]
    validate_only: bool

class UpdateFeaturesRequestFeatureUpdatesDict(TypedDict, total=False):
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int

class UpdateFeaturesRequestDict(TypedDict, total=False):
    timeout: int
    feature_updates: Sequence[UpdateFeaturesRequestFeatureUpdatesDict]
    validate_only: bool

class UpdateFeaturesResponseResults:
    feature: str
    error_code: int
    error_message: str | None

class UpdateFeaturesResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    results: tuple[UpdateFeaturesResponseResults, ...]

class UpdateFeaturesResponseResultsDict(TypedDict, total=False):
    feature: str
    error_code: int
    error_message: str | None

class UpdateFeaturesResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: Sequence[UpdateFeaturesResponseResultsDict]

class EnvelopeRequest:
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes

class EnvelopeRequestDict(TypedDict, total=False):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes

class EnvelopeResponse:
    response_data: bytes | None
    error_code: int

class EnvelopeResponseDict(TypedDict, total=False):
    response_data: bytes | None
    error_code: int

class FetchSnapshotRequestSnapshotId:
    end_offset: int
    epoch: int

class FetchSnapshotRequestPartitions:
    partition: int
    current_leader_epoch: int
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: int
    replica_directory_id: UUID

class FetchSnapshotRequestTopics:
    name: str
    partitions: tuple[FetchSnapshotRequestPartitions, ...]

class FetchSnapshotRequest:
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: tuple[FetchSnapshotRequestTopics, ...]

class FetchSnapshotRequestSnapshotIdDict(TypedDict, total=False):
    end_offset: int
    epoch: int

class FetchSnapshotRequestPartitionsDict(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    snapshot_id: FetchSnapshotRequestSnapshotIdDict
    position: int
    replica_directory_id: UUID

class FetchSnapshotRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[FetchSnapshotRequestPartitionsDict]

class FetchSnapshotRequestDict(TypedDict, total=False):
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: Sequence[FetchSnapshotRequestTopicsDict]

class FetchSnapshotResponseSnapshotId:
    end_offset: int
    epoch: int

class FetchSnapshotResponseCurrentLeader:
    leader_id: int
    leader_epoch: int

class FetchSnapshotResponsePartitions:
    index: int
    error_code: int
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: FetchSnapshotResponseCurrentLeader
    size: int
    position: int
    unaligned_records: bytes

class FetchSnapshotResponseTopics:
    name: str
    partitions: tuple[FetchSnapshotResponsePartitions, ...]

class FetchSnapshotResponseNodeEndpoints:
    node_id: int
    host: str
    port: int

class FetchSnapshotResponse:
    throttle_time: int
    error_code: int
    topics: tuple[FetchSnapshotResponseTopics, ...]
    node_endpoints: tuple[FetchSnapshotResponseNodeEndpoints, ...]

class FetchSnapshotResponseSnapshotIdDict(TypedDict, total=False):
    end_offset: int
    epoch: int

class FetchSnapshotResponseCurrentLeaderDict(TypedDict, total=False):
    leader_id: int
    leader_epoch: int

class FetchSnapshotResponsePartitionsDict(TypedDict, total=False):
    index: int
    error_code: int
    snapshot_id: FetchSnapshotResponseSnapshotIdDict
    current_leader: FetchSnapshotResponseCurrentLeaderDict
    size: int
    position: int
    unaligned_records: bytes

class FetchSnapshotResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[FetchSnapshotResponsePartitionsDict]

class FetchSnapshotResponseNodeEndpointsDict(TypedDict, total=False):
    node_id: int
    host: str
    port: int

class FetchSnapshotResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    topics: Sequence[FetchSnapshotResponseTopicsDict]
    node_endpoints: Sequence[FetchSnapshotResponseNodeEndpointsDict]

class BrokerRegistrationRequestListeners:
    name: str
    host: str
    port: int
    security_protocol: int

class BrokerRegistrationRequestFeatures:
    name: str
    min_supported_version: int
    max_supported_version: int

class BrokerRegistrationRequest:
    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: tuple[BrokerRegistrationRequestListeners, ...]
    features: tuple[BrokerRegistrationRequestFeatures, ...]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: tuple[UUID, ...]
    previous_broker_epoch: int

class BrokerRegistrationRequestListenersDict(TypedDict, total=False):
    name: str
    host: str
    port: int
    security_protocol: int

class BrokerRegistrationRequestFeaturesDict(TypedDict, total=False):
    name: str
    min_supported_version: int
    max_supported_version: int

class BrokerRegistrationRequestDict(TypedDict, total=False):
    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: Sequence[BrokerRegistrationRequestListenersDict]
    features: Sequence[BrokerRegistrationRequestFeaturesDict]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: Sequence[UUID]
    previous_broker_epoch: int

class BrokerRegistrationResponse:
    throttle_time: int
    error_code: int
    broker_epoch: int

class BrokerRegistrationResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    broker_epoch: int

class BrokerHeartbeatRequest:
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[UUID, ...]
    cordoned_log_dirs: tuple[UUID, ...] | None

class BrokerHeartbeatRequestDict(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[UUID]
    cordoned_log_dirs: Sequence[UUID] | None

class BrokerHeartbeatResponse:
    throttle_time: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool

class BrokerHeartbeatResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool

class UnregisterBrokerRequest:
    broker_id: int

class UnregisterBrokerRequestDict(TypedDict, total=False):
    broker_id: int

class UnregisterBrokerResponse:
    throttle_time: int
    error_code: int
    error_message: str | None

class UnregisterBrokerResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None

class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int

class AllocateProducerIdsRequestDict(TypedDict, total=False):
    broker_id: int
    broker_epoch: int

class AllocateProducerIdsResponse:
    throttle_time: int
    error_code: int
    producer_id_start: int
    producer_id_len: int

class AllocateProducerIdsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id_start: int
    producer_id_len: int

class AssignReplicasToDirsRequestPartitions:
    partition_index: int

class AssignReplicasToDirsRequestTopics:
    topic_id: UUID
    partitions: tuple[AssignReplicasToDirsRequestPartitions, ...]

class AssignReplicasToDirsRequestDirectories:
    id: UUID
    topics: tuple[AssignReplicasToDirsRequestTopics, ...]

class AssignReplicasToDirsRequest:
    broker_id: int
    broker_epoch: int
    directories: tuple[AssignReplicasToDirsRequestDirectories, ...]

class AssignReplicasToDirsRequestPartitionsDict(TypedDict, total=False):
    partition_index: int

class AssignReplicasToDirsRequestTopicsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AssignReplicasToDirsRequestPartitionsDict]

class AssignReplicasToDirsRequestDirectoriesDict(TypedDict, total=False):
    id: UUID
    topics: Sequence[AssignReplicasToDirsRequestTopicsDict]

class AssignReplicasToDirsRequestDict(TypedDict, total=False):
    broker_id: int
    broker_epoch: int
    directories: Sequence[AssignReplicasToDirsRequestDirectoriesDict]

class AssignReplicasToDirsResponsePartitions:
    partition_index: int
    error_code: int

class AssignReplicasToDirsResponseTopics:
    topic_id: UUID
    partitions: tuple[AssignReplicasToDirsResponsePartitions, ...]

class AssignReplicasToDirsResponseDirectories:
    id: UUID
    topics: tuple[AssignReplicasToDirsResponseTopics, ...]

class AssignReplicasToDirsResponse:
    throttle_time: int
    error_code: int
    directories: tuple[AssignReplicasToDirsResponseDirectories, ...]

class AssignReplicasToDirsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class AssignReplicasToDirsResponseTopicsDict(TypedDict, total=False):
    topic_id: UUID
    partitions: Sequence[AssignReplicasToDirsResponsePartitionsDict]

class AssignReplicasToDirsResponseDirectoriesDict(TypedDict, total=False):
    id: UUID
    topics: Sequence[AssignReplicasToDirsResponseTopicsDict]

class AssignReplicasToDirsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    directories: Sequence[AssignReplicasToDirsResponseDirectoriesDict]
