"""Fetch requests, versions 4 to 18, read by hand.

    replica_id             int32    up to version 14; later a tagged field
    max_wait_ms            int32
    min_bytes              int32
    max_bytes              int32
    isolation_level        int8     0 read uncommitted, 1 read committed
    session_id             int32    from version 7
    session_epoch          int32    from version 7
    topics                 array of
        topic                string up to version 12, uuid from version 13
        partitions           array of
            partition          int32
            leader_epoch       int32   from version 9
            fetch_offset       int64
            last_fetched_epoch int32   from version 12
            log_start_offset   int64   from version 5, used between brokers
            max_bytes          int32
    forgotten_topics       array of (topic, array of int32), from version 7
    rack_id                string   from version 11
    tag 1, replica_state   (replica_id int32, replica_epoch int64), from version 15

Flexible from version 12. From version 18 on, tag 1 of a partition is the high watermark (int64)
that a follower knows.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.protocol.wire_values import (
    check_part_count,
    read_count,
    read_exactly,
    read_fields,
    read_int32,
    read_int64,
    read_name,
    read_string,
    read_tag_count,
    read_uuid,
    read_varint,
    skip_tagged_fields,
)
from cordwood.quantities import INT64_MAX

FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_ID: Final = 13
FIRST_WITH_SESSION: Final = 7
_FIRST_WITH_REPLICA_TAG: Final = 15
_FIRST_WITH_HIGH_WATERMARK: Final = 18
_REPLICA_STATE_TAG: Final = 1
_HIGH_WATERMARK_TAG: Final = 1

_REPLICA_STATE: Final = struct.Struct(">iq")
_LIMITS: Final = struct.Struct(">iiiB")
_SESSION: Final = struct.Struct(">ii")
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iqqi")
_PARTITION_9: Final = struct.Struct(">iiqqi")
_PARTITION_12: Final = struct.Struct(">iiqiqi")

NO_SESSION: Final = 0
FULL_WITHOUT_SESSION: Final = -1  # the epoch that asks for no session, or ends one
FULL_WITH_SESSION: Final = 0  # the epoch that asks for a new session


class FetchPartition(NamedTuple):
    """What a fetch asks of one partition."""

    topic: str | UUID
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1
    high_watermark: int = INT64_MAX  # of a follower, from version 18; then unknown


class FetchRequest(NamedTuple):
    """A fetch of a consumer, or of the broker `replica_id` in the life `replica_epoch`."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    parts: list[FetchPartition]
    forgotten: list[tuple[str | UUID, int]]
    rack_id: str
    replica_epoch: int = -1


def decode_fetch_request(version: int, body: memoryview) -> FetchRequest:
    is_flexible = version >= FIRST_FLEXIBLE
    at = 0
    replica_id = replica_epoch = -1
    if version < _FIRST_WITH_REPLICA_TAG:
        replica_id, at = read_int32(body, at)
    (max_wait_ms, min_bytes, max_bytes, level), at = read_fields(_LIMITS, body, at)
    session_id, session_epoch = NO_SESSION, FULL_WITHOUT_SESSION
    if version >= FIRST_WITH_SESSION:
        (session_id, session_epoch), at = read_fields(_SESSION, body, at)
    parts, at = _read_topics(version, body, at)
    forgotten: list[tuple[str | UUID, int]] = []
    if version >= FIRST_WITH_SESSION:
        forgotten, at = _read_forgotten(version, body, at)
    rack_id: str | None = None
    if version >= 11:
        rack_id, at = read_string(body, at, is_flexible=is_flexible)
    if is_flexible:
        replica, at = _read_tags(body, at)
        if replica is not None:
            replica_id, replica_epoch = replica
    if at != len(body):
        raise FormatError(f"{len(body) - at} bytes follow the request", position=at)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        level,
        session_id,
        session_epoch,
        parts,
        forgotten,
        rack_id or "",
        replica_epoch,
    )


