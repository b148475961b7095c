"""Facts that a broker tells, of ours or of Apache Kafka: a few requests for the whole cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.console.facts.cluster_facts import (
    CommittedFacts,
    GroupFacts,
    PartitionFacts,
    Place,
    TopicFacts,
)
from cordwood.errors import BrokerRefusedError
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.protocol.api_catalog import ApiKey
from cordwood.remote import api_calls
from cordwood.remote.refusals import check, is_forbidden
from cordwood.remote.remote_cluster import RemoteCluster, RemoteTopic
from cordwood.remote.remote_consumer import EARLIEST, LATEST
from cordwood.remote.remote_groups import ListedGroup, RemoteGroups
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.remote.wire_connection import ANSWER_TIMEOUT_S, WireConnection

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages

_CONSUMER: Final = -1
_NO_LEADER: Final = -1
_FIRST_FETCH_OF_MANY: Final = 8
_NAMED_FETCH_MAX: Final = 9  # the newest version in which topics have names
_GROUPS_AT_ONCE: Final = 200
_TOPICS_AT_ONCE: Final = 500

T = TypeVar("T")


class BrokerCensus:
    """Counts what a cluster has. For the thread that takes snapshots."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster
        self._policies: dict[str, str] = {}

    def topics(self) -> dict[str, TopicFacts]:
        self._cluster.forget()
        described = self._cluster.describe()
        starts = self._offsets(described, EARLIEST)
        ends = self._offsets(described, LATEST)
        sizes = self._sizes()
        self._learn_policies([name for name in described if name not in self._policies])
        return {
            name: TopicFacts(
                name=name,
                topic_id=encode_topic_id(topic.topic_id),
                is_internal=topic.is_internal,
                cleanup_policy=self._policies.get(name) or None,
                partitions=tuple(
                    PartitionFacts(
                        name,
                        number,
                        starts.get((name, number)),
                        ends.get((name, number)),
                        sizes.get((name, number)),
                        problem="it has no leader" if leader == _NO_LEADER else None,
                    )
                    for number, leader in sorted(topic.leaders.items())
                ),
            )
            for name, topic in described.items()
        }

    def _offsets(self, topics: dict[str, RemoteTopic], timestamp_ms: int) -> dict[Place, int]:
        by_leader: dict[int, dict[str, list[int]]] = {}
        for name, topic in topics.items():
            for number, leader in topic.leaders.items():
                if leader != _NO_LEADER:
                    by_leader.setdefault(leader, {}).setdefault(name, []).append(number)
        found: dict[Place, int] = {}
        for leader, wanted in by_leader.items():
            connection = self._cluster.broker(leader)
            for some in _portions(list(wanted.items()), _TOPICS_AT_ONCE):
                found |= _list_offsets(connection, some, timestamp_ms)
        return found

    def _sizes(self) -> dict[Place, int]:
        """The bytes of each partition; nothing if the user may not see them."""
        sizes: dict[Place, int] = {}
        try:
            for directory in RemoteTopics(self._cluster).log_dirs():
                sizes |= directory.sizes
        except BrokerRefusedError as error:
            if not is_forbidden(error):
                raise
        return sizes

    def _learn_policies(self, names: Sequence[str]) -> None:
        """The cleanup policies of topics that are new. Asked once: they change rarely."""
        for some in _portions(list(names), _TOPICS_AT_ONCE):
            configs = RemoteTopics(self._cluster).configs(some, hides_forbidden=True)
            for name, config in configs.items():
                policy = config.get("cleanup.policy")
                self._policies[name] = "" if policy is None else policy.value

    def forget_policies(self) -> None:
        self._policies.clear()

    def groups(self) -> dict[str, GroupFacts]:
        listed = RemoteGroups(self._cluster).listed()
        committed: dict[str, tuple[CommittedFacts, ...]] = {}
        for connection, names in self._by_coordinator(listed):
            for some in _portions(names, _GROUPS_AT_ONCE):
                committed |= _committed(connection, some)
        return {
            group.name: GroupFacts(
                name=group.name,
                kind=group.kind or "classic",
                state=group.state,
                committed=committed.get(group.name, ()),
            )
            for group in listed
        }

    def _by_coordinator(
        self, listed: Sequence[ListedGroup]
    ) -> list[tuple[WireConnection, list[str]]]:
        found: dict[int, tuple[WireConnection, list[str]]] = {}
        for group in listed:
            connection = self._cluster.coordinator(group.name)
            found.setdefault(id(connection), (connection, []))[1].append(group.name)
        return list(found.values())


def _portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _list_offsets(
    connection: WireConnection, wanted: Iterable[tuple[str, list[int]]], timestamp_ms: int
) -> dict[Place, int]:
    answer = connection.call(
        api_calls.LIST_OFFSETS(
            {
                "replica_id": _CONSUMER,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": number, "timestamp": timestamp_ms}
                            for number in numbers
                        ],
                    }
                    for name, numbers in wanted
                ],
                "timeout": int(ANSWER_TIMEOUT_S * 1000),
            }
        )
    )
    return {
        (topic.name, part.partition_index): part.offset
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code and part.offset >= 0
    }


def _committed(
    connection: WireConnection, names: Sequence[str]
) -> dict[str, tuple[CommittedFacts, ...]]:
    version = connection.version_of(ApiKey.OFFSET_FETCH, at_most=_NAMED_FETCH_MAX)
    if version < _FIRST_FETCH_OF_MANY:
        return {name: _committed_of_one(connection, name) for name in names}
    request: offset_messages.OffsetFetchRequestDict = {
        "groups": [{"group_id": name, "topics": None} for name in names]
    }
    answer = connection.call(api_calls.OFFSET_FETCH(request), at_most=_NAMED_FETCH_MAX)
    return {
        group.group_id: tuple(
            CommittedFacts(
                topic.name, part.partition_index, part.committed_offset, part.metadata or ""
            )
            for topic in group.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        )
        for group in answer.groups
        if not group.error_code
    }


def _committed_of_one(connection: WireConnection, name: str) -> tuple[CommittedFacts, ...]:
    request: offset_messages.OffsetFetchRequestDict = {"group_id": name, "topics": None}
    answer = connection.call(api_calls.OFFSET_FETCH(request), at_most=_FIRST_FETCH_OF_MANY - 1)
    check(answer.error_code, f"fetch the offsets of group {name!r}")
    return tuple(
        CommittedFacts(topic.name, part.partition_index, part.committed_offset, part.metadata or "")
        for topic in answer.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    )
