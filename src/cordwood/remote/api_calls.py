"""The APIs that the client calls, each with the types of its request and its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from cordwood.protocol.api_catalog import ApiKey
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import acl_messages as acl
    from cordwood.protocol.schemas import cluster_messages as cluster
    from cordwood.protocol.schemas import config_messages as config
    from cordwood.protocol.schemas import consumer_group_messages as consumer_group
    from cordwood.protocol.schemas import control_messages as control
    from cordwood.protocol.schemas import group_messages as group
    from cordwood.protocol.schemas import offset_messages as offset
    from cordwood.protocol.schemas import quota_messages as quota
    from cordwood.protocol.schemas import topic_messages as topic
    from cordwood.protocol.schemas import transaction_messages as transaction
    from cordwood.protocol.schemas import user_messages as user

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[Response]):
    """A request to send; its answer has the attributes of `Response`."""

    key: ApiKey
    request: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Api(Generic[Request, Response]):
    """An API. Called with a request, a dictionary of type `Request`, it makes an `ApiCall`."""

    key: ApiKey

    def __call__(self, request: Request) -> ApiCall[Response]:
        return ApiCall(self.key, cast("Mapping[str, object]", request))


API_VERSIONS: Final[Api[cluster.ApiVersionsRequestDict, cluster.ApiVersionsResponse]] = Api(
    ApiKey.API_VERSIONS
)
METADATA: Final[Api[cluster.MetadataRequestDict, cluster.MetadataResponse]] = Api(ApiKey.METADATA)
FIND_COORDINATOR: Final[
    Api[cluster.FindCoordinatorRequestDict, cluster.FindCoordinatorResponse]
] = Api(ApiKey.FIND_COORDINATOR)

DESCRIBE_CLUSTER: Final[
    Api[cluster.DescribeClusterRequestDict, cluster.DescribeClusterResponse]
] = Api(ApiKey.DESCRIBE_CLUSTER)
LIST_PARTITION_REASSIGNMENTS: Final[
    Api[cluster.ListPartitionReassignmentsRequestDict, cluster.ListPartitionReassignmentsResponse]
] = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS)
ALTER_PARTITION_REASSIGNMENTS: Final[
    Api[
        control.AlterPartitionReassignmentsRequestDict,
        control.AlterPartitionReassignmentsResponse,
    ]
] = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
ALTER_REPLICA_LOG_DIRS: Final[
    Api[control.AlterReplicaLogDirsRequestDict, control.AlterReplicaLogDirsResponse]
] = Api(ApiKey.ALTER_REPLICA_LOG_DIRS)
ELECT_LEADERS: Final[Api[control.ElectLeadersRequestDict, control.ElectLeadersResponse]] = Api(
    ApiKey.ELECT_LEADERS
)
DESCRIBE_QUORUM: Final[Api[control.DescribeQuorumRequestDict, control.DescribeQuorumResponse]] = (
    Api(ApiKey.DESCRIBE_QUORUM)
)
UNREGISTER_BROKER: Final[
    Api[control.UnregisterBrokerRequestDict, control.UnregisterBrokerResponse]
] = Api(ApiKey.UNREGISTER_BROKER)

DESCRIBE_CONFIGS: Final[Api[config.DescribeConfigsRequestDict, config.DescribeConfigsResponse]] = (
    Api(ApiKey.DESCRIBE_CONFIGS)
)
INCREMENTAL_ALTER_CONFIGS: Final[
    Api[config.IncrementalAlterConfigsRequestDict, config.IncrementalAlterConfigsResponse]
] = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS)

LIST_CONFIG_RESOURCES: Final[
    Api[config.ListConfigResourcesRequestDict, config.ListConfigResourcesResponse]
] = Api(ApiKey.LIST_CONFIG_RESOURCES)

CREATE_TOPICS: Final[Api[topic.CreateTopicsRequestDict, topic.CreateTopicsResponse]] = Api(
    ApiKey.CREATE_TOPICS
)
CREATE_PARTITIONS: Final[Api[topic.CreatePartitionsRequestDict, topic.CreatePartitionsResponse]] = (
    Api(ApiKey.CREATE_PARTITIONS)
)
DELETE_TOPICS: Final[Api[topic.DeleteTopicsRequestDict, topic.DeleteTopicsResponse]] = Api(
    ApiKey.DELETE_TOPICS
)
DELETE_RECORDS: Final[Api[topic.DeleteRecordsRequestDict, topic.DeleteRecordsResponse]] = Api(
    ApiKey.DELETE_RECORDS
)
DESCRIBE_LOG_DIRS: Final[Api[topic.DescribeLogDirsRequestDict, topic.DescribeLogDirsResponse]] = (
    Api(ApiKey.DESCRIBE_LOG_DIRS)
)

LIST_OFFSETS: Final[Api[offset.ListOffsetsRequestDict, offset.ListOffsetsResponse]] = Api(
    ApiKey.LIST_OFFSETS
)
OFFSET_COMMIT: Final[Api[offset.OffsetCommitRequestDict, offset.OffsetCommitResponse]] = Api(
    ApiKey.OFFSET_COMMIT
)
OFFSET_FETCH: Final[Api[offset.OffsetFetchRequestDict, offset.OffsetFetchResponse]] = Api(
    ApiKey.OFFSET_FETCH
)
OFFSET_DELETE: Final[Api[offset.OffsetDeleteRequestDict, offset.OffsetDeleteResponse]] = Api(
    ApiKey.OFFSET_DELETE
)

LIST_GROUPS: Final[Api[group.ListGroupsRequestDict, group.ListGroupsResponse]] = Api(
    ApiKey.LIST_GROUPS
)
DESCRIBE_GROUPS: Final[Api[group.DescribeGroupsRequestDict, group.DescribeGroupsResponse]] = Api(
    ApiKey.DESCRIBE_GROUPS
)
DELETE_GROUPS: Final[Api[group.DeleteGroupsRequestDict, group.DeleteGroupsResponse]] = Api(
    ApiKey.DELETE_GROUPS
)
CONSUMER_GROUP_DESCRIBE: Final[
    Api[
        consumer_group.ConsumerGroupDescribeRequestDict,
        consumer_group.ConsumerGroupDescribeResponse,
    ]
] = Api(ApiKey.CONSUMER_GROUP_DESCRIBE)

DESCRIBE_ACLS: Final[Api[acl.DescribeAclsRequestDict, acl.DescribeAclsResponse]] = Api(
    ApiKey.DESCRIBE_ACLS
)
CREATE_ACLS: Final[Api[acl.CreateAclsRequestDict, acl.CreateAclsResponse]] = Api(ApiKey.CREATE_ACLS)
DELETE_ACLS: Final[Api[acl.DeleteAclsRequestDict, acl.DeleteAclsResponse]] = Api(ApiKey.DELETE_ACLS)
DESCRIBE_CLIENT_QUOTAS: Final[
    Api[quota.DescribeClientQuotasRequestDict, quota.DescribeClientQuotasResponse]
] = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS)
ALTER_CLIENT_QUOTAS: Final[
    Api[quota.AlterClientQuotasRequestDict, quota.AlterClientQuotasResponse]
] = Api(ApiKey.ALTER_CLIENT_QUOTAS)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final[
    Api[user.DescribeUserScramCredentialsRequestDict, user.DescribeUserScramCredentialsResponse]
] = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
ALTER_USER_SCRAM_CREDENTIALS: Final[
    Api[user.AlterUserScramCredentialsRequestDict, user.AlterUserScramCredentialsResponse]
] = Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)

INIT_PRODUCER_ID: Final[Api[offset.InitProducerIdRequestDict, offset.InitProducerIdResponse]] = Api(
    ApiKey.INIT_PRODUCER_ID
)
WRITE_TXN_MARKERS: Final[
    Api[transaction.WriteTxnMarkersRequestDict, transaction.WriteTxnMarkersResponse]
] = Api(ApiKey.WRITE_TXN_MARKERS)
DESCRIBE_PRODUCERS: Final[
    Api[transaction.DescribeProducersRequestDict, transaction.DescribeProducersResponse]
] = Api(ApiKey.DESCRIBE_PRODUCERS)
DESCRIBE_TRANSACTIONS: Final[
    Api[transaction.DescribeTransactionsRequestDict, transaction.DescribeTransactionsResponse]
] = Api(ApiKey.DESCRIBE_TRANSACTIONS)
LIST_TRANSACTIONS: Final[
    Api[transaction.ListTransactionsRequestDict, transaction.ListTransactionsResponse]
] = Api(ApiKey.LIST_TRANSACTIONS)
