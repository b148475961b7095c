"""Changes that are asked of a store's owner from outside, and its answers: values and their text.

A request and an answer are one JSON object each, small and versioned. They come from another
process, so nothing in them is taken on trust: `parse_request` accepts what `render_request`
writes and raises `FormatError` over everything else. Files that go with a request are named by
plain names, which lead nowhere but into the request's own directory.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from varve.errors import ConfigError, FormatError, InvalidTopicNameError
from varve.format.file_names import check_topic_name
from varve.format.index_entry import AbortedTransaction
from varve.format.partition_metadata import decode_topic_id, encode_topic_id
from varve.log.publication import PublicationId
from varve.quantities import INT32_MAX, INT64_MAX, Offset, ProducerId, TimestampMs

_VERSION: Final = 1
_ID: Final = re.compile(r"[0-9a-f]{32}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_GROUP_CHARS_MAX: Final = 1000
_METADATA_CHARS_MAX: Final = 4096  # as Kafka's offset.metadata.max.bytes
_PARTITIONS_MAX: Final = 10_000

DONE: Final = "done"
SKIPPED: Final = "skipped"
REFUSED: Final = "refused"
_OUTCOMES: Final = (DONE, SKIPPED, REFUSED)


def check_file_name(name: object) -> str:
    """`name`, if it can be that of a staged file; it has no way out of its directory."""
    if not isinstance(name, str) or _FILE_NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} cannot be the name of a staged file")
    return name


def check_id(value: object) -> str:
    """`value`, if it can be the id of a request or of a directory of staged files."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"{str(value)[:80]!r} is not 32 hex digits")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatches:
    """A file of staged batches. See `format.staged_batches`.

    `staging_id` names the directory of the inbox that it lies in: each task writes to its own.
    """

    staging_id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBatches:
    """Publish the batches of `files`, in that order, as one.

    `topics` are created, with so many partitions, where they are missing.
    """

    publication: PublicationId
    files: tuple[StagedBatches, ...]
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlace:
    """A sealed segment as it was when a change of it was planned. `size`: of its log file."""

    base_offset: Offset
    next_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """The log file of a segment to be, in the request's directory."""

    name: str
    base_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapSegments:
    """Put rewritten segments in the place of consecutive sealed ones.

    planned_on     those to be replaced, all of them still as they were, or it is refused
    files          what takes their place, in order
    cleaned_up_to  how far the log is compacted then; None: as far as it says now
    aborted        transactions whose markers were kept, and which readers must know of
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


StoreChange = PublishBatches | SwapSegments | CommitGroup
_KINDS: Final[dict[type, str]] = {
    PublishBatches: "publish",
    SwapSegments: "swap-compaction",
    CommitGroup: "commit-group",
}


def kind_of(change: StoreChange) -> str:
    """What requests call a change of that kind."""
    return _KINDS[type(change)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A change that is asked for. After `deadline_ms`, in wall time, nobody waits for it."""

    change: StoreChange
    deadline_ms: TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAnswer:
    """What became of a request: done, skipped (it had been done before) or refused."""

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
    head = {"version": _VERSION, "kind": kind_of(change), "deadline_ms": request.deadline_ms}
    return json.dumps(head | body).encode()


def parse_request(content: bytes) -> ChangeRequest:
    """Raises `FormatError` for anything that is not a request, saying what is wrong."""
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        if found.get("version") != _VERSION:
            raise ValueError(f"version {found.get('version')!r} is not {_VERSION}")
        kind = found.get("kind")
        if kind not in _PARSERS:
            raise ValueError(f"kind {kind!r} is none of {', '.join(_PARSERS)}")
        return ChangeRequest(
            change=_PARSERS[kind](found),
            deadline_ms=TimestampMs(_number(found["deadline_ms"])),
        )
    except KeyError as error:
        raise FormatError(f"a request without {error}") from error
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
    topics = {_topic(name): _number(count, _PARTITIONS_MAX) for name, count in _items(found)}
    return PublishBatches(
        publication=PublicationId(
            application=_text(found["application"]),
            number=_number(found["number"]),
            is_transient=bool(found["is_transient"]),
        ),
        files=tuple(
            StagedBatches(
                staging_id=check_id(staging_id), name=check_file_name(name), size=_number(size)
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
        topic=_topic(found["topic"]),
        topic_id=decode_topic_id(_text(found["topic_id"])),
        partition=_number(found["partition"], INT32_MAX),
        planned_on=tuple(
            SegmentPlace(
                base_offset=_offset(base), next_offset=_offset(following), size=_number(size)
            )
            for base, following, size in found["planned_on"]
        ),
        files=tuple(
            StagedSegment(name=check_file_name(name), base_offset=_offset(base), size=_number(size))
            for name, base, size in found["files"]
        ),
        cleaned_up_to=None if cleaned is None else _offset(cleaned),
        aborted=tuple(
            AbortedTransaction(
                producer_id=ProducerId(_number(producer)),
                first_offset=_offset(first),
                last_offset=_offset(last),
                last_stable_offset=_offset(stable),
            )
            for producer, first, last, stable in found["aborted"]
        ),
    )


def _parse_commit(found: dict[str, Any]) -> CommitGroup:
    offsets = {
        (_topic(topic), _number(partition, INT32_MAX)): (
            _number(offset),
            _text(metadata, _METADATA_CHARS_MAX),
        )
        for topic, partition, offset, metadata in found["offsets"]
    }
    group = _text(found["group"], _GROUP_CHARS_MAX)
    if not group:
        raise ValueError("a group without a name")
    return CommitGroup(group=group, offsets=offsets)


_PARSERS: Final = {
    "publish": _parse_publish,
    "swap-compaction": _parse_swap,
    "commit-group": _parse_commit,
}


def _number(value: object, maximum: int = INT64_MAX) -> int:
    if type(value) is not int or not 0 <= value <= maximum:
        raise ValueError(f"{value!r} is not a number from 0 to {maximum}")
    return value


def _offset(value: object) -> Offset:
    return Offset(_number(value))


def _text(value: object, chars_max: int = INT32_MAX) -> str:
    if not isinstance(value, str) or len(value) > chars_max:
        raise ValueError(f"{str(value)[:80]!r} is not a text of at most {chars_max} characters")
    return value


def _topic(value: object) -> str:
    name = _text(value)
    check_topic_name(name)
    return name


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
        return ChangeAnswer(outcome=outcome, reason=_text(found["reason"]), facts=facts)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(f"not an answer to a request: {error}") from error
