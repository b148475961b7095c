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

All records of a group lie in one partition of the topic, chosen by a hash of the group's name.
"""

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from varve.errors import (
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from varve.quantities import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

_STRING_BYTES_MAX: Final = 2**15 - 1  # what an int16 length can say
_VARINT_BYTES_MAX: Final = 5
_VARINT_MORE: Final = 0x80  # set in every byte but the last
_TOPIC_ID_BYTES: Final = 16
_NO_TOPIC_ID: Final = UUID(int=0)

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_METADATA_KEY: Final = 2

_VERSION_WITH_EXPIRY: Final = 1
_VERSION_WITH_LEADER_EPOCH: Final = 3
_VERSION_WITH_TOPIC_ID: Final = 4
_TOPIC_ID_TAG: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetKey:
    """Whose offset: one per group and partition. `partition` is the consumed topic's."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """The members and assignments of a group of the classic protocol."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherKey:
    """A key of another kind, kept by those that know it and skipped by us."""

    type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """What was committed. `offset` is the next one the group will read."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: TimestampMs
    expire_timestamp: TimestampMs = NO_TIMESTAMP
    topic_id: UUID | None = None


def encode_offset_key(key: OffsetKey) -> bytes:
    return b"".join(
        (
            _INT16.pack(_OFFSET_KEY),
            _encode_string("group name", key.group),
            _encode_string("topic name", key.topic),
            _INT32.pack(key.partition),
        )
    )


def encode_group_metadata_key(key: GroupMetadataKey) -> bytes:
    return _INT16.pack(_GROUP_METADATA_KEY) + _encode_string("group name", key.group)


def decode_group_key(data: bytes) -> OffsetKey | GroupMetadataKey | OtherKey:
    """Tell what kind of record this is the key of, and of what."""
    fields = _Fields(data)
    key_type = fields.integer(_INT16, "key type")
    if key_type in (_LEGACY_OFFSET_KEY, _OFFSET_KEY):
        offset_key = OffsetKey(
            group=fields.string("group name"),
            topic=fields.string("topic name"),
            partition=fields.integer(_INT32, "partition"),
        )
        fields.expect_end()
        return offset_key
    if key_type == _GROUP_METADATA_KEY:
        group_key = GroupMetadataKey(group=fields.string("group name"))
        fields.expect_end()
        return group_key
    return OtherKey(type=key_type)


def encode_offset_value(value: OffsetValue) -> bytes:
    """The bytes of `value`, in the oldest version that can say it.

    That is 3, or 4 for a topic id. An explicit expiry can be said in version 1 alone, which
    knows neither the leader epoch nor the topic id: these are left out.
    """
    if value.expire_timestamp != NO_TIMESTAMP:
        return b"".join(
            (
                _INT16.pack(_VERSION_WITH_EXPIRY),
                _INT64.pack(value.offset),
                _encode_string("metadata", value.metadata),
                _INT64.pack(value.commit_timestamp),
                _INT64.pack(value.expire_timestamp),
            )
        )
    has_topic_id = value.topic_id is not None
    version = _VERSION_WITH_TOPIC_ID if has_topic_id else _VERSION_WITH_LEADER_EPOCH
    encode_metadata = _encode_compact_string if has_topic_id else _encode_string
    return b"".join(
        (
            _INT16.pack(version),
            _INT64.pack(value.offset),
            _INT32.pack(value.leader_epoch),
            encode_metadata("metadata", value.metadata),
            _INT64.pack(value.commit_timestamp),
            _encode_topic_id(value.topic_id),
        )
    )


def decode_offset_value(data: bytes) -> OffsetValue:
    """What any version from 0 to 4 says; fields it does not have get their defaults."""
    fields = _Fields(data)
    version = fields.integer(_INT16, "value version")
    if not 0 <= version <= _VERSION_WITH_TOPIC_ID:
        raise UnsupportedFormatError("version of a committed offset", version)
    is_flexible = version >= _VERSION_WITH_TOPIC_ID
    has_leader_epoch = version >= _VERSION_WITH_LEADER_EPOCH
    has_expiry = version == _VERSION_WITH_EXPIRY
    offset = Offset(fields.integer(_INT64, "offset"))
    leader_epoch = fields.integer(_INT32, "leader epoch") if has_leader_epoch else NO_LEADER_EPOCH
    metadata = fields.compact_string("metadata") if is_flexible else fields.string("metadata")
    commit_timestamp = fields.integer(_INT64, "commit timestamp")
    expire_timestamp = fields.integer(_INT64, "expire timestamp") if has_expiry else NO_TIMESTAMP
    topic_id = fields.tagged_topic_id() if is_flexible else None
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
    """The partition of ``__consumer_offsets`` that holds everything of `group`."""
    # Kafka takes the absolute value of the hash, and 0 for the one int32 that has none.
    value = abs(java_string_hash(group))
    return 0 if value >> 31 else value % partition_count


class _Fields:
    """Reads one field after another; raises on bytes that are missing or left over."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def integer(self, layout: struct.Struct, what: str) -> int:
        number: int = layout.unpack(self._take(layout.size, what))[0]
        return number

    def string(self, what: str) -> str:
        return self._text(self.integer(_INT16, what), what)

    def compact_string(self, what: str) -> str:
        return self._text(self._varint(what) - 1, what)

    def tagged_topic_id(self) -> UUID | None:
        """The topic id among the tagged fields; tags of later versions are skipped."""
        topic_id = None
        for _ in range(self._varint("count of tagged fields")):
            tag = self._varint("tag")
            content = self._take(self._varint("size of a tagged field"), "tagged field")
            if tag == _TOPIC_ID_TAG:
                if len(content) != _TOPIC_ID_BYTES:
                    raise FormatError(
                        f"topic id of {len(content)} bytes", position=self._position - len(content)
                    )
                topic_id = UUID(bytes=content)
        return None if topic_id == _NO_TOPIC_ID else topic_id

    def expect_end(self) -> None:
        left_over = len(self._data) - self._position
        if left_over:
            raise FormatError(f"{left_over} bytes after the last field", position=self._position)

    def _take(self, size: int, what: str) -> bytes:
        start = self._position
        end = start + size
        if end > len(self._data):
            raise TruncatedInputError(
                what, needed=size, got=len(self._data) - start, position=start
            )
        self._position = end
        return self._data[start:end]

    def _text(self, size: int, what: str) -> str:
        if size < 0:
            raise FormatError(f"{what} is null", position=self._position)
        start = self._position
        try:
            return self._take(size, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{what} is not UTF-8", position=start) from error

    def _varint(self, what: str) -> int:
        start = self._position
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self._take(1, what)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < _VARINT_MORE:
                return value
        raise FormatError(f"{what} is a varint of more than 5 bytes", position=start)


def _encode_string(what: str, text: str) -> bytes:
    content = text.encode("utf-8")
    if len(content) > _STRING_BYTES_MAX:
        raise LimitExceededError(what, size=len(content), limit=_STRING_BYTES_MAX)
    return _INT16.pack(len(content)) + content


def _encode_compact_string(what: str, text: str) -> bytes:
    content = text.encode("utf-8")
    if len(content) > _STRING_BYTES_MAX:
        raise LimitExceededError(what, size=len(content), limit=_STRING_BYTES_MAX)
    return _encode_varint(len(content) + 1) + content


def _encode_topic_id(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        return b""
    tagged_count = 1
    return bytes((tagged_count, _TOPIC_ID_TAG, _TOPIC_ID_BYTES)) + topic_id.bytes


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _VARINT_MORE:
        encoded.append(value & 0x7F | _VARINT_MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
