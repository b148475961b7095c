"""Every API that is known, and its versions: the only tables of them.

`API_CATALOG` has the APIs that every broker serves, `CLUSTER_CATALOG` those that only a broker
among brokers has: it sends them to the controllers, for itself or for a client, or serves them.

The ranges are those of Apache Kafka 4.3. A request outside its range is never decoded: its
connection is closed. Only ApiVersions is answered, with the versions that are served.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from cordwood.value_class import dataclass


class ApiKey(IntEnum):
    """The number of an API on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API and the versions of it that are served, both ends included.

    From `first_flexible_version` on it has compact sizes and tagged fields; None: never.
    `advertised_min_version` is the minimum in ApiVersions, which may be below `min_version`.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    first_flexible_version: int | None
    advertised_min_version: int

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible_version is not None and version >= self.first_flexible_version


def _api(
    key: ApiKey,
    min_version: int,
    max_version: int,
    flexible: int | None,
    *,
    advertised_min: int | None = None,
) -> Api:
    return Api(
        key=key,
        name="".join(word.capitalize() for word in key.name.split("_")),
        min_version=min_version,
        max_version=max_version,
        first_flexible_version=flexible,
        advertised_min_version=min_version if advertised_min is None else advertised_min,
    )


API_CATALOG: Final[Mapping[int, Api]] = MappingProxyType(
    {
        api.key: api
        for api in (
            # 0 to 2 are advertised but refused: without them librdkafka assumes a broker without
            # compression and without the present message format (KAFKA-18659).
            _api(ApiKey.PRODUCE, 3, 13, 9, advertised_min=0),
            _api(ApiKey.FETCH, 4, 18, 12),
            _api(ApiKey.LIST_OFFSETS, 1, 11, 6),
            _api(ApiKey.METADATA, 0, 13, 9),
            _api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
            _api(ApiKey.OFFSET_FETCH, 1, 10, 6),
            _api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
            _api(ApiKey.JOIN_GROUP, 0, 9, 6),
            _api(ApiKey.HEARTBEAT, 0, 4, 4),
            _api(ApiKey.LEAVE_GROUP, 0, 5, 4),
            _api(ApiKey.SYNC_GROUP, 0, 5, 4),
            _api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
            _api(ApiKey.LIST_GROUPS, 0, 5, 3),
            _api(ApiKey.SASL_HANDSHAKE, 0, 1, None),
            _api(ApiKey.API_VERSIONS, 0, 4, 3),
            _api(ApiKey.CREATE_TOPICS, 2, 7, 5),
            _api(ApiKey.DELETE_TOPICS, 1, 6, 4),
            _api(ApiKey.DELETE_RECORDS, 0, 2, 2),
            _api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
            _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
            _api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
            _api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
            _api(ApiKey.END_TXN, 0, 5, 3),
            _api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
            _api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
            _api(ApiKey.DESCRIBE_ACLS, 1, 3, 2),
            _api(ApiKey.CREATE_ACLS, 1, 3, 2),
            _api(ApiKey.DELETE_ACLS, 1, 3, 2),
            _api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
            _api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
            _api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
            _api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
            _api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
            _api(ApiKey.DELETE_GROUPS, 0, 2, 2),
            _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
            _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
            _api(ApiKey.OFFSET_DELETE, 0, 0, None),
            _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
            _api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
            _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
            _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
            _api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
            _api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
            _api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
            _api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
            _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
            _api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
            _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0),
            _api(ApiKey.PUSH_TELEMETRY, 0, 0, 0),
            _api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
            _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
        )
    }
)

CLUSTER_CATALOG: Final[Mapping[int, Api]] = MappingProxyType(
    {
        api.key: api
        for api in (
            _api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
            _api(ApiKey.ELECT_LEADERS, 0, 2, 2),
            _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
            _api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
            _api(ApiKey.ALTER_PARTITION, 2, 3, 0),
            _api(ApiKey.UPDATE_FEATURES, 0, 2, 0),
            _api(ApiKey.ENVELOPE, 0, 0, 0),
            _api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0),
            _api(ApiKey.BROKER_REGISTRATION, 0, 4, 0),
            _api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0),
            _api(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
            _api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0),
            _api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0),
        )
    }
)

KNOWN_APIS: Final[Mapping[int, Api]] = MappingProxyType({**API_CATALOG, **CLUSTER_CATALOG})
