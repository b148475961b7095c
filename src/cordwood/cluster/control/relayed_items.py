"""Requests that a broker passes on, without the items that their sender may not have.

Pure: a request in, the part of it that may be passed on, and the answers to the rest.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.message_schema import NIL_UUID

Item = dict[str, Any]


def as_mapping(value: Any) -> Any:
    """A structure that was read, in the form in which structures are written."""
    if isinstance(value, Fields):
        return {name: as_mapping(item) for name, item in zip(value.names, value, strict=True)}
    if isinstance(value, tuple):
        return [as_mapping(item) for item in value]
    return value


class Split(NamedTuple):
    """`request` is what may be passed on, None if nothing is left; `refused` answers the rest."""

    request: Mapping[str, Any] | None
    refused: list[Item]


class ItemRule(NamedTuple):
    """Where an API has its items: in one list of the request, and in one of the answer."""

    asked: str
    answered: str
    refusal: Callable[[Item, int], Item]


def split_items(rule: ItemRule, request: Fields, verdict: Callable[[Item], int]) -> Split:
    """Ask `verdict` for an error code for each item; 0 means that it may be passed on."""
    whole: dict[str, Any] = as_mapping(request)
    allowed: list[Item] = []
    refused: list[Item] = []
    for item in whole[rule.asked]:
        code = verdict(item)
        if code:
            refused.append(rule.refusal(item, code))
        else:
            allowed.append(item)
    if refused and not allowed:
        return Split(None, refused)
    return Split({**whole, rule.asked: allowed}, refused)


def merged(rule: ItemRule, answer: Mapping[str, Any], refused: list[Item]) -> Mapping[str, Any]:
    """The answer of the controllers, and behind it the answers to what was not passed on."""
    return {**answer, rule.answered: [*answer.get(rule.answered, ()), *refused]}


_FAILED: Final = "Authorization failed."


def _refused_topic(item: Item, code: int) -> Item:
    return {"name": item["name"], "error_code": code, "error_message": _FAILED}


def _refused_deletion(item: Item, code: int) -> Item:
    """A topic that was named by its id is not told by its name."""
    topic_id: UUID = item.get("topic_id", NIL_UUID)
    return {
        "name": item["name"] if topic_id == NIL_UUID else None,
        "topic_id": topic_id,
        "error_code": code,
        "error_message": _FAILED,
    }


def _refused_resource(item: Item, code: int) -> Item:
    return {
        "resource_type": item["resource_type"],
        "resource_name": item["resource_name"],
        "error_code": code,
        "error_message": _FAILED,
    }


ITEM_RULES: Final[Mapping[ApiKey, ItemRule]] = {
    ApiKey.CREATE_TOPICS: ItemRule("topics", "topics", _refused_topic),
    ApiKey.DELETE_TOPICS: ItemRule("topics", "responses", _refused_deletion),
    ApiKey.CREATE_PARTITIONS: ItemRule("topics", "results", _refused_topic),
    ApiKey.ALTER_CONFIGS: ItemRule("resources", "responses", _refused_resource),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ItemRule("resources", "responses", _refused_resource),
}
