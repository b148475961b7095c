"""A cluster as its operator sees it: brokers, controllers, replicas, and moving them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.errors import BrokerError, BrokerRefusedError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.remote import api_calls
from cordwood.remote.refusals import check, code_name, is_forbidden
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.wire_connection import WireConnection
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages, control_messages

_TIMEOUT_MS: Final = 30_000
_ANSWER_S: Final = 35.0
_TOPIC: Final = 2
_BROKER: Final = 4
_METADATA_TOPIC: Final = "__cluster_metadata"
_OUR_KEY: Final = "metrics.port"  # a key of our brokers that Kafka's do not have
_MIN_IN_SYNC: Final = "min.insync.replicas"
_FIRST_WITH_FEATURES: Final = 3
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_PLACES_MAX: Final = 5_000  # of one request, so that a controller answers in time

REBUILD_PATH: Final = "cordwood:rebuild"  # as in `broker.cluster.replica_directories`

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBroker:
    """A registered broker, whether or not it is alive."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartition:
    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMove:
    """A reassignment under way."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReplica:
    """A replica on one broker. `is_future` is a copy that is being made beside it."""

    node_id: int
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFeatures:
    """Levels of features: those that the cluster has, and the range that a broker supports."""

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]


class RemoteOperations:
    """Describes and changes a cluster through any of its brokers. For one thread."""

    def __init__(self, cluster: RemoteCluster) -> None:
        self._cluster = cluster

    # --- brokers -----------------------------------------------------------------------------

    def brokers(self) -> list[RemoteBroker]:
        """All that are registered, in order; without fenced ones from an old broker."""
        answer = self._cluster.anyone().call(
            api_calls.DESCRIBE_CLUSTER({"include_fenced_brokers": True})
        )
        check(answer.error_code, "describe the cluster", message=answer.error_message)
        return sorted(
            (
                RemoteBroker(
                    node_id=each.broker_id,
                    host=each.host,
                    port=each.port,
                    rack=each.rack,
                    is_fenced=each.is_fenced,
                )
                for each in answer.brokers
            ),
            key=lambda broker: broker.node_id,
        )

    def kind_of(self, node_id: int) -> str | None:
        """cordwood or kafka; None if the broker cannot be asked."""
        try:
            answer = self._cluster.broker(node_id).call(
                api_calls.DESCRIBE_CONFIGS(
                    {
                        "resources": [
                            {
                                "resource_type": _BROKER,
                                "resource_name": str(node_id),
                                "configuration_keys": [_OUR_KEY],
                            }
                        ]
                    }
                )
            )
        except BrokerError:
            return None
        [result] = answer.results
        if result.error_code:
            return None
        return "cordwood" if any(each.name == _OUR_KEY for each in result.configs) else "kafka"

    def features(self) -> RemoteFeatures:
        """As the broker that was asked first tells them."""
        connection = self._cluster.anyone()
        if connection.version_of(ApiKey.API_VERSIONS) < _FIRST_WITH_FEATURES:
            return RemoteFeatures(finalized={}, supported={})
        answer = connection.call(
            api_calls.API_VERSIONS(
                {"client_software_name": "cordwood", "client_software_version": "0"}
            )
        )
        return RemoteFeatures(
            finalized={each.name: each.max_version_level for each in answer.finalized_features},
            supported={
                each.name: (each.min_version, each.max_version)
                for each in answer.supported_features
            },
        )

    def unregister(self, node_id: int) -> None:
        """Have the controllers forget a broker. They do not ask whether it has replicas."""
        answer = self._cluster.admin(api_calls.UNREGISTER_BROKER({"broker_id": node_id}))
        check(answer.error_code, f"remove broker {node_id}", message=answer.error_message)

    # --- controllers -------------------------------------------------------------------------

    @property
    def has_controllers(self) -> bool:
        """Whether there are any behind the broker that was asked first."""
        return self._cluster.anyone().speaks(ApiKey.DESCRIBE_QUORUM)

    def quorum(self, *, timeout_s: float | None = None) -> control_messages.DescribeQuorumResponse:
        """The controllers, as the active one describes them."""
        answer = self._cluster.anyone().call(
            api_calls.DESCRIBE_QUORUM(
                {
                    "topics": [
                        {"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
                    ]
                }
            ),
            timeout_s=timeout_s or _ANSWER_S,
        )
        what = "describe the controllers"
        check(answer.error_code, what, message=answer.error_message)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, what, message=partition.error_message)
        return answer

    # --- partitions --------------------------------------------------------------------------

    def partitions(self, topics: Sequence[str] | None = None) -> list[RemotePartition]:
        """All partitions, internal ones too, or those of `topics`. Unknown topics raise."""
        answer = self._cluster.anyone().call(
            api_calls.METADATA(
                {
                    "topics": None if topics is None else [{"name": name} for name in topics],
                    "allow_auto_topic_creation": False,
                }
            )
        )
        check(answer.error_code, "describe the cluster")
        found = []
        for topic in answer.topics:
            name = topic.name or ""
            check(topic.error_code, f"describe topic {name!r}", topic=name)
            found += [_partition(name, each) for each in topic.partitions]
        return found

    def min_in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """``min.insync.replicas`` of each topic whose configuration may be seen."""
        names = sorted(set(topics))
        if not names:
            return {}
        answer = self._cluster.anyone().call(
            api_calls.DESCRIBE_CONFIGS(
                {
                    "resources": [
                        {
                            "resource_type": _TOPIC,
                            "resource_name": name,
                            "configuration_keys": [_MIN_IN_SYNC],
                        }
                        for name in names
                    ]
                }
            )
        )
        return {
            result.resource_name: int(entry.value)
            for result in answer.results
            for entry in result.configs
            if entry.name == _MIN_IN_SYNC and entry.value is not None
        }

    def replicas(
        self, nodes: Iterable[int], topics: Sequence[str] | None = None
    ) -> list[RemoteReplica]:
        """What each of these brokers has on its disks. Brokers that do not answer are left out."""
        wanted: dict[str, list[int]] | None = None
        if topics is not None:
            wanted = {name: [] for name in topics}
            for partition in self.partitions(topics):
                wanted[partition.topic].append(partition.partition)
        found: list[RemoteReplica] = []
        for node_id in nodes:
            try:
                found += self._replicas_of(self._cluster.broker(node_id), node_id, wanted)
            except BrokerRefusedError as error:
                if not is_forbidden(error):
                    raise
            except BrokerError:
                continue
        return found

    def _replicas_of(
        self, connection: WireConnection, node_id: int, wanted: Mapping[str, list[int]] | None
    ) -> list[RemoteReplica]:
        answer = connection.call(
            api_calls.DESCRIBE_LOG_DIRS(
                {
                    "topics": None
                    if wanted is None
                    else [
                        {"topic": name, "partitions": numbers} for name, numbers in wanted.items()
                    ]
                }
            )
        )
        check(answer.error_code, "describe log directories")
        return [
            RemoteReplica(
                node_id=node_id,
                topic=topic.name,
                partition=each.partition_index,
                size_bytes=each.partition_size,
                offset_lag=each.offset_lag,
                is_future=each.is_future_key,
            )
            for directory in answer.results
            if not directory.error_code
            for topic in directory.topics
            for each in topic.partitions
        ]

    def rebuild(self, node_id: int, topic: str, partition: int) -> int:
        """Have a broker of ours fetch a replica again; the error code, 0 if it began.

        Kafka's brokers answer that they have no such log directory.
        """
        answer = self._cluster.broker(node_id).call(
            api_calls.ALTER_REPLICA_LOG_DIRS(
                {
                    "dirs": [
                        {
                            "path": REBUILD_PATH,
                            "topics": [{"name": topic, "partitions": [partition]}],
                        }
                    ]
                }
            )
        )
        [result] = answer.results
        [code] = [each.error_code for each in result.partitions]
        return code

    # --- moving ------------------------------------------------------------------------------

    def moves(self, *, timeout_s: float | None = None) -> dict[Place, RemoteMove]:
        """The reassignments under way, which the controllers tell."""
        limit_ms = _TIMEOUT_MS if timeout_s is None else int(timeout_s * 1000)
        answer = self._cluster.admin(
            api_calls.LIST_PARTITION_REASSIGNMENTS({"timeout": limit_ms, "topics": None}),
            timeout_s=timeout_s,
        )
        check(answer.error_code, "list reassignments", message=answer.error_message)
        return {
            (topic.name, each.partition_index): RemoteMove(
                adding=tuple(each.adding_replicas), removing=tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    def reassign(self, wanted: Mapping[Place, Sequence[int] | None]) -> dict[Place, str]:
        """Begin to move partitions; None cancels a move. Returns what was refused, and why."""
        refused: dict[Place, str] = {}
        places = sorted(wanted)
        for start in range(0, len(places), _PLACES_MAX):
            chunk = places[start : start + _PLACES_MAX]
            topics: dict[
                str, list[control_messages.AlterPartitionReassignmentsRequestPartitionsDict]
            ] = {}
            for topic, partition in chunk:
                replicas = wanted[topic, partition]
                topics.setdefault(topic, []).append(
                    {
                        "partition_index": partition,
                        "replicas": None if replicas is None else list(replicas),
                    }
                )
            answer = self._cluster.admin(
                api_calls.ALTER_PARTITION_REASSIGNMENTS(
                    {
                        "timeout": _TIMEOUT_MS,
                        "topics": [
                            {"name": name, "partitions": partitions}
                            for name, partitions in topics.items()
                        ],
                    }
                )
            )
            check(answer.error_code, "reassign partitions", message=answer.error_message)
            refused |= {
                (topic.name, each.partition_index): each.error_message or code_name(each.error_code)
                for topic in answer.responses
                for each in topic.partitions
                if each.error_code
            }
        return refused

    def elect(self, places: Iterable[Place], *, is_unclean: bool = False) -> dict[Place, str]:
        """Have the preferred replicas lead. Returns what was refused, and why.

        An unclean election lets a replica lead that is not in sync: records may be lost.
        """
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(places):
            topics.setdefault(topic, []).append(partition)
        answer = self._cluster.admin(
            api_calls.ELECT_LEADERS(
                {
                    "election_type": _UNCLEAN if is_unclean else _PREFERRED,
                    "topic_partitions": [
                        {"topic": topic, "partitions": numbers} for topic, numbers in topics.items()
                    ],
                    "timeout": _TIMEOUT_MS,
                }
            )
        )
        check(answer.error_code, "elect leaders")
        return {
            (topic.topic, each.partition_id): each.error_message or code_name(each.error_code)
            for topic in answer.replica_election_results
            for each in topic.partition_result
            if each.error_code not in (ErrorCode.none, ErrorCode.election_not_needed)
        }


def _partition(topic: str, each: cluster_messages.MetadataResponsePartitions) -> RemotePartition:
    return RemotePartition(
        topic=topic,
        partition=each.partition_index,
        leader=each.leader_id,
        replicas=tuple(each.replica_nodes),
        in_sync=tuple(each.isr_nodes),
    )
