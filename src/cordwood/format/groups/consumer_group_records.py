"""Consumer groups of the new protocol, as records of the topic ``__consumer_offsets``. Big-endian.

A key is its type, the group, and for some types a member or a regular expression, all as strings
with an int16 size:

    type   meaning of the value                 key after the group
    3      the group's epoch
    4      topics subscribed to (before 4.1)
    5      a member and what it subscribes to   member id
    6      the epoch of the target assignment
    7      the target assignment of a member    member id
    8      the current assignment of a member   member id
    16     topics that a pattern matches        regular expression

A value is an int16 version, always 0, followed by flexible fields, see `group_fields`:

    3   int32 epoch; tag 0: int64 hash of the topics
    5   instance id?, rack id?, client id, client host, [topic name], regular expression?,
        int32 rebalance timeout, assignor?; tag 0: present for a member of the classic protocol
    6   int32 epoch; tag 0: int64 time of the assignment
    7   [topic id, [int32 partition]]
    8   int32 epoch, int32 previous epoch, int8 state, then twice, for assigned partitions and for
        those being revoked: [topic id, [int32 partition]; tag 0: [int32 epoch of assignment]]

where ``?`` may be null and ``[]`` is an array, each structure in it ending with tagged fields.
A null value is a tombstone. Types 4 and 16 are only recognized so that they can be removed; their
values are not read.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.groups.group_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    encode_compact_string,
    encode_nullable_compact_string,
    encode_string,
    encode_varint,
)
from cordwood.value_class import dataclass, field

_VERSION: Final = 0
_NO_TAGS: Final = b"\x00"
_TAG: Final = 0  # the only tag of these values


class ConsumerGroupRecordType(IntEnum):
    """The type of a consumer group's record, with which its key starts."""

    GROUP_EPOCH = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGULAR_EXPRESSION = 16


