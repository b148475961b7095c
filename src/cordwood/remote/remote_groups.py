"""Consumer groups of a broker: their members and committed offsets, and changing the offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cordwood.errors import BrokerRefusedError, FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.wire_values import read_count, read_int32, read_name
from cordwood.remote import api_calls
from cordwood.remote.refusals import check, refusal
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.wire_connection import WireConnection
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import consumer_group_messages, group_messages, offset_messages

Place = tuple[str, int]

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"

# The newest versions in which topics have names.
_COMMIT_VERSION_MAX: Final = 9
_FETCH_VERSION_MAX: Final = 9
_FIRST_FETCH_OF_MANY: Final = 8
_NO_GENERATION: Final = -1
_VERSION: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as brokers list it. `kind` is classic or consumer; empty if unknown."""

    name: str
    state: str
    kind: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, its client, and the partitions it reads now."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    name: str
    state: str
    kind: str
    assignor: str
    members: tuple[GroupMember, ...]


class RemoteGroups:
    """Talks to the coordinator of each group. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    # --- reading -----------------------------------------------------------------------------

    def listed(self) -> list[ListedGroup]:
        """All groups of all brokers, sorted by name."""
        return self._cluster.retried(self._list)

    def _list(self) -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for connection in self._cluster.everyone():
            answer = connection.call(api_calls.LIST_GROUPS({}))
            check(answer.error_code, "list groups")
            for group in answer.groups:
                found[group.group_id] = ListedGroup(
                    name=group.group_id,
                    state=group.group_state,
                    kind=group.group_type.lower(),
                    protocol=group.protocol_type,
                )
        return [found[name] for name in sorted(found)]

    def describe(self, group: str) -> DescribedGroup:
        """A group and its members. An unknown group has the state Dead."""
        return self._cluster.retried(lambda: self._describe(group))

    def _describe(self, group: str) -> DescribedGroup:
        connection = self._cluster.coordinator(group)
        described = self._describe_consumer(connection, group)
        return described or self._describe_classic(connection, group)

    def _describe_consumer(self, connection: WireConnection, group: str) -> DescribedGroup | None:
        """None if it is not a group of the new protocol."""
        if not connection.speaks(ApiKey.CONSUMER_GROUP_DESCRIBE):
            return None
        answer = connection.call(api_calls.CONSUMER_GROUP_DESCRIBE({"group_ids": [group]}))
        [found] = answer.groups
        if found.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
            return None
        check(found.error_code, f"describe group {group!r}", message=found.error_message)
        return DescribedGroup(
            name=group,
            state=found.group_state,
            kind=CONSUMER,
            assignor=found.assignor_name,
            members=tuple(_consumer_member(member) for member in found.members),
        )

    def _describe_classic(self, connection: WireConnection, group: str) -> DescribedGroup:
        answer = connection.call(api_calls.DESCRIBE_GROUPS({"groups": [group]}))
        [found] = answer.groups
        if found.error_code == ErrorCode.group_id_not_found:
            return DescribedGroup(name=group, state=DEAD, kind=CLASSIC, assignor="", members=())
        check(found.error_code, f"describe group {group!r}", message=found.error_message)
        return DescribedGroup(
            name=group,
            state=found.group_state,
            kind=CLASSIC,
            assignor=found.protocol_data,
            members=tuple(_classic_member(member) for member in found.members),
        )

    def committed(self, group: str) -> dict[Place, tuple[int, str]]:
        """The committed offset and metadata of each partition."""
        return self._cluster.retried(lambda: self._committed(group))

    def _committed(self, group: str) -> dict[Place, tuple[int, str]]:
        connection = self._cluster.coordinator(group)
        version = connection.version_of(ApiKey.OFFSET_FETCH, at_most=_FETCH_VERSION_MAX)
        request: offset_messages.OffsetFetchRequestDict = {"group_id": group, "topics": None}
        if version >= _FIRST_FETCH_OF_MANY:
            request = {"groups": [{"group_id": group, "topics": None}]}
        answer = connection.call(api_calls.OFFSET_FETCH(request), at_most=_FETCH_VERSION_MAX)
        found = answer.groups[0] if version >= _FIRST_FETCH_OF_MANY else answer
        check(found.error_code, f"fetch the offsets of group {group!r}")
        return {
            (topic.name, part.partition_index): (part.committed_offset, part.metadata or "")
            for topic in found.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    # --- changing ----------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[Place, tuple[int, str]]) -> None:
        """Commit for a group without members. Refused if it has members."""
        self._cluster.retried(lambda: self._commit(group, offsets))

    def _commit(self, group: str, offsets: Mapping[Place, tuple[int, str]]) -> None:
        by_topic: dict[str, list[offset_messages.OffsetCommitRequestPartitionsDict]] = {}
        for (topic, partition), (offset, metadata) in offsets.items():
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_metadata": metadata,
                }
            )
        answer = self._cluster.coordinator(group).call(
            api_calls.OFFSET_COMMIT(
                {
                    "group_id": group,
                    "generation_id_or_member_epoch": _NO_GENERATION,
                    "member_id": "",
                    "topics": [{"name": name, "partitions": p} for name, p in by_topic.items()],
                }
            ),
            at_most=_COMMIT_VERSION_MAX,
        )
        for answered in answer.topics:
            for part in answered.partitions:
                if part.error_code:
                    number = part.partition_index
                    raise _commit_refusal(part.error_code, group, answered.name, number)

    def forget(self, group: str, places: Iterable[Place]) -> None:
        """Remove the committed offsets of these partitions."""
        by_topic: dict[str, list[offset_messages.OffsetDeleteRequestPartitionsDict]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append({"partition_index": partition})
        answer = self._cluster.coordinator(group).call(
            api_calls.OFFSET_DELETE(
                {
                    "group_id": group,
                    "topics": [{"name": name, "partitions": p} for name, p in by_topic.items()],
                }
            ),
        )
        check(answer.error_code, f"forget offsets of group {group!r}")
        for answered in answer.topics:
            for part in answered.partitions:
                place = f"{answered.name}-{part.partition_index}"
                check(part.error_code, f"forget {place} of {group!r}")

    def delete(self, group: str) -> None:
        """Remove a group without members, with its committed offsets."""
        self._cluster.retried(lambda: self._delete(group))

    def _delete(self, group: str) -> None:
        answer = self._cluster.coordinator(group).call(
            api_calls.DELETE_GROUPS({"groups_names": [group]})
        )
        [result] = answer.results
        check(result.error_code, f"delete group {group!r}", message=_why(result.error_code))


_MEMBERS: Final = "it has members; stop them first"


def _commit_refusal(code: int, group: str, topic: str, partition: int) -> Exception:
    what = f"commit {topic}-{partition} for group {group!r}"
    if code in (
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.unsupported_version,
    ):
        return BrokerRefusedError(what, ErrorCode(code).name, _MEMBERS)
    return refusal(code, what, topic=topic)


def _why(code: int) -> str | None:
    if code == ErrorCode.non_empty_group:
        return _MEMBERS
    return "unknown group" if code == ErrorCode.group_id_not_found else None


def _consumer_member(
    member: consumer_group_messages.ConsumerGroupDescribeResponseMembers,
) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        partitions=tuple(
            sorted(
                (topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            )
        ),
    )


def _classic_member(member: group_messages.DescribeGroupsResponseMembers) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        partitions=tuple(sorted(_assigned(member.member_assignment))),
    )


def _assigned(assignment: bytes) -> list[Place]:
    """The partitions of a member of a classic consumer group; empty for other protocols.

    version int16, topics array of (name string, partitions array of int32), user data bytes
    """
    data = memoryview(assignment)
    places: list[Place] = []
    try:
        at = _VERSION.size
        topic_count, at = read_count(data, at, is_flexible=False)
        for _ in range(topic_count):
            topic, at = read_name(data, at, is_flexible=False)
            count, at = read_count(data, at, is_flexible=False)
            for _ in range(count):
                number, at = read_int32(data, at)
                places.append((topic, number))
    except FormatError:
        return []
    return places
