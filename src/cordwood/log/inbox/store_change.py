"""Requests for changes and their answers: values and their text.

A request and an answer are one JSON object each, small and versioned. They come from another
process, so nothing in them is trusted: `parse_request` accepts what `render_request` writes and
raises `FormatError` for everything else. Staged files have plain names, which cannot lead out of
the request's directory.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.errors import ConfigError, FormatError, InvalidTopicNameError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.log.inbox.checked_fields import (
    PARTITIONS_MAX,
    group_field,
    number_field,
    offset_field,
    text_field,
    topic_field,
)
from cordwood.log.inbox.topic_change import (
    TOPIC_CHANGE_KINDS,
    TOPIC_CHANGE_PARSERS,
    TopicChange,
    render_topic_change,
)
from cordwood.log.inbox.upkeep_change import (
    UPKEEP_CHANGE_KINDS,
    UPKEEP_CHANGE_PARSERS,
    ArchiveTopics,
    CompactTopic,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
    UpkeepChange,
    render_upkeep_change,
)
from cordwood.log.publishing.publication import PublicationId
from cordwood.quantities import INT32_MAX, Offset, ProducerId, TimestampMs
from cordwood.value_class import dataclass, field

_VERSION: Final = 1
_ID: Final = re.compile(r"[0-9a-f]{32}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_METADATA_CHARS_MAX: Final = 4096  # as Kafka's offset.metadata.max.bytes

CLAIMED_FACTOR: Final = 10

DONE: Final = "done"
SKIPPED: Final = "skipped"
REFUSED: Final = "refused"
_OUTCOMES: Final = (DONE, SKIPPED, REFUSED)


def check_file_name(name: object) -> str:
    """Return `name` if it is a valid name of a staged file, without any path."""
    if not isinstance(name, str) or _FILE_NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a valid name of a staged file")
    return name


def check_id(value: object) -> str:
    """Return `value` if it is a valid id of a request or of a directory of staged files."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"{str(value)[:80]!r} is not 32 hex digits")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatches:
    """A file of staged batches. See `format.staged_batches`.

    `staging_id` names its directory in the inbox. Each task writes to its own.
    """

    staging_id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBatches:
    """Publish the batches of `files`, in that order, as one publication.

    `topics` maps names to partition counts; missing topics are created.
    """

    publication: PublicationId
    files: tuple[StagedBatches, ...]
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlace:
    """A sealed segment at the time of planning. `size` is that of its log file."""

    base_offset: Offset
    next_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """The log file of a new segment, in the request's directory."""

    name: str
    base_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapSegments:
    """Replace consecutive sealed segments by rewritten ones.

    planned_on     the segments to replace; refused if any of them has changed
    files          the new segments, in order
    cleaned_up_to  how far the log is compacted afterwards; None: unchanged
    aborted        aborted transactions whose markers were kept, for the transaction index
    """

    topic: str
    topic_id: UUID
    partition: int
    planned_on: tuple[SegmentPlace, ...]
    files: tuple[StagedSegment, ...]
    cleaned_up_to: Offset | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGroup:
    """Commit a consumer group's offsets: (offset, metadata) by (topic, partition)."""

    group: str
    offsets: Mapping[tuple[str, int], tuple[int, str]]


StoreChange = PublishBatches | SwapSegments | CommitGroup | TopicChange | UpkeepChange
_KINDS: Final[dict[type, str]] = {
    PublishBatches: "publish",
    SwapSegments: "swap-compaction",
    CommitGroup: "commit-group",
    **TOPIC_CHANGE_KINDS,
    **UPKEEP_CHANGE_KINDS,
}


