"""Requests of every API that needs a right, for a client whose rights change.

The brokers have the topics ``orders`` and ``other`` and the group ``billing``, which committed
offsets of both; ``missing`` is a topic that there is not. A case is sent with each set of rules,
so its answers must not depend on earlier ones.

The transactional id ``tx`` has a transaction under way, in ``orders`` and ``other``. Requests about
it come from a producer that is not its own, so nobody changes it: who is allowed to ask is told so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cordwood.protocol.api_catalog import ApiKey

Request = Mapping[str, Any]
Ids = Mapping[str, UUID]

TOPICS = ("orders", "other", "missing")
UNKNOWN_ID = UUID(int=7)
STRANGER = 987_654_321  # a producer id that nobody has
AUTO = "missing-"  # each pair of requests creates a topic of its own, where it may
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request of one version; `request` makes it from the ids of the topics."""

    api: ApiKey
    version: int
    request: Callable[[Ids], Request]
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.api.name.lower()}-{self.version}{'-' if self.note else ''}{self.note}"


def case(
    api: ApiKey,
    version: int,
    request: Request | Callable[[Ids], Request],
    note: str = "",
) -> Case:
    made = request if callable(request) else lambda ids: request
    return Case(api=api, version=version, request=made, note=note)


def _ids(ids: Ids) -> list[UUID]:
    return [ids["orders"], ids["other"], UNKNOWN_ID]


