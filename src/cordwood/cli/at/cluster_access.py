"""A cluster, through any of its brokers: its picture for an operator, and changes of it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.cli.at.target import BrokerTarget, parse_target, shown_address
from cordwood.cli.failures import UsageError
from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    BrokerState,
    ClusterPicture,
    PartitionPicture,
    Place,
    QuorumMember,
    QuorumPicture,
)
from cordwood.errors import BrokerError, BrokerRefusedError, BrokerUnreachableError

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages
    from cordwood.remote.remote_cluster import RemoteCluster
    from cordwood.remote.remote_operations import RemoteBroker, RemoteMove

CONTROLLERS_ANSWER_S: Final = 5.0  # for a look at the cluster; a change may take longer
_NO_ANSWER: Final = "the controllers do not answer"


class ClusterAccess:
    """For one thread. `operations` sends requests, `picture` asks for everything at once."""

    def __init__(self, cluster: "RemoteCluster") -> None:
        from cordwood.remote.remote_operations import RemoteOperations
        from cordwood.remote.remote_throttles import RemoteThrottles

        self._cluster = cluster
        self.operations = RemoteOperations(cluster)
        self.throttles = RemoteThrottles(cluster)
        self.reconnect()

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    def reconnect(self) -> None:
        """Ask any broker who the others are."""
        self._cluster.find_home()
        self._cluster.describe([])

    def picture(self) -> ClusterPicture:
        """Brokers, partitions and controllers, as one of the brokers describes them now."""
        quorum, problem = self._quorum()
        return self._pictured(self.operations.moves(), quorum, problem, with_kinds=False)

    def look(self) -> ClusterPicture:
        """As `picture`, and with the kinds of brokers. Controllers that are away are a fact of it.

        What only they know is asked with a short time-out; without them no partition moves.
        """
        from cordwood.remote.refusals import is_forbidden

        moves: Mapping[tuple[str, int], RemoteMove] = {}
        quorum: QuorumPicture | None = None
        try:
            moves = self.operations.moves(timeout_s=CONTROLLERS_ANSWER_S)
        except BrokerError as error:
            if not self.operations.has_controllers or is_forbidden(error):
                raise
            problem: str | None = f"{_NO_ANSWER} ({_why(error)})"
        else:
            quorum, problem = self._quorum(timeout_s=CONTROLLERS_ANSWER_S)
        return self._pictured(moves, quorum, problem, with_kinds=True)

    def _pictured(
        self,
        moves: "Mapping[tuple[str, int], RemoteMove]",
        quorum: QuorumPicture | None,
        problem: str | None,
        *,
        with_kinds: bool,
    ) -> ClusterPicture:
        brokers = self.operations.brokers()
        return ClusterPicture(
            cluster_id=self.cluster_id,
            brokers=tuple(self._broker(each, with_kind=with_kinds) for each in brokers),
            partitions=tuple(self._partitions(None, moves)),
            quorum=quorum,
            quorum_problem=problem,
        )

    def partitions(self, topics: Sequence[str] | None = None) -> list[PartitionPicture]:
        """All partitions, or those of `topics`, and how they move."""
        return self._partitions(topics, self.operations.moves())

    def _partitions(
        self, topics: Sequence[str] | None, moves: "Mapping[tuple[str, int], RemoteMove]"
    ) -> list[PartitionPicture]:
        found = self.operations.partitions(topics)
        least = self.operations.min_in_sync(each.topic for each in found)
        pictures = []
        for each in found:
            move = moves.get((each.topic, each.partition))
            pictures.append(
                PartitionPicture(
                    place=Place(each.topic, each.partition),
                    leader=each.leader,
                    replicas=each.replicas,
                    in_sync=each.in_sync,
                    adding=() if move is None else move.adding,
                    removing=() if move is None else move.removing,
                    min_in_sync=least.get(each.topic),
                )
            )
        return pictures

    def sizes(self, picture: ClusterPicture) -> dict[Place, int]:
        """The bytes of each partition: those of its leader, or of the largest replica."""
        leaders = {each.place: each.leader for each in picture.partitions}
        sizes: dict[Place, int] = {}
        for replica in self.operations.replicas(each.node_id for each in picture.alive):
            place = Place(replica.topic, replica.partition)
            if replica.is_future:
                continue
            if leaders.get(place) == replica.node_id:
                sizes[place] = replica.size_bytes
            else:
                sizes.setdefault(place, 0)
                if leaders.get(place, -1) < 0:
                    sizes[place] = max(sizes[place], replica.size_bytes)
        return sizes

    def _broker(self, each: "RemoteBroker", *, with_kind: bool) -> BrokerPicture:
        state = BrokerState.FENCED if each.is_fenced else BrokerState.ALIVE
        asks = with_kind and state is BrokerState.ALIVE
        return BrokerPicture(
            node_id=each.node_id,
            host=each.host,
            port=each.port,
            rack=each.rack,
            state=state,
            kind=self.operations.kind_of(each.node_id) if asks else None,
        )

    def _quorum(self, *, timeout_s: float | None = None) -> tuple[QuorumPicture | None, str | None]:
        if not self.operations.has_controllers:
            return None, None
        try:
            return _quorum_picture(self.operations.quorum(timeout_s=timeout_s)), None
        except BrokerRefusedError as error:
            return None, f"the controllers cannot be described: {error}"
        except BrokerError as error:
            return None, f"{_NO_ANSWER} ({_why(error)})"


def _why(error: BrokerError) -> str:
    """Without the advice to look at the broker: that one answers."""
    return error.reason if isinstance(error, BrokerUnreachableError) else str(error)


def _quorum_picture(
    answer: "control_messages.DescribeQuorumResponse",
) -> QuorumPicture:
    addresses: Mapping[int, str] = {
        node.node_id: shown_address(node.listeners[0].host, node.listeners[0].port)
        for node in answer.nodes
        if node.listeners
    }
    [partition] = [each for topic in answer.topics for each in topic.partitions]

    def members(
        found: "Sequence[control_messages.DescribeQuorumResponseCurrentVoters]",
    ) -> tuple[QuorumMember, ...]:
        return tuple(
            QuorumMember(
                node_id=each.replica_id,
                log_end=each.log_end_offset,
                last_fetch_ms=each.last_fetch_timestamp,
                last_caught_up_ms=each.last_caught_up_timestamp,
                address=addresses.get(each.replica_id),
            )
            for each in found
        )

    return QuorumPicture(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=members(partition.current_voters),
        observers=members(partition.observers),  # type: ignore[arg-type]  # the same fields
    )


@contextlib.contextmanager
def open_cluster(at: str | None) -> Iterator[ClusterAccess]:
    """The cluster of the broker at ``--at``."""
    from cordwood.remote.remote_cluster import RemoteCluster

    target = parse_target(at)
    if not isinstance(target, BrokerTarget):
        raise UsageError(
            f"a cluster is reached through a broker, but --at names a directory: {target}; "
            "pass --at HOST:PORT"
        )
    with RemoteCluster(target.addresses, security=target.security) as cluster:
        yield ClusterAccess(cluster)
