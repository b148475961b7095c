"""The members and assignments of a group of the classic protocol, as the value of a record.

The key has type 2, see `group_offsets`. A null value is a tombstone: the group was deleted.

    field                     in versions
    version                   int16, 0 to 4
    protocol_type             string, empty for a group that only commits offsets
    generation                int32
    protocol                  nullable string
    leader                    nullable string
    current_state_timestamp   2 to 4: int64
    members                   array of:
        member_id                 string
        group_instance_id         3, 4: nullable string
        client_id, client_host    strings
        rebalance_timeout         1 to 4: int32, milliseconds
        session_timeout           int32, milliseconds
        subscription              bytes, the member's metadata for `protocol`
        assignment                bytes, assigned by the leader

Version 4 has compact sizes and tagged fields, see `group_fields`. Like Kafka, we write version 3.
"""

from typing import Final

from cordwood.errors import UnsupportedFormatError
from cordwood.format.groups.group_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    encode_nullable_string,
    encode_sized_bytes,
    encode_string,
)
from cordwood.quantities import NO_TIMESTAMP, TimestampMs
from cordwood.value_class import dataclass

_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
_VERSION_WITH_STATE_TIMESTAMP: Final = 2
_VERSION_WITH_INSTANCE_ID: Final = 3
_VERSION_FLEXIBLE: Final = 4
_WRITTEN_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member at the time when the group became stable."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """One generation of a group; without members, the group had become empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: TimestampMs = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = ()


def encode_group_metadata(value: GroupMetadata) -> bytes:
    parts = [
        INT16.pack(_WRITTEN_VERSION),
        encode_string("protocol type", value.protocol_type),
        INT32.pack(value.generation),
        encode_nullable_string("protocol", value.protocol),
        encode_nullable_string("leader", value.leader),
        INT64.pack(value.current_state_timestamp),
        INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            encode_string("member id", member.member_id),
            encode_nullable_string("group instance id", member.group_instance_id),
            encode_string("client id", member.client_id),
            encode_string("client host", member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            encode_sized_bytes(member.subscription),
            encode_sized_bytes(member.assignment),
        )
    return b"".join(parts)


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """Read any version from 0 to 4; missing fields get their defaults."""
    fields = FieldReader(data)
    version = fields.int16("value version")
    if not 0 <= version <= _VERSION_FLEXIBLE:
        raise UnsupportedFormatError("version of group metadata", version)
    is_flexible = version >= _VERSION_FLEXIBLE
    string = fields.compact_string if is_flexible else fields.string
    nullable = fields.nullable_compact_string if is_flexible else fields.nullable_string
    protocol_type = string("protocol type")
    generation = fields.int32("generation")
    protocol = nullable("protocol")
    leader = nullable("leader")
    has_timestamp = version >= _VERSION_WITH_STATE_TIMESTAMP
    timestamp = fields.int64("current state timestamp") if has_timestamp else NO_TIMESTAMP
    count = (fields.compact_array_length if is_flexible else fields.array_length)("members")
    members = tuple(_decode_member(fields, version) for _ in range(count))
    if is_flexible:
        fields.tagged_fields()
    fields.expect_end()
    return GroupMetadata(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=TimestampMs(timestamp),
        members=members,
    )


def _decode_member(fields: FieldReader, version: int) -> MemberMetadata:
    is_flexible = version >= _VERSION_FLEXIBLE
    string = fields.compact_string if is_flexible else fields.string
    nullable = fields.nullable_compact_string if is_flexible else fields.nullable_string
    content = fields.compact_bytes if is_flexible else fields.sized_bytes
    member_id = string("member id")
    has_instance_id = version >= _VERSION_WITH_INSTANCE_ID
    instance_id = nullable("group instance id") if has_instance_id else None
    client_id, client_host = string("client id"), string("client host")
    has_rebalance_timeout = version >= _VERSION_WITH_REBALANCE_TIMEOUT
    rebalance_timeout_ms = fields.int32("rebalance timeout") if has_rebalance_timeout else -1
    session_timeout_ms = fields.int32("session timeout")
    member = MemberMetadata(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Before there was a rebalance timeout, the session timeout was used.
        rebalance_timeout_ms=session_timeout_ms
        if rebalance_timeout_ms < 0
        else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=content("subscription"),
        assignment=content("assignment"),
    )
    if is_flexible:
        fields.tagged_fields()
    return member