CASES = [
    case(
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                for name in TOPICS
            ],
        },
    ),
    case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -2,
            "topics": [
                {
                    "topic": name,
                    "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}],
                }
                for name in TOPICS
            ],
        },
    ),
    case(
        ApiKey.DELETE_RECORDS,
        2,
        {
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
                for name in TOPICS
            ],
            "timeout": 10_000,
        },
    ),
    case(ApiKey.METADATA, 12, {"topics": None}, "all"),
    case(ApiKey.METADATA, 1, {"topics": None}, "all"),
    case(
        ApiKey.METADATA,
        12,
        {
            "topics": [{"name": name} for name in TOPICS],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        "by-name",
    ),
    case(
        ApiKey.METADATA,
        12,
        lambda ids: {
            "topics": [{"name": f"{AUTO}{next(_numbers) // 2}"}],
            "allow_auto_topic_creation": True,
        },
        "created",
    ),
    case(
        ApiKey.METADATA,
        12,
        lambda ids: {"topics": [{"name": None, "topic_id": one} for one in _ids(ids)]},
        "by-id",
    ),
    case(
        ApiKey.METADATA,
        9,
        {"topics": [], "include_cluster_authorized_operations": True},
        "operations",
    ),
    case(ApiKey.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True}),
    case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 9}, "all"),
    case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": name} for name in TOPICS], "response_partition_limit": 9},
        "by-name",
    ),
    case(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 10_000, "topics": None}),
    case(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": "orders", "partitions": [0]}]}),
    case(
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in ("orders", "missing", "mi/ssing")
            ],
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    case(
        ApiKey.DELETE_TOPICS,
        6,
        lambda ids: {
            "topics": [
                {"name": "missing"},
                {"name": None, "topic_id": UNKNOWN_ID},
                {"name": None, "topic_id": ids["doomed"]},
            ],
            "timeout": 10_000,
        },
        "by-id",
    ),
    case(
        ApiKey.DELETE_TOPICS,
        5,
        {"topic_names": ["missing", "doomed"], "timeout": 10_000},
        "by-name",
    ),
    case(
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": name, "count": 3, "assignments": None} for name in TOPICS],
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                *({"resource_type": 2, "resource_name": name} for name in TOPICS),
                {"resource_type": 4, "resource_name": "1"},
                {"resource_type": 32, "resource_name": "billing"},
            ]
        },
    ),
    case(
        ApiKey.ALTER_CONFIGS,
        2,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": []} for name in TOPICS
            ],
            "validate_only": True,
        },
    ),
    case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                *({"resource_type": 2, "resource_name": name, "configs": []} for name in TOPICS),
                {"resource_type": 4, "resource_name": "1", "configs": []},
                {"resource_type": 32, "resource_name": "billing", "configs": []},
            ],
            "validate_only": True,
        },
    ),
    case(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [2]}),
    case(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["billing", "new"]}),
    case(ApiKey.FIND_COORDINATOR, 3, {"key_type": 0, "key": "billing"}),
    case(
        ApiKey.JOIN_GROUP,
        9,
        {
            "group_id": "billing",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "unknown",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    case(
        ApiKey.SYNC_GROUP,
        5,
        {
            "group_id": "billing",
            "generation_id": 1,
            "member_id": "unknown",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
    ),
    case(
        ApiKey.HEARTBEAT,
        4,
        {"group_id": "billing", "generation_id": 1, "member_id": "unknown"},
    ),
    case(
        ApiKey.LEAVE_GROUP,
        5,
        {"group_id": "billing", "members": [{"member_id": "unknown"}]},
    ),
    case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "billing",
            "member_id": "unknown",
            "member_epoch": 5,
            "subscribed_topic_names": ["orders"],
        },
    ),
    case(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["billing", "new"], "include_authorized_operations": True},
    ),
    case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["billing", "members", "new"], "include_authorized_operations": True},
    ),
    case(ApiKey.LIST_GROUPS, 4, {"states_filter": []}),
    case(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["members", "new"]}),
    case(
        ApiKey.OFFSET_COMMIT,
        9,
        {
            "group_id": "billing",
            "generation_id_or_member_epoch": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
                for name in TOPICS
            ],
        },
        "by-name",
    ),
    case(
        ApiKey.OFFSET_COMMIT,
        10,
        lambda ids: {
            "group_id": "billing",
            "generation_id_or_member_epoch": -1,
            "topics": [
                {"topic_id": one, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
                for one in _ids(ids)
            ],
        },
        "by-id",
    ),
    case(
        ApiKey.OFFSET_FETCH,
        9,
        {
            "groups": [
                {
                    "group_id": group,
                    "member_epoch": -1,
                    "topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS],
                }
                for group in ("billing", "new")
            ]
        },
        "by-name",
    ),
    case(
        ApiKey.OFFSET_FETCH,
        10,
        lambda ids: {
            "groups": [
                {
                    "group_id": "billing",
                    "member_epoch": -1,
                    "topics": [{"topic_id": one, "partition_indexes": [0]} for one in _ids(ids)],
                }
            ]
        },
        "by-id",
    ),
    case(
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "billing", "topics": None}]},
        "all",
    ),
    case(
        ApiKey.OFFSET_FETCH,
        5,
        {
            "group_id": "billing",
            "topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS],
        },
    ),
    case(
        ApiKey.OFFSET_DELETE,
        0,
        {
            "group_id": "billing",
            "topics": [{"name": name, "partitions": [{"partition_index": 5}]} for name in TOPICS],
        },
    ),
    case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    ),
    case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS]},
    ),
    case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "nobody"}]}),
    case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
    case(
        ApiKey.DESCRIBE_ACLS,
        3,
        {
            "resource_type_filter": 2,
            "resource_name_filter": "no-such-rule",
            "pattern_type_filter": 3,
            "operation": 1,
            "permission_type": 1,
        },
    ),
    case(
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "resource_pattern_type": pattern,
                    "principal": principal,
                    "host": "*",
                    "operation": operation,
                    "permission_type": permission,
                }
                for kind, name, pattern, principal, operation, permission in (
                    (4, "my-cluster", 3, "User:x", 3, 3),
                    (2, "", 3, "User:x", 3, 3),
                    # Of ANY and MATCH, Kafka makes an unknown error; its own clients refuse them.
                    (99, "a", 3, "User:x", 3, 3),
                    (2, "a", 99, "User:x", 3, 3),
                    (2, "a", 3, "User:x", 99, 3),
                    (2, "a", 3, "User:x", 3, 99),
                )
            ]
        },
    ),
    case(
        ApiKey.DELETE_ACLS,
        3,
        {
            "filters": [
                {
                    "resource_type_filter": kind,
                    "resource_name_filter": "no-such-rule",
                    "pattern_type_filter": pattern,
                    "operation": operation,
                    "permission_type": 1,
                }
                for kind, pattern, operation in ((2, 3, 1), (99, 3, 1), (2, 99, 1), (2, 3, 99))
            ]
        },
    ),
    case(
        ApiKey.DELETE_TOPICS,
        6,
        lambda ids: {
            "topics": [{"name": "doomed"}, {"name": None, "topic_id": ids["doomed"]}],
            "timeout": 10_000,
        },
        "by-name-and-id",
    ),
    case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {
            "components": [{"entity_type": "user", "match_type": 0, "match": "nobody"}],
            "strict": False,
        },
    ),
    case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1024.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    *(
        case(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": "tx",
                "v3_and_below_producer_id": STRANGER,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in topics],
            },
            note,
        )
        for topics, note in ((TOPICS, "some"), (("orders", "other"), "known"))
    ),
    *(
        case(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            4,
            {
                "transactions": [
                    {
                        "transactional_id": "tx",
                        "producer_id": STRANGER,
                        "producer_epoch": 0,
                        "verify_only": verify_only,
                        "topics": [{"name": "orders", "partitions": [0]}],
                    }
                ]
            },
            "verify" if verify_only else "",
        )
        for verify_only in (False, True)
    ),
    case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {
            "transactional_id": "tx",
            "producer_id": STRANGER,
            "producer_epoch": 0,
            "group_id": "billing",
        },
    ),
    case(
        ApiKey.END_TXN,
        3,
        {
            "transactional_id": "tx",
            "producer_id": STRANGER,
            "producer_epoch": 0,
            "committed": False,
        },
    ),
    case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": "tx",
            "group_id": "billing",
            "producer_id": STRANGER,
            "producer_epoch": 0,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
                for name in TOPICS
            ],
        },
    ),
    case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    "producer_id": STRANGER,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": "missing", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    case(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx", "no-tx"]}),
    case(ApiKey.LIST_TRANSACTIONS, 1, {"state_filters": [], "producer_id_filters": []}),
    case(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["tx", "no-tx"]}, "tx"),
    case(ApiKey.FIND_COORDINATOR, 3, {"key_type": 1, "key": "tx"}, "tx"),
    case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {
            "transactional_id": "tx",
            "transaction_timeout": 60_000,
            "producer_id": STRANGER,
            "producer_epoch": 0,
        },
        "tx",
    ),
]
