"""Which replica a consumer should read from: as Kafka's RackAwareReplicaSelector (KIP-392)."""

from collections.abc import Callable

from cordwood.cluster.replication.leader_role import LeaderRole
from cordwood.quantities import Offset

RackOf = Callable[[int], str | None]


def nearest_follower(leader: LeaderRole, offset: Offset, rack: str, rack_of: RackOf) -> int | None:
    """The follower in `rack` that is furthest; None: the leader, as it is there or nobody is.

    Followers count that are in sync and have the offset: one that lags would lag for its consumers,
    too. `rack_of` says where a broker is; None: it cannot be reached by the consumer, or nobody
    knows.
    """
    if leader.is_over or rack_of(leader.site.node.node_id) == rack:
        return None
    in_sync = leader.isr.committed
    near = [
        state
        for node_id, state in leader.replicas.items()
        if node_id in in_sync
        and state.log_start <= offset <= state.end
        and rack_of(node_id) == rack
    ]
    if not near:
        return None
    return max(near, key=lambda state: (state.end, state.caught_up_s, state.node_id)).node_id
