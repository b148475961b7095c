"""Fetch as replicas send it, versions 17 and 18: requests written and responses read by hand.

A replica names topics by id and tells who it is, so that the leader knows how far it has come. The
layouts are in `fetch_request` and `fetch_response`. These tagged fields are between replicas only:

    request    tag 0  cluster_id            string
               tag 1  replica               (replica_id int32, replica_epoch int64)
    partition  tag 0  replica_directory_id  uuid
               tag 1  high_watermark        int64, from version 18: answer if yours is greater
    response   tag 0  node_endpoints        array of (node_id int32, host, port int32, rack)
    partition  tag 0  diverging_epoch       (epoch int32, end_offset int64)
               tag 1  current_leader        (leader_id int32, leader_epoch int32)
               tag 2  snapshot_id           (end_offset int64, epoch int32)
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.protocol.fetch_request import FULL_WITHOUT_SESSION, NO_SESSION
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.protocol.wire_values import (
    INT32,
    check_part_count,
    encode_count,
    encode_string,
    encode_varint,
    read_count,
    read_exactly,
    read_fields,
    read_int32,
    read_name,
    read_size,
    read_string,
    read_tag_count,
    read_uuid,
    read_varint,
    skip_tagged_fields,
)
from cordwood.quantities import INT64_MAX

VERSION_MIN: Final = 17
VERSION_MAX: Final = 18
UNKNOWN_HIGH_WATERMARK: Final = INT64_MAX  # do not answer because of the high watermark

_FIRST_WITH_HIGH_WATERMARK: Final = 18
_NO_TAGS: Final = b"\0"
_LIMITS: Final = struct.Struct(">iiibii")
_PARTITION: Final = struct.Struct(">iiqiqi")
_REPLICA: Final = struct.Struct(">iq")
_INT64: Final = struct.Struct(">q")
_DIRECTORY_TAG: Final = b"\0\x10"  # tag 0, 16 bytes
_HIGH_WATERMARK_TAG: Final = b"\x01\x08"  # tag 1, 8 bytes

_ANSWER_HEAD: Final = struct.Struct(">ihi")
_FETCHED: Final = struct.Struct(">ihqqq")
_EPOCH_END: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")
_SNAPSHOT: Final = struct.Struct(">qi")
_PART_BYTES_MIN: Final = _FETCHED.size + 7


class ReplicaFetchPart(NamedTuple):
    """What a replica asks of one partition.

    offset         the end of its log, or the part of it that is safe
    leader_epoch   the epoch of the leader that it follows
    """

    topic_id: UUID
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    directory_id: UUID = NIL_UUID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class EpochEnd(NamedTuple):
    """The leader's last epoch that is not newer than the replica's, and where it ended."""

    epoch: int
    end_offset: int


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class SnapshotId(NamedTuple):
    """A snapshot has all records below `end_offset`; `epoch` is that of the last one."""

    end_offset: int
    epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int


class ReplicaFetched(NamedTuple):
    """The answer of one partition. `records` is a part of the frame; its end may be cut off."""

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: EpochEnd | None = None
    current_leader: CurrentLeader | None = None
    snapshot: SnapshotId | None = None


class ReplicaFetchAnswer(NamedTuple):
    error_code: int
    session_id: int
    throttle_ms: int
    parts: list[ReplicaFetched]
    endpoints: list[NodeEndpoint]


def encode_replica_fetch(
    version: int,
    parts: Sequence[ReplicaFetchPart],
    *,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    cluster_id: str | None = None,
    session_id: int = NO_SESSION,
    session_epoch: int = FULL_WITHOUT_SESSION,
    forgotten: Sequence[tuple[UUID, int]] = (),
) -> bytes:
    """The body of a request. Parts of one topic that follow each other share its entry."""
    assert VERSION_MIN <= version <= VERSION_MAX, version
    out = bytearray(_LIMITS.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch))
    topics = [(topic, list(group)) for topic, group in groupby(parts, key=attrgetter("topic_id"))]
    out += encode_count(len(topics), is_flexible=True)
    for topic_id, group in topics:
        out += topic_id.bytes
        out += encode_count(len(group), is_flexible=True)
        for part in group:
            out += _PARTITION.pack(
                part.partition,
                part.leader_epoch,
                part.offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.max_bytes,
            )
            out += _part_tags(version, part)
        out += _NO_TAGS
    dropped = [(topic, list(group)) for topic, group in groupby(forgotten, key=lambda f: f[0])]
    out += encode_count(len(dropped), is_flexible=True)
    for topic_id, numbers in dropped:
        out += topic_id.bytes
        out += encode_count(len(numbers), is_flexible=True)
        out += b"".join(INT32.pack(number) for _, number in numbers)
        out += _NO_TAGS
    out += encode_string("", is_flexible=True)  # a rack is for consumers
    replica = _REPLICA.pack(replica_id, replica_epoch) + _NO_TAGS
    if cluster_id is None:
        out += b"\x01"
    else:
        name = encode_string(cluster_id, is_flexible=True)
        out += b"\x02\0" + encode_varint(len(name)) + name
    out += b"\x01" + encode_varint(len(replica)) + replica
    return bytes(out)


def _part_tags(version: int, part: ReplicaFetchPart) -> bytes:
    directory = part.directory_id != NIL_UUID
    mark = version >= _FIRST_WITH_HIGH_WATERMARK and part.high_watermark != UNKNOWN_HIGH_WATERMARK
    out = bytes((directory + mark,))
    if directory:
        out += _DIRECTORY_TAG + part.directory_id.bytes
    if mark:
        out += _HIGH_WATERMARK_TAG + _INT64.pack(part.high_watermark)
    return out


def decode_replica_fetch(version: int, body: memoryview) -> ReplicaFetchAnswer:
    """The answer in `body`. Raises `FormatError`."""
    assert VERSION_MIN <= version <= VERSION_MAX, version
    (throttle_ms, error_code, session_id), at = read_fields(_ANSWER_HEAD, body, 0)
    parts: list[ReplicaFetched] = []
    topic_count, at = read_count(body, at, is_flexible=True, item_bytes_min=18)
    for _ in range(topic_count):
        topic_id, at = read_uuid(body, at)
        count, at = read_count(body, at, is_flexible=True, item_bytes_min=_PART_BYTES_MIN)
        check_part_count(len(parts) + count, at)
        for _ in range(count):
            part, at = _read_part(topic_id, body, at)
            parts.append(part)
        at = skip_tagged_fields(body, at)
    endpoints: list[NodeEndpoint] = []
    tag_count, at = read_tag_count(body, at)
    for _ in range(tag_count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        field, at = read_exactly(body, at, size, "tagged field")
        if tag == 0:
            endpoints = _read_endpoints(field)
    return ReplicaFetchAnswer(error_code, session_id, throttle_ms, parts, endpoints)


def _read_part(topic_id: UUID, body: memoryview, at: int) -> tuple[ReplicaFetched, int]:
    (partition, error_code, mark, _, log_start), at = read_fields(_FETCHED, body, at)
    aborted_count, at = read_count(body, at, is_flexible=True, item_bytes_min=17)
    for _ in range(aborted_count):
        _, at = read_exactly(body, at, 16, "aborted transaction")
        at = skip_tagged_fields(body, at)
    _, at = read_int32(body, at)  # preferred read replica
    size, at = read_size(body, at, is_flexible=True)
    records, at = read_exactly(body, at, max(size, 0), "records")
    if at < len(body) and body[at] == 0:  # no tags: by far the most frequent
        part = ReplicaFetched(topic_id, partition, error_code, mark, log_start, records)
        return part, at + 1
    diverging, leader, snapshot = None, None, None
    tag_count, at = read_tag_count(body, at)
    for _ in range(tag_count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        field, at = read_exactly(body, at, size, "tagged field")
        if tag == 0:
            diverging = EpochEnd(*read_fields(_EPOCH_END, field, 0)[0])
        elif tag == 1:
            leader = CurrentLeader(*read_fields(_LEADER, field, 0)[0])
        elif tag == 2:
            snapshot = SnapshotId(*read_fields(_SNAPSHOT, field, 0)[0])
    part = ReplicaFetched(
        topic_id, partition, error_code, mark, log_start, records, diverging, leader, snapshot
    )
    return part, at


def _read_endpoints(field: memoryview) -> list[NodeEndpoint]:
    found: list[NodeEndpoint] = []
    count, at = read_count(field, 0, is_flexible=True, item_bytes_min=11)
    for _ in range(count):
        node_id, at = read_int32(field, at)
        host, at = read_name(field, at, is_flexible=True)
        port, at = read_int32(field, at)
        _, at = read_string(field, at, is_flexible=True)  # rack
        at = skip_tagged_fields(field, at)
        found.append(NodeEndpoint(node_id, host, port))
    return found
