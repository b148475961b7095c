"""Committed offsets, as records of the topic ``__consumer_offsets``. Big-endian throughout.

A key starts with its type; types 0 and 1 are a committed offset, with the same fields:

    size   field
    2      type         0 or 1 offset, 2 group metadata, 3.. other kinds of groups
    2 + n  group        int16 length, UTF-8
    2 + n  topic        int16 length, UTF-8      (types 0 and 1 only)
    4      partition                             (types 0 and 1 only)

A value starts with its version. A null value is a tombstone: the offset was deleted.

    size   field               in versions
    2      version             0 to 4
    8      offset              all
    4      leader_epoch        3, 4
    2 + n  metadata            0 to 3: int16 length; 4: unsigned varint of length + 1; UTF-8
    8      commit_timestamp    all
    8      expire_timestamp    1
    1..    tagged fields       4: unsigned varint count, then for each tag, size, bytes;
                               tag 0 is topic_id, 16 bytes

All records of a group are in one partition of the topic, chosen by a hash of the group's name.
"""

import struct
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.groups.group_fields import (
    INT16,
    INT32,
    INT64,
    UUID_BYTES,
    FieldReader,
    encode_compact_string,
    encode_string,
)
from cordwood.quantities import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from cordwood.value_class import dataclass

_NO_TOPIC_ID: Final = UUID(int=0)

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_METADATA_KEY: Final = 2

# The first bytes of the keys of committed offsets.
OFFSET_KEY_TYPES: Final = frozenset({INT16.pack(_LEGACY_OFFSET_KEY), INT16.pack(_OFFSET_KEY)})

_VERSION_WITH_EXPIRY: Final = 1
_VERSION_WITH_LEADER_EPOCH: Final = 3
_VERSION_WITH_TOPIC_ID: Final = 4
_TOPIC_ID_TAG: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetKey:
    """The key of a committed offset: one per group and partition of the consumed topic."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """The members and assignments of a group of the classic protocol."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherKey:
    """A key of another type, which is kept and skipped."""

    type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """A committed offset. `offset` is the next one that the group will read."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: TimestampMs
    expire_timestamp: TimestampMs = NO_TIMESTAMP
    topic_id: UUID | None = None


def encode_offset_key(key: OffsetKey) -> bytes:
    return b"".join(
        (
            INT16.pack(_OFFSET_KEY),
            encode_string("group name", key.group),
            encode_string("topic name", key.topic),
            INT32.pack(key.partition),
        )
    )


def encode_group_metadata_key(key: GroupMetadataKey) -> bytes:
    return INT16.pack(_GROUP_METADATA_KEY) + encode_string("group name", key.group)


def decode_group_key(data: bytes) -> OffsetKey | GroupMetadataKey | OtherKey:
    """Decode a key of any type."""
    fields = FieldReader(data)
    key_type = fields.integer(INT16, "key type")
    if key_type in (_LEGACY_OFFSET_KEY, _OFFSET_KEY):
        offset_key = OffsetKey(
            group=fields.string("group name"),
            topic=fields.string("topic name"),
            partition=fields.integer(INT32, "partition"),
        )
        fields.expect_end()
        return offset_key
    if key_type == _GROUP_METADATA_KEY:
        group_key = GroupMetadataKey(group=fields.string("group name"))
        fields.expect_end()
        return group_key
    return OtherKey(type=key_type)


def encode_offset_value(value: OffsetValue) -> bytes:
    """The bytes of `value`, in the oldest version that can express it.

    That is 3, or 4 with a topic id. Only version 1 has an explicit expiry; it has neither the
    leader epoch nor the topic id, so these are omitted.
    """
    if value.expire_timestamp != NO_TIMESTAMP:
        return b"".join(
            (
                INT16.pack(_VERSION_WITH_EXPIRY),
                INT64.pack(value.offset),
                encode_string("metadata", value.metadata),
                INT64.pack(value.commit_timestamp),
                INT64.pack(value.expire_timestamp),
            )
        )
    has_topic_id = value.topic_id is not None
    version = _VERSION_WITH_TOPIC_ID if has_topic_id else _VERSION_WITH_LEADER_EPOCH
    encode_metadata = encode_compact_string if has_topic_id else encode_string
    return b"".join(
        (
            INT16.pack(version),
            INT64.pack(value.offset),
            INT32.pack(value.leader_epoch),
            encode_metadata("metadata", value.metadata),
            INT64.pack(value.commit_timestamp),
            _encode_topic_id(value.topic_id),
        )
    )


def decode_offset_value(data: bytes) -> OffsetValue:
    """Read any version from 0 to 4; missing fields get their defaults."""
    fields = FieldReader(data)
    version = fields.integer(INT16, "value version")
    if not 0 <= version <= _VERSION_WITH_TOPIC_ID:
        raise UnsupportedFormatError("version of a committed offset", version)
    is_flexible = version >= _VERSION_WITH_TOPIC_ID
    has_leader_epoch = version >= _VERSION_WITH_LEADER_EPOCH
    has_expiry = version == _VERSION_WITH_EXPIRY
    offset = Offset(fields.integer(INT64, "offset"))
    leader_epoch = fields.integer(INT32, "leader epoch") if has_leader_epoch else NO_LEADER_EPOCH
    metadata = fields.compact_string("metadata") if is_flexible else fields.string("metadata")
    commit_timestamp = fields.integer(INT64, "commit timestamp")
    expire_timestamp = fields.integer(INT64, "expire timestamp") if has_expiry else NO_TIMESTAMP
    topic_id = _tagged_topic_id(fields) if is_flexible else None
    fields.expect_end()
    return OffsetValue(
        offset=offset,
        leader_epoch=LeaderEpoch(leader_epoch),
        metadata=metadata,
        commit_timestamp=TimestampMs(commit_timestamp),
        expire_timestamp=TimestampMs(expire_timestamp),
        topic_id=topic_id,
    )


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: 31 * hash + unit over UTF-16 units, wrapped to int32."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def group_partition(group: str, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that holds all records of `group`."""
    # Kafka uses the absolute value of the hash, and 0 for the one int32 that has none.
    value = abs(java_string_hash(group))
    return 0 if value >> 31 else value % partition_count


def _tagged_topic_id(fields: FieldReader) -> UUID | None:
    content = fields.tagged_fields().get(_TOPIC_ID_TAG)
    if content is None:
        return None
    if len(content) != UUID_BYTES:
        position = fields.position - len(content)
        raise FormatError(f"topic id of {len(content)} bytes", position=position)
    topic_id = UUID(bytes=content)
    return None if topic_id == _NO_TOPIC_ID else topic_id


def _encode_topic_id(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        return b""
    tagged_count = 1
    return bytes((tagged_count, _TOPIC_ID_TAG, UUID_BYTES)) + topic_id.bytes
