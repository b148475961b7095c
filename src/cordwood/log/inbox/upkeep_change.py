"""Requested upkeep: values and their JSON.

Rolling is quick. The others may take long if there is much data; they run beside other requests
and report their progress. `store_change` has the request around them.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.log.inbox.checked_fields import (
    PARTITIONS_MAX,
    config_field,
    number_field,
    text_field,
    topic_field,
)
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, field

_PATH_CHARS_MAX: Final = 4096
_URL_CHARS_MAX: Final = 8192
_TOPICS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RollTopic:
    """Seal the active segments of a topic's partitions (None: all)."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactTopic:
    """Compact those partitions of a topic (None: all) that are due; with `force`, each."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...] | None = None
    force: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveTopics:
    """Copy segments that are due to the archives of these topics (None: all)."""

    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStore:
    """Copy the store to a new directory with the absolute path `path`.

    With `include_security`, users, access rules and quotas too.
    """

    path: str
    include_security: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTopic:
    """Recreate a topic from the archive at `url`; see `Store.restore_topic`.

    archived_id  chooses among several topics that had the name
    new_name     the name of the restored topic; None: the old one
    take_over    continue the archive, and end that for the store that owns it
    """

    topic: str
    url: str
    to_timestamp_ms: int | None = None
    archived_id: UUID | None = None
    new_name: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    take_over: bool = False


UpkeepChange = RollTopic | CompactTopic | ArchiveTopics | SnapshotStore | RestoreTopic
LongChange = CompactTopic | ArchiveTopics | SnapshotStore | RestoreTopic

UPKEEP_CHANGE_KINDS: Final[dict[type, str]] = {
    RollTopic: "roll",
    CompactTopic: "compact",
    ArchiveTopics: "archive",
    SnapshotStore: "snapshot",
    RestoreTopic: "restore",
}


def render_upkeep_change(change: UpkeepChange) -> dict[str, Any]:
    match change:
        case RollTopic() | CompactTopic():
            body = {
                "topic": change.topic,
                "topic_id": encode_topic_id(change.topic_id),
                "partitions": None if change.partitions is None else list(change.partitions),
            }
            return body if isinstance(change, RollTopic) else {**body, "force": change.force}
        case ArchiveTopics():
            return {"topics": None if change.topics is None else list(change.topics)}
        case SnapshotStore():
            return {"path": change.path, "include_security": change.include_security}
        case RestoreTopic():
            archived_id = change.archived_id
            return {
                "topic": change.topic,
                "url": change.url,
                "to_timestamp_ms": change.to_timestamp_ms,
                "archived_id": None if archived_id is None else encode_topic_id(archived_id),
                "new_name": change.new_name,
                "config": dict(change.config),
                "take_over": change.take_over,
            }


def _parse_roll(found: dict[str, Any]) -> RollTopic:
    return RollTopic(
        topic=topic_field(found["topic"]),
        topic_id=decode_topic_id(text_field(found["topic_id"])),
        partitions=_partitions(found["partitions"]),
    )


def _parse_compact(found: dict[str, Any]) -> CompactTopic:
    return CompactTopic(
        topic=topic_field(found["topic"]),
        topic_id=decode_topic_id(text_field(found["topic_id"])),
        partitions=_partitions(found["partitions"]),
        force=_flag(found, "force"),
    )


def _flag(found: dict[str, Any], name: str) -> bool:
    value = found[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {str(value)[:80]!r}, not true or false")
    return value


def _partitions(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not 0 < len(value) <= PARTITIONS_MAX:
        raise ValueError(f"{str(value)[:80]!r} is not a list of partitions")
    return tuple(dict.fromkeys(number_field(number, INT32_MAX) for number in value))


def _parse_archive(found: dict[str, Any]) -> ArchiveTopics:
    topics = found["topics"]
    if topics is None:
        return ArchiveTopics()
    if not isinstance(topics, list) or not 0 < len(topics) <= _TOPICS_MAX:
        raise ValueError(f"{str(topics)[:80]!r} is not a list of topics")
    return ArchiveTopics(topics=tuple(dict.fromkeys(topic_field(name) for name in topics)))


def _parse_snapshot(found: dict[str, Any]) -> SnapshotStore:
    path = text_field(found["path"], _PATH_CHARS_MAX)
    if not os.path.isabs(path) or "\0" in path or os.path.normpath(path) != path:
        raise ValueError(f"{path[:80]!r} is not an absolute path in its shortest form")
    include_security = found.get("include_security", False)
    if not isinstance(include_security, bool):
        raise ValueError(f"include_security is {include_security!r:.80}, must be true or false")
    return SnapshotStore(path=path, include_security=include_security)


def _parse_restore(found: dict[str, Any]) -> RestoreTopic:
    to_timestamp_ms, archived_id, new_name = (
        found["to_timestamp_ms"],
        found["archived_id"],
        found["new_name"],
    )
    config = config_field(found["config"])
    if None in config.values():
        raise ValueError("a restored topic has no previous value to reset; omit keys that are null")
    return RestoreTopic(
        topic=topic_field(found["topic"]),
        url=text_field(found["url"], _URL_CHARS_MAX),
        to_timestamp_ms=None if to_timestamp_ms is None else number_field(to_timestamp_ms),
        archived_id=None if archived_id is None else decode_topic_id(text_field(archived_id)),
        new_name=None if new_name is None else topic_field(new_name),
        config={key: text for key, text in config.items() if text is not None},
        take_over=_flag(found, "take_over"),
    )


UPKEEP_CHANGE_PARSERS: Final[Mapping[str, Callable[[dict[str, Any]], UpkeepChange]]] = {
    "roll": _parse_roll,
    "compact": _parse_compact,
    "archive": _parse_archive,
    "snapshot": _parse_snapshot,
    "restore": _parse_restore,
}