def _read_topic(version: int, body: memoryview, at: int) -> tuple[str | UUID, int]:
    if version >= FIRST_WITH_TOPIC_ID:
        return read_uuid(body, at)
    return read_name(body, at, is_flexible=version >= FIRST_FLEXIBLE)


def _partition_layout(version: int) -> struct.Struct:
    """The fields of a partition, in the order of the table above."""
    if version >= 12:
        return _PARTITION_12
    if version >= 9:
        return _PARTITION_9
    return _PARTITION_5 if version >= 5 else _PARTITION_4


def _read_topics(version: int, body: memoryview, at: int) -> tuple[list[FetchPartition], int]:
    is_flexible = version >= FIRST_FLEXIBLE
    layout = _partition_layout(version)
    parts: list[FetchPartition] = []
    topic_count, at = read_count(body, at, is_flexible=is_flexible)
    for _ in range(topic_count):
        topic, at = _read_topic(version, body, at)
        partition_count, at = read_count(
            body, at, is_flexible=is_flexible, item_bytes_min=layout.size
        )
        check_part_count(max(topic_count, len(parts) + partition_count), at)
        for _ in range(partition_count):
            leader_epoch = last_fetched_epoch = log_start = -1
            fields, at = read_fields(layout, body, at)
            if version >= 12:
                partition, leader_epoch, offset, last_fetched_epoch, log_start, max_bytes = fields
            elif version >= 9:
                partition, leader_epoch, offset, log_start, max_bytes = fields
            elif version >= 5:
                partition, offset, log_start, max_bytes = fields
            else:
                partition, offset, max_bytes = fields
            high_watermark = INT64_MAX
            if version >= _FIRST_WITH_HIGH_WATERMARK:
                high_watermark, at = _read_partition_tags(body, at)
            elif is_flexible:
                at = skip_tagged_fields(body, at)
            parts.append(
                FetchPartition(
                    topic,
                    partition,
                    offset,
                    max_bytes,
                    leader_epoch,
                    last_fetched_epoch,
                    log_start,
                    high_watermark,
                )
            )
        if is_flexible:
            at = skip_tagged_fields(body, at)
    return parts, at


def _read_forgotten(
    version: int, body: memoryview, at: int
) -> tuple[list[tuple[str | UUID, int]], int]:
    is_flexible = version >= FIRST_FLEXIBLE
    forgotten: list[tuple[str | UUID, int]] = []
    topic_count, at = read_count(body, at, is_flexible=is_flexible)
    for _ in range(topic_count):
        topic, at = _read_topic(version, body, at)
        partition_count, at = read_count(body, at, is_flexible=is_flexible, item_bytes_min=4)
        check_part_count(max(topic_count, len(forgotten) + partition_count), at)
        for _ in range(partition_count):
            partition, at = read_int32(body, at)
            forgotten.append((topic, partition))
        if is_flexible:
            at = skip_tagged_fields(body, at)
    return forgotten, at


def _read_partition_tags(body: memoryview, at: int) -> tuple[int, int]:
    """The high watermark that a follower knows, if it tells."""
    high_watermark = INT64_MAX
    count, at = read_tag_count(body, at)
    for _ in range(count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        field, at = read_exactly(body, at, size, "tagged field")
        if tag == _HIGH_WATERMARK_TAG:
            high_watermark, _ = read_int64(field, 0)
    return high_watermark, at


def _read_tags(body: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    """The id and the epoch of the broker that fetches; None if the client is not a broker."""
    replica: tuple[int, int] | None = None
    count, at = read_tag_count(body, at)
    for _ in range(count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        field, at = read_exactly(body, at, size, "tagged field")
        if tag == _REPLICA_STATE_TAG:
            (replica_id, epoch), _ = read_fields(_REPLICA_STATE, field, 0)
            replica = replica_id, epoch
    return replica, at
