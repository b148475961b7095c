"""Types of the messages in `transaction_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class AddPartitionsToTxnRequestTopics:
    name: str
    partitions: tuple[int, ...]

class AddPartitionsToTxnRequestTransactions:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: tuple[AddPartitionsToTxnRequestTopics, ...]

class AddPartitionsToTxnRequestV3AndBelowTopics:
    name: str
    partitions: tuple[int, ...]

class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnRequestTransactions, ...]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: tuple[AddPartitionsToTxnRequestV3AndBelowTopics, ...]

class AddPartitionsToTxnRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AddPartitionsToTxnRequestTransactionsDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnRequestTopicsDict]

class AddPartitionsToTxnRequestV3AndBelowTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[int]

class AddPartitionsToTxnRequestDict(TypedDict, total=False):
    transactions: Sequence[AddPartitionsToTxnRequestTransactionsDict]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequestV3AndBelowTopicsDict]

class AddPartitionsToTxnResponseTopicResultsResultsByPartition:
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnResponseTopicResults:
    name: str
    results_by_partition: tuple[AddPartitionsToTxnResponseTopicResultsResultsByPartition, ...]

class AddPartitionsToTxnResponseResultsByTransaction:
    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnResponseTopicResults, ...]

class AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition:
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnResponseResultsByTopicV3AndBelow:
    name: str
    results_by_partition: tuple[
        AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition, ...
    ]

class AddPartitionsToTxnResponse:
    throttle_time: int
    error_code: int
    results_by_transaction: tuple[AddPartitionsToTxnResponseResultsByTransaction, ...]
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnResponseResultsByTopicV3AndBelow, ...]

class AddPartitionsToTxnResponseTopicResultsResultsByPartitionDict(TypedDict, total=False):
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnResponseTopicResultsDict(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnResponseTopicResultsResultsByPartitionDict]

class AddPartitionsToTxnResponseResultsByTransactionDict(TypedDict, total=False):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnResponseTopicResultsDict]

class AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartitionDict(
    TypedDict, total=False
):
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnResponseResultsByTopicV3AndBelowDict(TypedDict, total=False):
    name: str
    results_by_partition: Sequence[
        AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartitionDict
    ]

class AddPartitionsToTxnResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    results_by_transaction: Sequence[AddPartitionsToTxnResponseResultsByTransactionDict]
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResponseResultsByTopicV3AndBelowDict]

class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class AddOffsetsToTxnRequestDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class AddOffsetsToTxnResponse:
    throttle_time: int
    error_code: int

class AddOffsetsToTxnResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int

class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class EndTxnRequestDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class EndTxnResponse:
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int

class EndTxnResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    producer_id: int
    producer_epoch: int

class WriteTxnMarkersRequestTopics:
    name: str
    partition_indexes: tuple[int, ...]

class WriteTxnMarkersRequestMarkers:
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WriteTxnMarkersRequestTopics, ...]
    coordinator_epoch: int
    transaction_version: int

class WriteTxnMarkersRequest:
    markers: tuple[WriteTxnMarkersRequestMarkers, ...]

class WriteTxnMarkersRequestTopicsDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class WriteTxnMarkersRequestMarkersDict(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersRequestTopicsDict]
    coordinator_epoch: int
    transaction_version: int

class WriteTxnMarkersRequestDict(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersRequestMarkersDict]

class WriteTxnMarkersResponsePartitions:
    partition_index: int
    error_code: int

class WriteTxnMarkersResponseTopics:
    name: str
    partitions: tuple[WriteTxnMarkersResponsePartitions, ...]

class WriteTxnMarkersResponseMarkers:
    producer_id: int
    topics: tuple[WriteTxnMarkersResponseTopics, ...]

class WriteTxnMarkersResponse:
    markers: tuple[WriteTxnMarkersResponseMarkers, ...]

class WriteTxnMarkersResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class WriteTxnMarkersResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[WriteTxnMarkersResponsePartitionsDict]

class WriteTxnMarkersResponseMarkersDict(TypedDict, total=False):
    producer_id: int
    topics: Sequence[WriteTxnMarkersResponseTopicsDict]

class WriteTxnMarkersResponseDict(TypedDict, total=False):
    markers: Sequence[WriteTxnMarkersResponseMarkersDict]

class TxnOffsetCommitRequestPartitions:
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class TxnOffsetCommitRequestTopics:
    name: str
    partitions: tuple[TxnOffsetCommitRequestPartitions, ...]

class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[TxnOffsetCommitRequestTopics, ...]

class TxnOffsetCommitRequestPartitionsDict(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

class TxnOffsetCommitRequestTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartitionsDict]

class TxnOffsetCommitRequestDict(TypedDict, total=False):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequestTopicsDict]

class TxnOffsetCommitResponsePartitions:
    partition_index: int
    error_code: int

class TxnOffsetCommitResponseTopics:
    name: str
    partitions: tuple[TxnOffsetCommitResponsePartitions, ...]

class TxnOffsetCommitResponse:
    throttle_time: int
    topics: tuple[TxnOffsetCommitResponseTopics, ...]

class TxnOffsetCommitResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int

class TxnOffsetCommitResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartitionsDict]

class TxnOffsetCommitResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[TxnOffsetCommitResponseTopicsDict]

class DescribeProducersRequestTopics:
    name: str
    partition_indexes: tuple[int, ...]

class DescribeProducersRequest:
    topics: tuple[DescribeProducersRequestTopics, ...]

class DescribeProducersRequestTopicsDict(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]

class DescribeProducersRequestDict(TypedDict, total=False):
    topics: Sequence[DescribeProducersRequestTopicsDict]

class DescribeProducersResponseActiveProducers:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int

class DescribeProducersResponsePartitions:
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: tuple[DescribeProducersResponseActiveProducers, ...]

class DescribeProducersResponseTopics:
    name: str
    partitions: tuple[DescribeProducersResponsePartitions, ...]

class DescribeProducersResponse:
    throttle_time: int
    topics: tuple[DescribeProducersResponseTopics, ...]

class DescribeProducersResponseActiveProducersDict(TypedDict, total=False):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int

class DescribeProducersResponsePartitionsDict(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[DescribeProducersResponseActiveProducersDict]

class DescribeProducersResponseTopicsDict(TypedDict, total=False):
    name: str
    partitions: Sequence[DescribeProducersResponsePartitionsDict]

class DescribeProducersResponseDict(TypedDict, total=False):
    throttle_time: int
    topics: Sequence[DescribeProducersResponseTopicsDict]

class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...]

class DescribeTransactionsRequestDict(TypedDict, total=False):
    transactional_ids: Sequence[str]

class DescribeTransactionsResponseTopics:
    topic: str
    partitions: tuple[int, ...]

class DescribeTransactionsResponseTransactionStates:
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout: int
    transaction_start_time: int
    producer_id: int
    producer_epoch: int
    topics: tuple[DescribeTransactionsResponseTopics, ...]

class DescribeTransactionsResponse:
    throttle_time: int
    transaction_states: tuple[DescribeTransactionsResponseTransactionStates, ...]

class DescribeTransactionsResponseTopicsDict(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]

class DescribeTransactionsResponseTransactionStatesDict(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout: int
    transaction_start_time: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopicsDict]

class DescribeTransactionsResponseDict(TypedDict, total=False):
    throttle_time: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionStatesDict]

class ListTransactionsRequest:
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int
    transactional_id_pattern: str | None

class ListTransactionsRequestDict(TypedDict, total=False):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None

class ListTransactionsResponseTransactionStates:
    transactional_id: str
    producer_id: int
    transaction_state: str

class ListTransactionsResponse:
    throttle_time: int
    error_code: int
    unknown_state_filters: tuple[str, ...]
    transaction_states: tuple[ListTransactionsResponseTransactionStates, ...]

class ListTransactionsResponseTransactionStatesDict(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str

class ListTransactionsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionStatesDict]
