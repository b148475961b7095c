"""Requested changes of topics and groups: values and their JSON.

`store_change` has the request around them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.log.inbox.checked_fields import (
    config_field,
    group_field,
    number_field,
    offset_field,
    text_field,
    topic_field,
)
from cordwood.quantities import INT32_MAX, Offset
from cordwood.value_class import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create a topic. Refused if the name is taken."""

    topic: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic:
    """Set configuration keys (None: back to the default), or the number of partitions."""

    topic: str
    config: Mapping[str, str | None] = field(default_factory=dict)
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Delete a topic. Refused if the name belongs to another `topic_id` by now."""

    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimTopic:
    """Delete the records before an offset in each of these partitions."""

    topic: str
    topic_id: UUID
    before: Mapping[int, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetGroup:
    """Remove the committed offsets of a group, for these partitions; None: all."""

    group: str
    places: tuple[tuple[str, int], ...] | None = None


TopicChange = CreateTopic | AlterTopic | DeleteTopic | TrimTopic | ForgetGroup

TOPIC_CHANGE_KINDS: Final[dict[type, str]] = {
    CreateTopic: "create-topic",
    AlterTopic: "alter-topic",
    DeleteTopic: "delete-topic",
    TrimTopic: "trim-topic",
    ForgetGroup: "forget-group",
}


def render_topic_change(change: TopicChange) -> dict[str, Any]:
    match change:
        case CreateTopic():
            return {
                "topic": change.topic,
                "partitions": change.partitions,
                "config": dict(change.config),
            }
        case AlterTopic():
            return {
                "topic": change.topic,
                "partitions": change.partitions,
                "config": dict(change.config),
            }
        case DeleteTopic():
            return {"topic": change.topic, "topic_id": encode_topic_id(change.topic_id)}
        case TrimTopic():
            return {
                "topic": change.topic,
                "topic_id": encode_topic_id(change.topic_id),
                "before": [list(item) for item in change.before.items()],
            }
        case ForgetGroup():
            places = change.places
            return {
                "group": change.group,
                "places": None if places is None else [list(place) for place in places],
            }


def _parse_create(found: dict[str, Any]) -> CreateTopic:
    config = config_field(found["config"])
    if None in config.values():
        raise ValueError("a new topic has no previous value to reset; omit keys that are null")
    return CreateTopic(
        topic=topic_field(found["topic"]),
        partitions=number_field(found["partitions"], INT32_MAX),
        config={key: text for key, text in config.items() if text is not None},
    )


def _parse_alter(found: dict[str, Any]) -> AlterTopic:
    partitions = found["partitions"]
    return AlterTopic(
        topic=topic_field(found["topic"]),
        config=config_field(found["config"]),
        partitions=None if partitions is None else number_field(partitions, INT32_MAX),
    )


def _parse_delete(found: dict[str, Any]) -> DeleteTopic:
    return DeleteTopic(
        topic=topic_field(found["topic"]), topic_id=decode_topic_id(text_field(found["topic_id"]))
    )


def _parse_trim(found: dict[str, Any]) -> TrimTopic:
    return TrimTopic(
        topic=topic_field(found["topic"]),
        topic_id=decode_topic_id(text_field(found["topic_id"])),
        before={
            number_field(partition, INT32_MAX): offset_field(offset)
            for partition, offset in found["before"]
        },
    )


def _parse_forget(found: dict[str, Any]) -> ForgetGroup:
    places = found["places"]
    return ForgetGroup(
        group=group_field(found["group"]),
        places=None
        if places is None
        else tuple((topic_field(topic), number_field(p, INT32_MAX)) for topic, p in places),
    )


TOPIC_CHANGE_PARSERS: Final[Mapping[str, Callable[[dict[str, Any]], TopicChange]]] = {
    "create-topic": _parse_create,
    "alter-topic": _parse_alter,
    "delete-topic": _parse_delete,
    "trim-topic": _parse_trim,
    "forget-group": _parse_forget,
}
