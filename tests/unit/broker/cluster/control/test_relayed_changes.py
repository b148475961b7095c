"""What the audit log learns of changes that the controllers made for a client."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.cluster.control.relayed_changes import Details, RelayedChange, relayed_changes
from cordwood.cluster.image.access_image import ScramCredential
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import LeaderEpoch

ORDERS = UUID(int=1)
PARTITION = PartitionImage(
    replicas=(1,), in_sync=(1,), leader=1, leader_epoch=LeaderEpoch(0), partition_epoch=0
)
BEFORE = MetadataImage(
    topics={
        ORDERS: TopicImage(name="orders", topic_id=ORDERS, partitions={0: PARTITION, 1: PARTITION})
    },
    topic_ids={"orders": ORDERS},
    configs={(2, "orders"): {"retention.ms": "1", "cleanup.policy": "delete"}},
    quotas={(("user", "alice"),): {"producer_byte_rate": 5.0}},
    scram_users={
        ("alice", 1): ScramCredential(salt=b"", stored_key=b"", server_key=b"", iterations=4096)
    },
)
RULE: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def changes(api: ApiKey, request: dict[str, Any], answer: dict[str, Any]) -> list[RelayedChange]:
    return relayed_changes(api, request, answer, BEFORE)


def test_topics_that_were_created_have_their_partitions_and_settings() -> None:
    asked = {
        "name": "new", "num_partitions": 3, "assignments": [],
        "configs": [{"name": "retention.ms", "value": "9"}],
    }  # fmt: skip
    request = {"topics": [asked, {**asked, "name": "bad"}], "validate_only": False}
    answer = {"topics": [{"name": "new", "error_code": 0}, {"name": "bad", "error_code": 36}]}

    new: Details = {"partitions": 3, "configs": {"retention.ms": "9"}}
    assert changes(ApiKey.CREATE_TOPICS, request, answer) == [
        RelayedChange("CREATE", "TOPIC", "new", {}, new)
    ]
    assert changes(ApiKey.CREATE_TOPICS, {**request, "validate_only": True}, answer) == []


@pytest.mark.parametrize(
    "response", [{"name": None, "topic_id": ORDERS}, {"name": "orders"}], ids=["id", "name"]
)
def test_a_topic_that_was_deleted_is_told_by_its_name(response: dict[str, Any]) -> None:
    answer = {"responses": [{**response, "error_code": 0}]}

    old: Details = {"topic_id": str(ORDERS), "partitions": 2}
    assert changes(ApiKey.DELETE_TOPICS, {}, answer) == [
        RelayedChange("DELETE", "TOPIC", "orders", old, {})
    ]


def test_partitions_that_were_added_are_told_with_their_number_before() -> None:
    request = {"topics": [{"name": "orders", "count": 5}], "validate_only": False}
    answer = {"results": [{"name": "orders", "error_code": 0}]}

    assert changes(ApiKey.CREATE_PARTITIONS, request, answer) == [
        RelayedChange("ALTER", "TOPIC", "orders", {"partitions": 2}, {"partitions": 5})
    ]


def test_settings_are_told_as_they_are_after_each_operation() -> None:
    operations = [
        ("retention.ms", 0, "7"),
        ("max.message.bytes", 1, None),
        ("cleanup.policy", 2, "compact"),
    ]
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in operations
    ]
    place = {"resource_type": 2, "resource_name": "orders"}
    answer = {"responses": [{**place, "error_code": 0}]}
    request = {"resources": [{**place, "configs": configs}], "validate_only": False}

    [change] = changes(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, answer)
    whole = {**place, "configs": [{"name": "retention.ms", "value": "3"}]}
    [replaced] = changes(ApiKey.ALTER_CONFIGS, {"resources": [whole]}, answer)

    assert change.old == {
        "retention.ms": "1", "max.message.bytes": None, "cleanup.policy": "delete",
    }  # fmt: skip
    assert change.new == {
        "retention.ms": "7", "max.message.bytes": None, "cleanup.policy": "delete,compact",
    }  # fmt: skip
    assert replaced.new == {"retention.ms": "3", "cleanup.policy": None}


def test_access_rules_are_told_in_words() -> None:
    text = {"rule": "ALLOW User:alice READ on TOPIC orders"}
    creation = {**RULE, "resource_pattern_type": 3}
    request = {"creations": [creation, creation]}
    answer = {"results": [{"error_code": 0}, {"error_code": 42}]}
    found = {**RULE, "pattern_type": 3, "error_code": 0}
    deleted = {"filter_results": [{"error_code": 0, "matching_acls": [found]}]}

    assert changes(ApiKey.CREATE_ACLS, request, answer) == [
        RelayedChange("CREATE", "ACL", "orders", {}, text)
    ]
    assert changes(ApiKey.DELETE_ACLS, {}, deleted) == [
        RelayedChange("DELETE", "ACL", "orders", text, {})
    ]


def test_quotas_are_told_with_their_limits_before_and_after() -> None:
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    ops = [
        {"key": "producer_byte_rate", "value": 9.0, "remove": False},
        {"key": "consumer_byte_rate", "value": 0.0, "remove": True},
    ]
    request = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    answer = {"entries": [{"error_code": 0, "entity": entity}]}

    assert changes(ApiKey.ALTER_CLIENT_QUOTAS, request, answer) == [
        RelayedChange(
            "ALTER_CONFIGS",
            "QUOTA",
            "user alice",
            {"producer_byte_rate": 5.0, "consumer_byte_rate": None},
            {"producer_byte_rate": 9.0, "consumer_byte_rate": None},
        )
    ]


def test_users_are_told_with_iterations_and_never_with_their_credentials() -> None:
    upsertion = {
        "name": "alice", "mechanism": 2, "iterations": 8192,
        "salt": b"salt", "salted_password": b"secret",
    }  # fmt: skip
    request = {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": [upsertion]}
    answer = {"results": [{"user": "alice", "error_code": 0}, {"user": "bob", "error_code": 91}]}

    found = changes(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, answer)

    old = {"SCRAM-SHA-256": "4096 iterations"}
    new = {**old, "SCRAM-SHA-512": "8192 iterations"}
    assert found == [RelayedChange("ALTER", "USER", "alice", old, new)]
    assert "secret" not in repr(found)


def test_requests_that_only_ask_change_nothing() -> None:
    assert changes(ApiKey.DESCRIBE_QUORUM, {}, {"error_code": 0}) == []