_TYPES: Final = frozenset(ConsumerGroupRecordType)
_WITH_DETAIL: Final = frozenset(
    {
        ConsumerGroupRecordType.MEMBER,
        ConsumerGroupRecordType.TARGET,
        ConsumerGroupRecordType.CURRENT,
        ConsumerGroupRecordType.REGULAR_EXPRESSION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupKey:
    """The key of a group's record. `detail` is the member id, or for type 16 the pattern."""

    type: ConsumerGroupRecordType
    group: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochValue:
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member with its subscription. Topic names are sorted."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    is_classic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochValue:
    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentValue:
    """The current assignment of a member: partitions by topic, with their assignment epochs."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Mapping[UUID, Mapping[int, int]] = field(default_factory=dict)
    revoking: Mapping[UUID, Mapping[int, int]] = field(default_factory=dict)


# --- keys ------------------------------------------------------------------------------------


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    detail = encode_string("detail of a key", key.detail) if key.type in _WITH_DETAIL else b""
    return INT16.pack(key.type) + encode_string("group name", key.group) + detail


def decode_consumer_group_key(data: bytes) -> ConsumerGroupKey:
    fields = FieldReader(data)
    number = fields.int16("key type")
    if number not in _TYPES:
        raise UnsupportedFormatError("type of a consumer group's record", number)
    key_type = ConsumerGroupRecordType(number)
    group = fields.string("group name")
    detail = fields.string("detail of a key") if key_type in _WITH_DETAIL else ""
    fields.expect_end()
    return ConsumerGroupKey(type=key_type, group=group, detail=detail)


# --- values ----------------------------------------------------------------------------------


def encode_group_epoch(value: GroupEpochValue) -> bytes:
    return _start() + INT32.pack(value.epoch) + _encode_tagged_int64(value.metadata_hash)


def decode_group_epoch(data: bytes) -> GroupEpochValue:
    fields = _opened(data)
    epoch = fields.int32("group epoch")
    metadata_hash = _tagged_int64(fields, "hash of the topics")
    fields.expect_end()
    return GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash)


def encode_member(value: MemberValue) -> bytes:
    """The bytes of a member of the new protocol; other members are never written."""
    assert not value.is_classic, value
    return b"".join(
        (
            _start(),
            encode_nullable_compact_string("instance id", value.instance_id),
            encode_nullable_compact_string("rack id", value.rack_id),
            encode_compact_string("client id", value.client_id),
            encode_compact_string("client host", value.client_host),
            encode_varint(len(value.topic_names) + 1),
            *(encode_compact_string("topic name", name) for name in value.topic_names),
            encode_nullable_compact_string("regular expression", value.topic_regex),
            INT32.pack(value.rebalance_timeout_ms),
            encode_nullable_compact_string("assignor", value.assignor),
            _NO_TAGS,
        )
    )


def decode_member(data: bytes) -> MemberValue:
    fields = _opened(data)
    instance_id = fields.nullable_compact_string("instance id")
    rack_id = fields.nullable_compact_string("rack id")
    client_id = fields.compact_string("client id")
    client_host = fields.compact_string("client host")
    name_count = _array_length(fields, "topic names")
    topic_names = tuple(fields.compact_string("topic name") for _ in range(name_count))
    topic_regex = fields.nullable_compact_string("regular expression")
    rebalance_timeout_ms = fields.int32("rebalance timeout")
    assignor = fields.nullable_compact_string("assignor")
    is_classic = _TAG in fields.tagged_fields()
    fields.expect_end()
    return MemberValue(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=topic_names,
        topic_regex=topic_regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        is_classic=is_classic,
    )


def encode_target_epoch(value: TargetEpochValue) -> bytes:
    return _start() + INT32.pack(value.epoch) + _encode_tagged_int64(value.timestamp_ms)


def decode_target_epoch(data: bytes) -> TargetEpochValue:
    fields = _opened(data)
    epoch = fields.int32("assignment epoch")
    timestamp_ms = _tagged_int64(fields, "time of the assignment")
    fields.expect_end()
    return TargetEpochValue(epoch=epoch, timestamp_ms=timestamp_ms)


def encode_target(partitions: Mapping[UUID, frozenset[int]]) -> bytes:
    parts = [_start(), encode_varint(len(partitions) + 1)]
    for topic, numbers in partitions.items():
        parts += (topic.bytes, _encode_int32s(sorted(numbers)), _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def decode_target(data: bytes) -> dict[UUID, frozenset[int]]:
    fields = _opened(data)
    partitions: dict[UUID, frozenset[int]] = {}
    for _ in range(_array_length(fields, "topics")):
        topic = fields.uuid("topic id")
        partitions[topic] = frozenset(_int32s(fields, "partitions"))
        fields.tagged_fields()
    fields.tagged_fields()
    fields.expect_end()
    return partitions


def encode_current(value: CurrentValue) -> bytes:
    return b"".join(
        (
            _start(),
            INT32.pack(value.member_epoch),
            INT32.pack(value.previous_member_epoch),
            INT8.pack(value.state),
            _encode_dated(value.assigned),
            _encode_dated(value.revoking),
            _NO_TAGS,
        )
    )


def decode_current(data: bytes) -> CurrentValue:
    fields = _opened(data)
    member_epoch = fields.int32("member epoch")
    previous_member_epoch = fields.int32("previous member epoch")
    state = fields.int8("member state")
    # Older brokers do not write the epochs of partitions. A member that left temporarily has a
    # negative epoch; partitions never have one.
    default_epoch = max(member_epoch, 0)
    assigned = _dated(fields, "assigned partitions", default_epoch)
    revoking = _dated(fields, "partitions being revoked", default_epoch)
    fields.tagged_fields()
    fields.expect_end()
    return CurrentValue(
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


# --- fields ----------------------------------------------------------------------------------


def _start() -> bytes:
    return INT16.pack(_VERSION)


def _opened(data: bytes) -> FieldReader:
    fields = FieldReader(data)
    version = fields.int16("value version")
    if version != _VERSION:
        raise UnsupportedFormatError("version of a consumer group's record", version)
    return fields


def _array_length(fields: FieldReader, what: str) -> int:
    length = fields.compact_array_length(what)
    if length < 0:
        raise FormatError(f"{what} is null", position=fields.position)
    return length


def _encode_tagged_int64(number: int) -> bytes:
    """Tag 0; omitted if the value is 0."""
    return bytes((1, _TAG, INT64.size)) + INT64.pack(number) if number else _NO_TAGS


def _tagged_int64(fields: FieldReader, what: str) -> int:
    content = fields.tagged_fields().get(_TAG)
    if content is None:
        return 0
    inner = FieldReader(content)
    number = inner.int64(what)
    inner.expect_end()
    return number


def _encode_int32s(numbers: list[int]) -> bytes:
    return encode_varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _int32s(fields: FieldReader, what: str) -> tuple[int, ...]:
    length = _array_length(fields, what)
    return struct.unpack(f">{length}i", fields.take(length * INT32.size, what))


def _encode_dated(partitions: Mapping[UUID, Mapping[int, int]]) -> bytes:
    parts = [encode_varint(len(partitions) + 1)]
    for topic, epochs in partitions.items():
        numbers = sorted(epochs)
        tagged = _encode_int32s([epochs[number] for number in numbers])
        parts += (topic.bytes, _encode_int32s(numbers), bytes((1, _TAG)))
        parts += (encode_varint(len(tagged)), tagged)
    return b"".join(parts)


def _dated(fields: FieldReader, what: str, default_epoch: int) -> dict[UUID, dict[int, int]]:
    partitions: dict[UUID, dict[int, int]] = {}
    for _ in range(_array_length(fields, what)):
        topic = fields.uuid("topic id")
        numbers = _int32s(fields, what)
        epochs = _tagged_epochs(fields.tagged_fields().get(_TAG))
        if epochs is None or len(epochs) != len(numbers):
            epochs = (default_epoch,) * len(numbers)
        partitions[topic] = dict(zip(numbers, epochs, strict=True))
    return partitions


def _tagged_epochs(content: bytes | None) -> tuple[int, ...] | None:
    if content is None:
        return None
    inner = FieldReader(content)
    length = inner.compact_array_length("assignment epochs")
    epochs: tuple[int, ...] | None = None
    if length >= 0:
        taken = inner.take(length * INT32.size, "assignment epochs")
        epochs = struct.unpack(f">{length}i", taken)
    inner.expect_end()
    return epochs
