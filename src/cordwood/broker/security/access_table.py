"""Which API needs which operation on which resource, and how a refusal shows: the only table.

Handlers ask with `RequestContext.may`, and name the need they ask about. A need of which a refusal
is *quiet* is a filter or one of two ways, so its refusal is not reported; see `AccessEvents`.
"""

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_CREATE, _DELETE, _ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
_DESCRIBE, _CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
_TOPIC, _GROUP, _CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
_TRANSACTION = AclResource.TRANSACTIONAL_ID

_CODES: Final[Mapping[AclResource, ErrorCode]] = MappingProxyType(
    {
        AclResource.TOPIC: ErrorCode.topic_authorization_failed,
        AclResource.GROUP: ErrorCode.group_authorization_failed,
        AclResource.CLUSTER: ErrorCode.cluster_authorization_failed,
        AclResource.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    }
)


class Shown(Enum):
    """How a client sees that it lacks a right."""

    REQUEST = "the whole request is refused"
    ITEM = "refused for this topic, partition, group or resource"
    LEFT_OUT = "left out of the answer"
    OTHERWISE = "the next need of the API decides"
    EMPTY = "a field of the answer stays empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An operation that an API needs to be allowed.

    `code` is the error of a refusal. `is_change`: it changes something for other clients too, so
    that it is reported if it is allowed.
    """

    api: str
    operation: AclOperation
    resource: AclResource
    shown: Shown = Shown.ITEM
    code: ErrorCode
    note: str = ""
    is_change: bool = False

    @property
    def is_quiet(self) -> bool:
        return self.shown in {Shown.LEFT_OUT, Shown.OTHERWISE, Shown.EMPTY}


_TABLE: defaultdict[str, list[Need]] = defaultdict(list)


def _need(
    api: str,
    operation: AclOperation,
    resource: AclResource,
    shown: Shown = Shown.ITEM,
    note: str = "",
    *,
    code: ErrorCode | None = None,
    is_change: bool = False,
) -> Need:
    need = Need(
        api=api,
        operation=operation,
        resource=resource,
        shown=shown,
        code=_CODES[resource] if code is None else code,
        note=note,
        is_change=is_change,
    )
    _TABLE[api].append(need)
    return need


# --- records ---------------------------------------------------------------------------------

PRODUCE_TRANSACTION: Final = _need(
    "Produce", _WRITE, _TRANSACTION, Shown.REQUEST, "with records of a transaction"
)
PRODUCE_TOPIC: Final = _need("Produce", _WRITE, _TOPIC)
PRODUCE_INTERNAL: Final = _need(
    "Produce",
    _CLUSTER_ACTION,
    _CLUSTER,
    Shown.ITEM,
    "to internal topics",
    code=ErrorCode.invalid_topic_exception,
)
FETCH_TOPIC: Final = _need("Fetch", _READ, _TOPIC)
REPLICA_FETCH: Final = _need("Fetch", _CLUSTER_ACTION, _CLUSTER, Shown.ITEM, "as a follower")
LIST_OFFSETS_TOPIC: Final = _need("ListOffsets", _DESCRIBE, _TOPIC)
OFFSET_FOR_LEADER_EPOCH_CLUSTER: Final = _need(
    "OffsetForLeaderEpoch", _CLUSTER_ACTION, _CLUSTER, Shown.OTHERWISE
)
OFFSET_FOR_LEADER_EPOCH_TOPIC: Final = _need("OffsetForLeaderEpoch", _DESCRIBE, _TOPIC)
DELETE_RECORDS_TOPIC: Final = _need("DeleteRecords", _DELETE, _TOPIC, is_change=True)
DESCRIBE_PRODUCERS_TOPIC: Final = _need("DescribeProducers", _READ, _TOPIC)

# --- the cluster and its topics --------------------------------------------------------------

METADATA_ALL: Final = _need(
    "Metadata", _DESCRIBE, _TOPIC, Shown.LEFT_OUT, "all topics are asked for"
)
METADATA_TOPIC: Final = _need(
    "Metadata",
    _DESCRIBE,
    _TOPIC,
    Shown.ITEM,
    "topics are asked for; the answer does not tell whether they exist",
)
METADATA_CREATE_CLUSTER: Final = _need(
    "Metadata",
    _CREATE,
    _CLUSTER,
    Shown.OTHERWISE,
    "a missing topic is to be created",
    is_change=True,
)
METADATA_CREATE: Final = _need(
    "Metadata", _CREATE, _TOPIC, Shown.ITEM, "a missing topic is to be created", is_change=True
)
METADATA_CLUSTER: Final = _need(
    "Metadata", _DESCRIBE, _CLUSTER, Shown.EMPTY, "authorized operations of the cluster"
)
DESCRIBE_CLUSTER_OPERATIONS: Final = _need(
    "DescribeCluster", _DESCRIBE, _CLUSTER, Shown.EMPTY, "authorized operations of the cluster"
)
DESCRIBE_TOPIC_PARTITIONS_ALL: Final = _need(
    "DescribeTopicPartitions", _DESCRIBE, _TOPIC, Shown.LEFT_OUT, "all topics are asked for"
)
DESCRIBE_TOPIC_PARTITIONS_TOPIC: Final = _need("DescribeTopicPartitions", _DESCRIBE, _TOPIC)
ALTER_PARTITION_REASSIGNMENTS: Final = _need(
    "AlterPartitionReassignments", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True
)
ALTER_REPLICA_LOG_DIRS: Final = _need(
    "AlterReplicaLogDirs", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True
)
ELECT_LEADERS: Final = _need("ElectLeaders", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True)
DESCRIBE_QUORUM: Final = _need("DescribeQuorum", _DESCRIBE, _CLUSTER, Shown.REQUEST)
UPDATE_FEATURES: Final = _need("UpdateFeatures", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True)
UNREGISTER_BROKER: Final = _need(
    "UnregisterBroker", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True
)
LIST_PARTITION_REASSIGNMENTS: Final = _need(
    "ListPartitionReassignments", _DESCRIBE, _CLUSTER, Shown.REQUEST
)
DESCRIBE_LOG_DIRS: Final = _need("DescribeLogDirs", _DESCRIBE, _CLUSTER, Shown.REQUEST)
CREATE_TOPICS_CLUSTER: Final = _need(
    "CreateTopics", _CREATE, _CLUSTER, Shown.OTHERWISE, is_change=True
)
CREATE_TOPICS_TOPIC: Final = _need("CreateTopics", _CREATE, _TOPIC, is_change=True)
CREATE_TOPICS_CONFIGS: Final = _need(
    "CreateTopics", _DESCRIBE_CONFIGS, _TOPIC, Shown.EMPTY, "configurations in the answer"
)
DELETE_TOPICS_CLUSTER: Final = _need(
    "DeleteTopics", _DELETE, _CLUSTER, Shown.OTHERWISE, is_change=True
)
DELETE_TOPICS_NAME: Final = _need(
    "DeleteTopics", _DESCRIBE, _TOPIC, Shown.ITEM, "without it an id does not get its name"
)
DELETE_TOPICS_TOPIC: Final = _need("DeleteTopics", _DELETE, _TOPIC, is_change=True)
CREATE_PARTITIONS_TOPIC: Final = _need("CreatePartitions", _ALTER, _TOPIC, is_change=True)

# --- configurations --------------------------------------------------------------------------

DESCRIBE_CONFIGS_TOPIC: Final = _need("DescribeConfigs", _DESCRIBE_CONFIGS, _TOPIC)
DESCRIBE_CONFIGS_GROUP: Final = _need("DescribeConfigs", _DESCRIBE_CONFIGS, _GROUP)
DESCRIBE_CONFIGS_CLUSTER: Final = _need(
    "DescribeConfigs", _DESCRIBE_CONFIGS, _CLUSTER, Shown.ITEM, "of brokers"
)
ALTER_CONFIGS_TOPIC: Final = _need("AlterConfigs", _ALTER_CONFIGS, _TOPIC, is_change=True)
ALTER_CONFIGS_GROUP: Final = _need("AlterConfigs", _ALTER_CONFIGS, _GROUP, is_change=True)
ALTER_CONFIGS_CLUSTER: Final = _need(
    "AlterConfigs", _ALTER_CONFIGS, _CLUSTER, Shown.ITEM, "of brokers", is_change=True
)
INCREMENTAL_ALTER_CONFIGS_TOPIC: Final = _need(
    "IncrementalAlterConfigs", _ALTER_CONFIGS, _TOPIC, is_change=True
)
INCREMENTAL_ALTER_CONFIGS_GROUP: Final = _need(
    "IncrementalAlterConfigs", _ALTER_CONFIGS, _GROUP, is_change=True
)
INCREMENTAL_ALTER_CONFIGS_CLUSTER: Final = _need(
    "IncrementalAlterConfigs", _ALTER_CONFIGS, _CLUSTER, Shown.ITEM, "of brokers", is_change=True
)
LIST_CONFIG_RESOURCES: Final = _need(
    "ListConfigResources", _DESCRIBE_CONFIGS, _CLUSTER, Shown.REQUEST
)

# --- groups ----------------------------------------------------------------------------------

FIND_COORDINATOR_GROUP: Final = _need("FindCoordinator", _DESCRIBE, _GROUP)
FIND_COORDINATOR_TRANSACTION: Final = _need("FindCoordinator", _DESCRIBE, _TRANSACTION)
JOIN_GROUP: Final = _need("JoinGroup", _READ, _GROUP, Shown.REQUEST)
SYNC_GROUP: Final = _need("SyncGroup", _READ, _GROUP, Shown.REQUEST)
HEARTBEAT: Final = _need("Heartbeat", _READ, _GROUP, Shown.REQUEST)
LEAVE_GROUP: Final = _need("LeaveGroup", _READ, _GROUP, Shown.REQUEST)
CONSUMER_GROUP_HEARTBEAT: Final = _need("ConsumerGroupHeartbeat", _READ, _GROUP, Shown.REQUEST)
CONSUMER_GROUP_HEARTBEAT_TOPIC: Final = _need(
    "ConsumerGroupHeartbeat", _DESCRIBE, _TOPIC, Shown.REQUEST, "topics subscribed by name"
)
CONSUMER_GROUP_HEARTBEAT_REGEX: Final = _need(
    "ConsumerGroupHeartbeat", _DESCRIBE, _TOPIC, Shown.LEFT_OUT, "topics that a pattern matches"
)
DESCRIBE_GROUPS: Final = _need("DescribeGroups", _DESCRIBE, _GROUP)
CONSUMER_GROUP_DESCRIBE: Final = _need("ConsumerGroupDescribe", _DESCRIBE, _GROUP)
CONSUMER_GROUP_DESCRIBE_TOPIC: Final = _need(
    "ConsumerGroupDescribe", _DESCRIBE, _TOPIC, Shown.ITEM, "every topic that the members have"
)
LIST_GROUPS_CLUSTER: Final = _need("ListGroups", _DESCRIBE, _CLUSTER, Shown.OTHERWISE)
LIST_GROUPS_GROUP: Final = _need("ListGroups", _DESCRIBE, _GROUP, Shown.LEFT_OUT)
DELETE_GROUPS: Final = _need("DeleteGroups", _DELETE, _GROUP, is_change=True)
OFFSET_COMMIT_GROUP: Final = _need("OffsetCommit", _READ, _GROUP, Shown.REQUEST)
OFFSET_COMMIT_TOPIC: Final = _need("OffsetCommit", _READ, _TOPIC)
OFFSET_FETCH_GROUP: Final = _need("OffsetFetch", _DESCRIBE, _GROUP)
OFFSET_FETCH_TOPIC: Final = _need("OffsetFetch", _DESCRIBE, _TOPIC)
OFFSET_FETCH_ALL: Final = _need(
    "OffsetFetch", _DESCRIBE, _TOPIC, Shown.LEFT_OUT, "all topics are asked for"
)
OFFSET_DELETE_GROUP: Final = _need("OffsetDelete", _DELETE, _GROUP, Shown.REQUEST, is_change=True)
OFFSET_DELETE_TOPIC: Final = _need("OffsetDelete", _READ, _TOPIC)

# --- producers and transactions --------------------------------------------------------------

INIT_PRODUCER_ID_TRANSACTION: Final = _need(
    "InitProducerId", _WRITE, _TRANSACTION, Shown.REQUEST, "with a transactional id"
)
INIT_PRODUCER_ID_CLUSTER: Final = _need(
    "InitProducerId", _IDEMPOTENT_WRITE, _CLUSTER, Shown.OTHERWISE, "without a transactional id"
)
INIT_PRODUCER_ID_TOPIC: Final = _need(
    "InitProducerId",
    _WRITE,
    _TOPIC,
    Shown.REQUEST,
    "without a transactional id: on any topic",
    code=ErrorCode.cluster_authorization_failed,
)
ADD_PARTITIONS_TO_TXN: Final = _need(
    "AddPartitionsToTxn", _WRITE, _TRANSACTION, Shown.REQUEST, "versions 0 to 3"
)
ADD_PARTITIONS_TO_TXN_TOPIC: Final = _need(
    "AddPartitionsToTxn", _WRITE, _TOPIC, Shown.ITEM, "versions 0 to 3"
)
ADD_PARTITIONS_TO_TXN_CLUSTER: Final = _need(
    "AddPartitionsToTxn", _CLUSTER_ACTION, _CLUSTER, Shown.REQUEST, "from version 4 on"
)
ADD_OFFSETS_TO_TXN: Final = _need("AddOffsetsToTxn", _WRITE, _TRANSACTION, Shown.REQUEST)
ADD_OFFSETS_TO_TXN_GROUP: Final = _need("AddOffsetsToTxn", _READ, _GROUP, Shown.REQUEST)
END_TXN: Final = _need("EndTxn", _WRITE, _TRANSACTION, Shown.REQUEST)
TXN_OFFSET_COMMIT: Final = _need("TxnOffsetCommit", _WRITE, _TRANSACTION, Shown.REQUEST)
TXN_OFFSET_COMMIT_GROUP: Final = _need("TxnOffsetCommit", _READ, _GROUP, Shown.REQUEST)
TXN_OFFSET_COMMIT_TOPIC: Final = _need("TxnOffsetCommit", _READ, _TOPIC)
WRITE_TXN_MARKERS_ALTER: Final = _need(
    "WriteTxnMarkers", _ALTER, _CLUSTER, Shown.OTHERWISE, is_change=True
)
WRITE_TXN_MARKERS: Final = _need(
    "WriteTxnMarkers", _CLUSTER_ACTION, _CLUSTER, Shown.REQUEST, is_change=True
)
DESCRIBE_TRANSACTIONS: Final = _need("DescribeTransactions", _DESCRIBE, _TRANSACTION)
DESCRIBE_TRANSACTIONS_TOPIC: Final = _need(
    "DescribeTransactions", _DESCRIBE, _TOPIC, Shown.LEFT_OUT
)
LIST_TRANSACTIONS: Final = _need("ListTransactions", _DESCRIBE, _TRANSACTION, Shown.LEFT_OUT)

# --- security --------------------------------------------------------------------------------

DESCRIBE_ACLS: Final = _need("DescribeAcls", _DESCRIBE, _CLUSTER, Shown.REQUEST)
CREATE_ACLS: Final = _need("CreateAcls", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True)
DELETE_ACLS: Final = _need("DeleteAcls", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = _need(
    "DescribeUserScramCredentials", _DESCRIBE, _CLUSTER, Shown.REQUEST
)
ALTER_USER_SCRAM_CREDENTIALS: Final = _need(
    "AlterUserScramCredentials", _ALTER, _CLUSTER, Shown.REQUEST, is_change=True
)
DESCRIBE_CLIENT_QUOTAS: Final = _need(
    "DescribeClientQuotas", _DESCRIBE_CONFIGS, _CLUSTER, Shown.REQUEST
)
ALTER_CLIENT_QUOTAS: Final = _need(
    "AlterClientQuotas", _ALTER_CONFIGS, _CLUSTER, Shown.REQUEST, is_change=True
)

# A client may send these before anybody knows who it is.
OPEN_APIS: Final = frozenset(
    {
        "ApiVersions",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "SaslAuthenticate",
        "SaslHandshake",
    }
)

ACCESS_TABLE: Final[Mapping[str, tuple[Need, ...]]] = MappingProxyType(
    {api: tuple(needs) for api, needs in _TABLE.items()}
)
