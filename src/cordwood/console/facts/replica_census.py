"""What a cluster says of its brokers, replicas, moves and controllers. A few requests for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.console.facts.replica_facts import (
    ClusterPicture,
    NodeFacts,
    QuorumFacts,
    QuorumMember,
    Reassignment,
    ReplicaFacts,
)
from cordwood.errors import BrokerUnreachableError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.remote import api_calls
from cordwood.remote.api_calls import Api
from cordwood.remote.refusals import check
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.wire_connection import WireConnection

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages, control_messages

_DESCRIBE_CLUSTER: Final[
    Api[cluster_messages.DescribeClusterRequestDict, cluster_messages.DescribeClusterResponse]
] = Api(ApiKey.DESCRIBE_CLUSTER)
_LIST_REASSIGNMENTS: Final[
    Api[
        cluster_messages.ListPartitionReassignmentsRequestDict,
        cluster_messages.ListPartitionReassignmentsResponse,
    ]
] = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS)
_DESCRIBE_QUORUM: Final[
    Api[control_messages.DescribeQuorumRequestDict, control_messages.DescribeQuorumResponse]
] = Api(ApiKey.DESCRIBE_QUORUM)

_CONTROLLERS_LOG: Final = "__cluster_metadata"
_FIRST_WITH_FENCED: Final = 2
_BROKERS: Final = 1
_TIMEOUT_MS: Final = 10_000


def cluster_picture(cluster: RemoteCluster) -> ClusterPicture:
    """The brokers and the replicas of all topics that the user may see."""
    connection = cluster.anyone()
    answer = connection.call(
        api_calls.METADATA({"topics": None, "allow_auto_topic_creation": False})
    )
    check(answer.error_code, "describe the cluster")
    nodes = {
        broker.node_id: NodeFacts(
            node_id=broker.node_id, address=_address(broker.host, broker.port), rack=broker.rack
        )
        for broker in answer.brokers
    }
    nodes |= {node.node_id: node for node in _fenced(connection)}
    return ClusterPicture(
        cluster_id=answer.cluster_id or "",
        controller=answer.controller_id,
        nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
        partitions=tuple(
            ReplicaFacts(
                topic.name or "",
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
            )
            for topic in answer.topics
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ),
    )


def _fenced(connection: WireConnection) -> list[NodeFacts]:
    """Brokers that metadata leaves out; nothing from a broker that cannot tell."""
    try:
        if connection.version_of(ApiKey.DESCRIBE_CLUSTER) < _FIRST_WITH_FENCED:
            return []
    except BrokerUnreachableError:
        return []
    answer = connection.call(
        _DESCRIBE_CLUSTER({"endpoint_type": 1, "include_fenced_brokers": True})
    )
    check(answer.error_code, "describe the cluster", message=answer.error_message)
    return [
        NodeFacts(
            node_id=broker.broker_id,
            address=_address(broker.host, broker.port),
            rack=broker.rack,
            is_fenced=True,
        )
        for broker in answer.brokers
        if broker.is_fenced
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reassignments(cluster: RemoteCluster) -> tuple[Reassignment, ...]:
    """The partitions that move at the moment. Raises `CordwoodError` if it cannot be told."""
    answer = cluster.controller().call(
        _LIST_REASSIGNMENTS({"timeout": _TIMEOUT_MS, "topics": None})
    )
    check(answer.error_code, "list reassignments", message=answer.error_message)
    return tuple(
        Reassignment(
            topic.name,
            part.partition_index,
            part.replicas,
            part.adding_replicas,
            part.removing_replicas,
        )
        for topic in answer.topics
        for part in topic.partitions
    )


def quorum(cluster: RemoteCluster) -> QuorumFacts:
    """The controllers. Raises `CordwoodError` if the broker does not know them."""
    answer = cluster.anyone().call(
        _DESCRIBE_QUORUM(
            {"topics": [{"topic_name": _CONTROLLERS_LOG, "partitions": [{"partition_index": 0}]}]}
        )
    )
    check(answer.error_code, "describe the controllers", message=answer.error_message)
    [topic] = answer.topics
    [part] = topic.partitions
    check(part.error_code, "describe the controllers", message=part.error_message)
    found = [(True, voter) for voter in part.current_voters]
    found += [(False, observer) for observer in part.observers]  # type: ignore[misc]
    ends = [member.log_end_offset for _, member in found]
    newest = max(ends, default=0)
    return QuorumFacts(
        leader=part.leader_id,
        epoch=part.leader_epoch,
        high_watermark=part.high_watermark,
        members=tuple(
            QuorumMember(
                member.replica_id,
                is_voter,
                member.replica_id == part.leader_id,
                member.log_end_offset,
                max(newest - member.log_end_offset, 0),
                member.last_caught_up_timestamp if member.last_caught_up_timestamp > 0 else None,
            )
            for is_voter, member in found
        ),
    )
