"""Types of the messages in `topic_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

SCHEMAS: Final[Mapping[int, str]]

class CreateTopicsRequestAssignments:
    partition_index: int
    broker_ids: tuple[int, ...]

class CreateTopicsRequestConfigs:
    name: str
    value: str | None

class CreateTopicsRequestTopics:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreateTopicsRequestAssignments, ...]
    configs: tuple[CreateTopicsRequestConfigs, ...]

class CreateTopicsRequest:
    topics: tuple[CreateTopicsRequestTopics, ...]
    timeout: int
    validate_only: bool

class CreateTopicsRequestAssignmentsDict(TypedDict, total=False):
    partition_index: int
    broker_ids: Sequence[int]

class CreateTopicsRequestConfigsDict(TypedDict, total=False):
    name: str
    value: str | None

class CreateTopicsRequestTopicsDict(TypedDict, total=False):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsRequestAssignmentsDict]
    configs: Sequence[CreateTopicsRequestConfigsDict]

class CreateTopicsRequestDict(TypedDict, total=False):
    topics: Sequence[CreateTopicsRequestTopicsDict]
    timeout: int
    validate_only: bool

class CreateTopicsResponseConfigs:
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool

class CreateTopicsResponseTopics:
    name: str
    topic_id: UUID
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: tuple[CreateTopicsResponseConfigs, ...] | None

class CreateTopicsResponse:
    throttle_time: int
    topics: tuple[CreateTopicsResponseTopics, ...]

class CreateTopicsResponseConfigsDict(TypedDict, total=False):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool

class CreateTopicsResponseTopicsDict(TypedDict, total=False):
    name: str
    topic_id: UUID
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: Sequence[CreateTopicsResponseConfigsDict] | None

class CreateTopicsResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[CreateTopicsResponseTopicsDict]

class DeleteTopicsRequestTopics:
    name: str | None
    topic_id: UUID

class DeleteTopicsRequest:
    topic_names: tuple[str, ...]
    topics: tuple[DeleteTopicsRequestTopics, ...]
    timeout: int

class DeleteTopicsRequestTopicsDict(TypedDict, total=False):
    name: str | None
    topic_id: UUID

class DeleteTopicsRequestDict(TypedDict, total=False):
    topic_names: Sequence[str]
    topics: Sequence[DeleteTopicsRequestTopicsDict]
    timeout: int

class DeleteTopicsResponseResponses:
    name: str | None
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteTopicsResponse:
    throttle_time: int
    responses: tuple[DeleteTopicsResponseResponses, ...]

class DeleteTopicsResponseResponsesDict(TypedDict, total=False):
    name: str | None
    topic_id: UUID
    error_code: int
    error_message: str | None

class DeleteTopicsResponseDict(TypedDict, total=False):
    throttle_time: int
    responses: Sequence[DeleteTopicsResponseResponsesDict]

class CreatePartitionsRequestAssignments:
    broker_ids: tuple[int, ...]

class CreatePartitionsRequestTopics:
    name: str
    count: int
    assignments: tuple[CreatePartitionsRequestAssignments, ...] | None

class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsRequestTopics, ...]
    timeout: int
    validate_only: bool

class CreatePartitionsRequestAssignmentsDict(TypedDict, total=False):
    broker_ids: Sequence[int]

class CreatePartitionsRequestTopicsDict(TypedDict, total=False):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsRequestAssignmentsDict] | None

class CreatePartitionsRequestDict(TypedDict, total=False):
    topics: Sequence[CreatePartitionsRequestTopicsDict]
    timeout: int
    validate_only: bool

class CreatePartitionsResponseResults:
    name: str
    error_code: int
    error_message: str | None

class CreatePartitionsResponse:
    throttle_time: int
    results: tuple[CreatePartitionsResponseResults, ...]

class CreatePartitionsResponseResultsDict(TypedDict, total=False):
    name: str
    error_code: int
    error_message: str | None

class CreatePartitionsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[CreatePartitionsResponseResultsDict]

class DeleteRecordsRequestPartitions:
    partition_index: int
    offset: int

class DeleteRecordsRequestTopics:
    name: str
    partitions: tuple[DeleteRecordsRequestPartitions, ...]

class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsRequestTopics, ...]
    timeout: int

class DeleteRecordsRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    offset: int

class DeleteRecordsRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsRequestPartitionsDict]

class DeleteRecordsRequestDict(TypedDict, total=False):
    topics: Sequence[DeleteRecordsRequestTopicsDict]
    timeout: int

class DeleteRecordsResponsePartitions:
    partition_index: int
    low_watermark: int
    error_code: int

class DeleteRecordsResponseTopics:
    name: str
    partitions: tuple[DeleteRecordsResponsePartitions, ...]

class DeleteRecordsResponse:
    throttle_time: int
    topics: tuple[DeleteRecordsResponseTopics, ...]

class DeleteRecordsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    low_watermark: int
    error_code: int

class DeleteRecordsResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DeleteRecordsResponsePartitionsDict]

class DeleteRecordsResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[DeleteRecordsResponseTopicsDict]

class DescribeLogDirsRequestTopics:
    topic: str
    partitions: tuple[int, ...]

class DescribeLogDirsRequest:
    topics: tuple[DescribeLogDirsRequestTopics, ...] | None

class DescribeLogDirsRequestTopicsDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class DescribeLogDirsRequestDict(TypedDict, total=False):
    topics: Sequence[DescribeLogDirsRequestTopicsDict] | None

class DescribeLogDirsResponsePartitions:
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool

class DescribeLogDirsResponseTopics:
    name: str
    partitions: tuple[DescribeLogDirsResponsePartitions, ...]

class DescribeLogDirsResponseResults:
    error_code: int
    log_dir: str
    topics: tuple[DescribeLogDirsResponseTopics, ...]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool

class DescribeLogDirsResponse:
    throttle_time: int
    error_code: int
    results: tuple[DescribeLogDirsResponseResults, ...]

class DescribeLogDirsResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool

class DescribeLogDirsResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeLogDirsResponsePartitionsDict]

class DescribeLogDirsResponseResultsDict(TypedDict, total=False):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsResponseTopicsDict]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool

class DescribeLogDirsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    results: Sequence[DescribeLogDirsResponseResultsDict]
