"""What requests that were relayed have changed, for the audit log: as a broker alone reports it.

Pure: the request, its answer, and the image before it. Values that are secret are hidden by the
audit log itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cordwood.broker.config_owners import ResourceType
from cordwood.broker.security.security_events import Detail
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.security.access.acl_text import rule_text
from cordwood.security.quotas.quota_rules import described, entity_of
from cordwood.security.security_state import AclRule, ScramMechanism

Message = Mapping[str, Any]
Details = Mapping[str, Detail]


class RelayedChange(NamedTuple):
    """One thing that was changed, with values before and after."""

    operation: str
    resource: str
    name: str
    old: Details
    new: Details


def relayed_changes(
    api: ApiKey, request: Message, answer: Message, before: MetadataImage
) -> list[RelayedChange]:
    """What was carried out; nothing for a request that only validates."""
    found = _BY_API.get(api)
    if found is None or request.get("validate_only", False):
        return []
    return list(found(request, answer, before))


def _created_topics(
    request: Message, answer: Message, _before: MetadataImage
) -> Iterator[RelayedChange]:
    asked = {topic["name"]: topic for topic in request["topics"]}
    for topic in _succeeded(answer["topics"]):
        wanted = asked[topic["name"]]
        partitions = topic.get("num_partitions", -1)
        if partitions < 0:
            partitions = len(wanted["assignments"]) or wanted["num_partitions"]
        configs = {each["name"]: each["value"] for each in wanted["configs"]}
        new: Details = {"partitions": partitions, "configs": configs}
        yield RelayedChange("CREATE", "TOPIC", topic["name"], {}, new)


def _deleted_topics(
    _request: Message, answer: Message, before: MetadataImage
) -> Iterator[RelayedChange]:
    for response in _succeeded(answer["responses"]):
        topic = before.topics.get(response.get("topic_id", NIL_UUID))
        if topic is None and response["name"]:
            topic = before.topic(response["name"])
        if topic is not None:
            old: Details = {"topic_id": str(topic.topic_id), "partitions": len(topic.partitions)}
            yield RelayedChange("DELETE", "TOPIC", topic.name, old, {})


def _grown_topics(
    request: Message, answer: Message, before: MetadataImage
) -> Iterator[RelayedChange]:
    counts = {topic["name"]: topic["count"] for topic in request["topics"]}
    for result in _succeeded(answer["results"]):
        topic = before.topic(result["name"])
        old: Details = {} if topic is None else {"partitions": len(topic.partitions)}
        new: Details = {"partitions": counts[result["name"]]}
        yield RelayedChange("ALTER", "TOPIC", result["name"], old, new)


def _altered_configs(
    request: Message, answer: Message, before: MetadataImage
) -> Iterator[RelayedChange]:
    good = {
        (each["resource_type"], each["resource_name"]) for each in _succeeded(answer["responses"])
    }
    for resource in request["resources"]:
        kind, name = place = resource["resource_type"], resource["resource_name"]
        if place not in good:
            continue
        had = before.config_of(kind, name)
        new = _values(resource["configs"], had)
        old = {key: had.get(key) for key in new}
        shown = ResourceType(kind).name if kind in set(ResourceType) else str(kind)
        yield RelayedChange("ALTER_CONFIGS", shown, name, old, new)


def _values(configs: list[Message], had: Mapping[str, str]) -> dict[str, str | None]:
    """The values after a change; None: back to the default."""
    if configs and "config_operation" not in configs[0]:  # all values, old ones end
        return {**dict.fromkeys(had), **{each["name"]: each["value"] for each in configs}}
    values: dict[str, str | None] = {}
    for each in configs:
        key, operation, value = each["name"], each["config_operation"], each["value"]
        items = [item for item in had.get(key, "").split(",") if item]
        given = (value or "").split(",")
        match operation:
            case 1:
                values[key] = None
            case 2:
                values[key] = ",".join([*items, *(item for item in given if item not in items)])
            case 3:
                values[key] = ",".join(item for item in items if item not in given)
            case _:
                values[key] = value
    return values


def _created_rules(
    request: Message, answer: Message, _before: MetadataImage
) -> Iterator[RelayedChange]:
    for creation, result in zip(request["creations"], answer["results"], strict=True):
        if not result["error_code"]:
            rule = _rule(creation, creation["resource_pattern_type"])
            yield RelayedChange("CREATE", "ACL", rule.name, {}, {"rule": rule_text(rule)})


def _deleted_rules(
    _request: Message, answer: Message, _before: MetadataImage
) -> Iterator[RelayedChange]:
    rules = {
        _rule(found, found["pattern_type"])
        for result in _succeeded(answer["filter_results"])
        for found in _succeeded(result["matching_acls"])
    }
    for rule in sorted(rules):
        yield RelayedChange("DELETE", "ACL", rule.name, {"rule": rule_text(rule)}, {})


def _rule(found: Message, pattern: int) -> AclRule:
    return AclRule(
        AclResource(found["resource_type"]),
        AclPattern(pattern),
        found["resource_name"],
        found["principal"],
        found["host"],
        AclOperation(found["operation"]),
        AclPermission(found["permission_type"]),
    )


def _altered_quotas(
    request: Message, answer: Message, before: MetadataImage
) -> Iterator[RelayedChange]:
    for entry, result in zip(request["entries"], answer["entries"], strict=True):
        if result["error_code"]:
            continue
        names = {part["entity_type"]: part["entity_name"] for part in entry["entity"]}
        had = before.quotas.get(tuple(sorted(names.items())), {})
        new = {op["key"]: None if op["remove"] else op["value"] for op in entry["ops"]}
        old = {key: had.get(key) for key in new}
        yield RelayedChange("ALTER_CONFIGS", "QUOTA", described(entity_of(names)), old, new)


def _altered_users(
    request: Message, answer: Message, before: MetadataImage
) -> Iterator[RelayedChange]:
    for result in _succeeded(answer["results"]):
        user = result["user"]
        had = {
            kind: found.iterations
            for kind in ScramMechanism
            if (found := before.scram_users.get((user, kind))) is not None
        }
        has = dict(had)
        for entry in request["deletions"]:
            if entry["name"] == user:
                has.pop(ScramMechanism(entry["mechanism"]), None)
        for entry in request["upsertions"]:
            if entry["name"] == user:
                has[ScramMechanism(entry["mechanism"])] = entry["iterations"]
        operation = "DELETE" if not has else "ALTER" if had else "CREATE"
        yield RelayedChange(operation, "USER", user, _iterations(had), _iterations(has))


def _iterations(credentials: Mapping[ScramMechanism, int]) -> Details:
    return {kind.mechanism: f"{count} iterations" for kind, count in credentials.items()}


def _succeeded(items: list[Message]) -> list[Message]:
    return [item for item in items if not item["error_code"]]


_BY_API: Final[
    Mapping[ApiKey, Callable[[Message, Message, MetadataImage], Iterator[RelayedChange]]]
] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _grown_topics,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.CREATE_ACLS: _created_rules,
    ApiKey.DELETE_ACLS: _deleted_rules,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
}