def kind_of(change: StoreChange) -> str:
    """The name of this kind of change in requests."""
    return _KINDS[type(change)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A requested change, with the wall times of its submission and its deadline.

    A request that nobody has claimed by its deadline is withdrawn by its requester. For one that
    was claimed, the requester waits `CLAIMED_FACTOR` times as long again.
    """

    change: StoreChange
    submitted_ms: TimestampMs
    deadline_ms: TimestampMs

    @property
    def timeout_ms(self) -> int:
        return max(self.deadline_ms - self.submitted_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAnswer:
    """The outcome of a request: done, skipped (it was done before) or refused."""

    outcome: str
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


# --- requests --------------------------------------------------------------------------------


def render_request(request: ChangeRequest) -> bytes:
    change = request.change
    match change:
        case PublishBatches():
            body: dict[str, Any] = {
                "application": change.publication.application,
                "number": change.publication.number,
                "is_transient": change.publication.is_transient,
                "files": [[file.staging_id, file.name, file.size] for file in change.files],
                "topics": dict(change.topics),
            }
        case SwapSegments():
            body = {
                "topic": change.topic,
                "topic_id": encode_topic_id(change.topic_id),
                "partition": change.partition,
                "planned_on": [[s.base_offset, s.next_offset, s.size] for s in change.planned_on],
                "files": [[file.name, file.base_offset, file.size] for file in change.files],
                "cleaned_up_to": change.cleaned_up_to,
                "aborted": [
                    [t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset]
                    for t in change.aborted
                ],
            }
        case CommitGroup():
            body = {
                "group": change.group,
                "offsets": [[*place, *value] for place, value in change.offsets.items()],
            }
        case RollTopic() | CompactTopic() | ArchiveTopics() | SnapshotStore() | RestoreTopic():
            body = render_upkeep_change(change)
        case _:
            body = render_topic_change(change)
    head = {
        "version": _VERSION,
        "kind": kind_of(change),
        "submitted_ms": request.submitted_ms,
        "deadline_ms": request.deadline_ms,
    }
    return json.dumps(head | body).encode()


def parse_request(content: bytes) -> ChangeRequest:
    """Raises `FormatError` for anything that is not a request, saying what is wrong."""
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        if found.get("version") != _VERSION:
            raise ValueError(f"unknown version {found.get('version')!r}, expected {_VERSION}")
        kind = str(found.get("kind"))
        if kind not in _PARSERS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(_PARSERS)}")
        return ChangeRequest(
            change=_PARSERS[kind](found),
            submitted_ms=TimestampMs(number_field(found["submitted_ms"])),
            deadline_ms=TimestampMs(number_field(found["deadline_ms"])),
        )
    except KeyError as error:
        raise FormatError(f"the request lacks {error}") from error
    except (
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
        ConfigError,
        FormatError,
        InvalidTopicNameError,
    ) as error:
        raise FormatError(f"not a request: {error}") from error


def _parse_publish(found: dict[str, Any]) -> PublishBatches:
    topics = {
        topic_field(name): number_field(count, PARTITIONS_MAX) for name, count in _items(found)
    }
    return PublishBatches(
        publication=PublicationId(
            application=text_field(found["application"]),
            number=number_field(found["number"]),
            is_transient=bool(found["is_transient"]),
        ),
        files=tuple(
            StagedBatches(
                staging_id=check_id(staging_id), name=check_file_name(name), size=number_field(size)
            )
            for staging_id, name, size in found["files"]
        ),
        topics=topics,
    )


def _items(found: dict[str, Any]) -> list[tuple[Any, Any]]:
    return list(dict(found["topics"]).items())


def _parse_swap(found: dict[str, Any]) -> SwapSegments:
    cleaned = found["cleaned_up_to"]
    return SwapSegments(
        topic=topic_field(found["topic"]),
        topic_id=decode_topic_id(text_field(found["topic_id"])),
        partition=number_field(found["partition"], INT32_MAX),
        planned_on=tuple(
            SegmentPlace(
                base_offset=offset_field(base),
                next_offset=offset_field(following),
                size=number_field(size),
            )
            for base, following, size in found["planned_on"]
        ),
        files=tuple(
            StagedSegment(
                name=check_file_name(name), base_offset=offset_field(base), size=number_field(size)
            )
            for name, base, size in found["files"]
        ),
        cleaned_up_to=None if cleaned is None else offset_field(cleaned),
        aborted=tuple(
            AbortedTransaction(
                producer_id=ProducerId(number_field(producer)),
                first_offset=offset_field(first),
                last_offset=offset_field(last),
                last_stable_offset=offset_field(stable),
            )
            for producer, first, last, stable in found["aborted"]
        ),
    )


def _parse_commit(found: dict[str, Any]) -> CommitGroup:
    offsets = {
        (topic_field(topic), number_field(partition, INT32_MAX)): (
            number_field(offset),
            text_field(metadata, _METADATA_CHARS_MAX),
        )
        for topic, partition, offset, metadata in found["offsets"]
    }
    return CommitGroup(group=group_field(found["group"]), offsets=offsets)


_PARSERS: Final[Mapping[str, Callable[[dict[str, Any]], StoreChange]]] = {
    "publish": _parse_publish,
    "swap-compaction": _parse_swap,
    "commit-group": _parse_commit,
    **TOPIC_CHANGE_PARSERS,
    **UPKEEP_CHANGE_PARSERS,
}


# --- answers ---------------------------------------------------------------------------------


def render_answer(answer: ChangeAnswer) -> bytes:
    return json.dumps(
        {
            "version": _VERSION,
            "outcome": answer.outcome,
            "reason": answer.reason,
            "facts": dict(answer.facts),
        }
    ).encode()


def parse_answer(content: bytes) -> ChangeAnswer:
    """Raises `FormatError` for anything that is not an answer."""
    try:
        found = json.loads(content)
        outcome, facts = found["outcome"], found["facts"]
        if found["version"] != _VERSION or outcome not in _OUTCOMES or not isinstance(facts, dict):
            raise ValueError(f"outcome {outcome!r} in version {found['version']!r}")
        return ChangeAnswer(outcome=outcome, reason=text_field(found["reason"]), facts=facts)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(f"not an answer to a request: {error}") from error
