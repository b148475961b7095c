"""The two small objects that describe an archive. Each is replaced as a whole.

    <topic>/<topic id>/topic.json                       the topic: configuration, groups' offsets
    <topic>/<topic id>/<partition>/manifest.json        the partition: which segments are archived
    <topic>/<topic id>/<partition>/<base offset, 20 digits>-<copy id>.log
                                                        the log file of one segment
    <topic>/<topic id>/<partition>/<base offset, 20 digits>-<copy id>.packed
                                                        the sums of its blocks, then its other files

An object counts only if a manifest names it, with the size and SHA-256 of each file in it. Each
copy of a segment has its own id, so no object is ever overwritten: an interrupted copy leaves
objects that no manifest names, and a manifest is either the old one or the new one.

A manifest of version 1 has no packed objects: each file is an object, `...-<copy id>.<kind>`, and
there are no sums of blocks. A copy of that kind is read as it is, and stays as it is.

Both objects are ``{"checksum": sha256 of the rest, "content": {...}}``; `generation` in the content
grows with every change. The topic id is part of every key, so a topic that was deleted and created
again does not mix with the archive of the old one.
"""

import hashlib
import json
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from cordwood.archive.manifests.segment_copy import ArchivedFile, ArchivedSums, SegmentCopy
from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.file_names import FileKind, check_topic_name
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import (
    KIB,
    MIB,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from cordwood.value_class import dataclass, field, replace

MANIFEST_NAME: Final = "manifest.json"
TOPIC_NAME: Final = "topic.json"
# Enough for a million segments. A damaged or hostile object cannot take more memory.
MANIFEST_BYTES_MAX: Final = 512 * MIB
_VERSION: Final = 1
_MANIFEST_VERSION: Final = 2
_MANIFEST_VERSIONS_READ: Final = frozenset({1, 2})
_BLOCK_BYTES: Final = range(4 * KIB, 4 * MIB + 1)
_SUMS_BYTES_MAX: Final = 64 * MIB  # a segment is at most 2 GiB large
_MOMENTS_MAX: Final = 256

T = TypeVar("T")


def topic_prefix(topic: str, topic_id: UUID) -> str:
    return f"{topic}/{encode_topic_id(topic_id)}"


def partition_prefix(topic: str, topic_id: UUID, partition: int) -> str:
    return f"{topic_prefix(topic, topic_id)}/{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The archived segments of one partition.

    Invariant: segments follow each other without a gap; `start` lies in the first one or after
    it. `owner` is the store that may change it. A store that is restored from this archive takes
    it over; the previous owner notices before it changes anything.

    The owner may be a cluster. Then `leader_epoch` is that of the leader that changed it last, and
    never decreases; -1 for a store that is alone.
    """

    generation: int
    topic: str
    topic_id: UUID
    partition: int
    owner: str
    allows_gaps: bool
    start: Offset
    epochs: tuple[EpochEntry, ...] = ()
    segments: tuple[SegmentCopy, ...] = ()
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH

    def __post_init__(self) -> None:
        pairs = zip(self.segments, self.segments[1:], strict=False)
        if any(a.next_offset != b.base_offset for a, b in pairs):
            raise FormatError(f"{self.topic}-{self.partition}: there is a gap between segments")
        if any(s.base_offset >= s.next_offset for s in self.segments):
            raise FormatError(f"a segment of {self.topic}-{self.partition} holds no offset")

    @property
    def prefix(self) -> str:
        return partition_prefix(self.topic, self.topic_id, self.partition)

    @property
    def end(self) -> Offset:
        """Offsets in [start, end) are archived; equals `start` if there is no segment."""
        return self.segments[-1].next_offset if self.segments else self.start

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def plus(
        self, segment: SegmentCopy, epochs: tuple[EpochEntry, ...], log_start: Offset
    ) -> "Manifest":
        """With one more segment. Epochs of the log that start after it are not archived yet."""
        first = self.segments[0] if self.segments else segment
        start = Offset(max(self.start, first.base_offset, log_start))
        known = {entry.epoch: entry for entry in self.epochs}
        for entry in epochs:
            if entry.start_offset < segment.next_offset:
                known.setdefault(entry.epoch, entry)
        return replace(
            self,
            generation=self.generation + 1,
            start=start,
            epochs=tuple(known[epoch] for epoch in sorted(known)),
            segments=(*self.segments, segment),
        )

    def kept(self, start: Offset, end: Offset) -> "Manifest":
        """Without the segments outside [start, end); self if there are none.

        Whole segments are removed, also one that reaches past `end`: the log still has the part
        of it that is wanted.
        """
        start = max(start, self.start)
        segments = tuple(s for s in self.segments if s.next_offset > start and s.next_offset <= end)
        if segments == self.segments and start == self.start:
            return self
        new_end = segments[-1].next_offset if segments else start
        epochs = [entry for entry in self.epochs if entry.start_offset < new_end]
        while len(epochs) > 1 and epochs[1].start_offset <= start:
            del epochs[0]
        return replace(
            self,
            generation=self.generation + 1,
            start=start,
            epochs=tuple(epochs),
            segments=segments,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed offset of one group in one partition."""

    group: str
    partition: int
    offset: Offset
    metadata: str
    committed_ms: TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMoment:
    """The committed offsets of all groups in a topic at one time."""

    at_ms: TimestampMs
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic as its archive knows it.

    `config` holds the keys that were set for the topic, and those that differ from Kafka's
    defaults. A restored topic keeps both, whatever the defaults of its new store are.
    """

    generation: int
    topic: str
    topic_id: UUID
    partitions: int
    owner: str
    updated_ms: TimestampMs
    config: Mapping[str, str]
    moments: tuple[GroupMoment, ...] = field(default=())

    def plus(self, moment: GroupMoment) -> "ArchivedTopic":
        """With one more moment. Past the limit, the older half loses every second moment."""
        moments = (*self.moments, moment)
        if len(moments) > _MOMENTS_MAX:
            half = len(moments) // 2
            moments = (*moments[:half:2], *moments[half:])
        return replace(self, moments=moments)

    def moment_at(self, timestamp_ms: int | None) -> GroupMoment | None:
        """The newest moment at or before `timestamp_ms`; None stands for the newest of all."""
        found = [m for m in self.moments if timestamp_ms is None or m.at_ms <= timestamp_ms]
        return found[-1] if found else None


# --- as bytes --------------------------------------------------------------------------------


def render_manifest(manifest: Manifest) -> bytes:
    content: dict[str, object] = {
        "format": "cordwood-manifest",
        "version": _MANIFEST_VERSION,
        "generation": manifest.generation,
        "topic": manifest.topic,
        "topic_id": encode_topic_id(manifest.topic_id),
        "partition": manifest.partition,
        "owner": manifest.owner,
        "allows_gaps": manifest.allows_gaps,
        "start": manifest.start,
        "epochs": [[entry.epoch, entry.start_offset] for entry in manifest.epochs],
        "segments": [_segment_content(segment) for segment in manifest.segments],
    }
    if manifest.leader_epoch != NO_LEADER_EPOCH:
        content["leader_epoch"] = manifest.leader_epoch
    return _seal(content)


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest. Raises `FormatError` if it is not whole or was changed."""
    return _opened(data, "cordwood-manifest", _parse_manifest, _MANIFEST_VERSIONS_READ)


def render_topic(topic: ArchivedTopic) -> bytes:
    content = {
        "format": "cordwood-archived-topic",
        "version": _VERSION,
        "generation": topic.generation,
        "topic": topic.topic,
        "topic_id": encode_topic_id(topic.topic_id),
        "partitions": topic.partitions,
        "owner": topic.owner,
        "updated_ms": topic.updated_ms,
        "config": dict(topic.config),
        "moments": [
            {
                "at_ms": moment.at_ms,
                "offsets": [
                    [o.group, o.partition, o.offset, o.metadata, o.committed_ms]
                    for o in moment.offsets
                ],
            }
            for moment in topic.moments
        ],
    }
    return _seal(content)


def parse_topic(data: bytes) -> ArchivedTopic:
    """Parse a topic object. Raises `FormatError` if it is not whole or was changed."""
    return _opened(data, "cordwood-archived-topic", _parse_topic)


def _seal(content: Mapping[str, object]) -> bytes:
    body = _canonical(content)
    return b'{"checksum":"%s","content":%s}\n' % (_digest(body).encode(), body)


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _opened(
    data: bytes,
    kind: str,
    parse: Callable[[Any], T],
    versions: Container[int] = frozenset({_VERSION}),
) -> T:
    try:
        sealed = json.loads(data)
        content = sealed["content"]
        if _digest(_canonical(content)) != sealed["checksum"]:
            raise FormatError("the checksum does not match")
        if content["format"] != kind:
            raise FormatError(f"not a {kind}")
        if content["version"] not in versions:
            raise UnsupportedFormatError(f"{kind} version", content["version"])
        return parse(content)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FormatError(f"not a sound {kind}: {error!r}") from error


def _segment_content(segment: SegmentCopy) -> dict[str, object]:
    sums = segment.sums
    return {
        **({} if sums is None else {"block_sums": [sums.block_bytes, sums.sha256]}),
        "copy_id": segment.copy_id,
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "first_timestamp": segment.first_timestamp,
        "max_timestamp": segment.max_timestamp,
        "max_timestamp_offset": segment.max_timestamp_offset,
        "modified_ms": segment.modified_ms,
        "archived_ms": segment.archived_ms,
        "files": [_file_content(file) for file in segment.files],
    }


def _file_content(file: ArchivedFile) -> list[object]:
    row: list[object] = [file.kind.value, file.size, file.sha256]
    return row if file.position is None else [*row, file.position]


def _parse_file(kind: Any, size: Any, sha256: Any, position: Any = None) -> ArchivedFile:
    return ArchivedFile(
        kind=FileKind(kind),
        size=_number(size),
        sha256=_text(sha256),
        position=None if position is None else _number(position),
    )


def _parse_sums(block_bytes: Any, sha256: Any) -> ArchivedSums:
    if _number(block_bytes) not in _BLOCK_BYTES:
        raise ValueError(f"blocks of {block_bytes} bytes")
    return ArchivedSums(block_bytes=block_bytes, sha256=_text(sha256))


def _parse_manifest(content: Any) -> Manifest:
    check_topic_name(content["topic"])
    return Manifest(
        generation=_number(content["generation"]),
        topic=content["topic"],
        topic_id=decode_topic_id(content["topic_id"]),
        partition=_number(content["partition"]),
        owner=_text(content["owner"]),
        allows_gaps=bool(content["allows_gaps"]),
        start=Offset(_number(content["start"])),
        epochs=tuple(
            EpochEntry(epoch=LeaderEpoch(_number(epoch)), start_offset=Offset(_number(start)))
            for epoch, start in content["epochs"]
        ),
        segments=tuple(_parse_segment(segment) for segment in content["segments"]),
        leader_epoch=LeaderEpoch(_number(content.get("leader_epoch", NO_LEADER_EPOCH), -1)),
    )


def _parse_segment(content: Any) -> SegmentCopy:
    copy_id = _text(content["copy_id"])
    if not copy_id.isalnum():
        raise ValueError(f"copy id {copy_id!r}")
    files = tuple(_parse_file(*row) for row in content["files"])
    if FileKind.LOG not in {file.kind for file in files if file.position is None}:
        raise ValueError(f"segment {copy_id} has no log file")
    sums = content.get("block_sums")
    copy = SegmentCopy(
        copy_id=copy_id,
        base_offset=Offset(_number(content["base_offset"])),
        next_offset=Offset(_number(content["next_offset"])),
        first_timestamp=TimestampMs(_number(content["first_timestamp"], NO_TIMESTAMP)),
        max_timestamp=TimestampMs(_number(content["max_timestamp"], NO_TIMESTAMP)),
        max_timestamp_offset=Offset(_number(content["max_timestamp_offset"])),
        modified_ms=TimestampMs(_number(content["modified_ms"], None)),
        archived_ms=TimestampMs(_number(content["archived_ms"], None)),
        files=files,
        sums=None if sums is None else _parse_sums(*sums),
    )
    if copy.sums_size > _SUMS_BYTES_MAX:
        raise ValueError(f"segment {copy_id} has {copy.sums_size} bytes of sums")
    return copy


def _parse_topic(content: Any) -> ArchivedTopic:
    check_topic_name(content["topic"])
    return ArchivedTopic(
        generation=_number(content["generation"]),
        topic=content["topic"],
        topic_id=decode_topic_id(content["topic_id"]),
        partitions=_number(content["partitions"], 1),
        owner=_text(content["owner"]),
        updated_ms=TimestampMs(_number(content["updated_ms"], None)),
        config={_text(key): _text(value) for key, value in content["config"].items()},
        moments=tuple(
            GroupMoment(
                at_ms=TimestampMs(_number(moment["at_ms"], None)),
                offsets=tuple(_parse_group_offset(*row) for row in moment["offsets"]),
            )
            for moment in content["moments"]
        ),
    )


def _parse_group_offset(
    group: Any, partition: Any, offset: Any, metadata: Any, committed_ms: Any
) -> GroupOffset:
    return GroupOffset(
        group=_text(group),
        partition=_number(partition),
        offset=Offset(_number(offset)),
        metadata=_text(metadata),
        committed_ms=TimestampMs(_number(committed_ms, None)),
    )


def _number(value: object, minimum: int | None = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    if minimum is not None and value < minimum:
        raise ValueError(f"{value} is below {minimum}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
