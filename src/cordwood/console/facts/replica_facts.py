"""Where the copies of partitions are, and which of them are in sync. Values only."""

from collections.abc import Collection
from typing import NamedTuple

from cordwood.value_class import dataclass, replace

NO_LEADER = -1


class ReplicaFacts(NamedTuple):
    """The copies of one partition. The first of `replicas` should lead it.

    A named tuple, because a cluster has ten thousand of them.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.in_sync)

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def has_preferred_leader(self) -> bool:
        return not self.replicas or self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A broker. A fenced one is known to the controllers, but serves nothing."""

    node_id: int
    address: str
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    """The brokers of a cluster and the copies of all partitions, at one moment."""

    cluster_id: str
    controller: int
    nodes: tuple[NodeFacts, ...]
    partitions: tuple[ReplicaFacts, ...]

    def of_topics(self, names: Collection[str]) -> "ClusterPicture":
        return replace(self, partitions=tuple(p for p in self.partitions if p.topic in names))

    @property
    def without_leader(self) -> int:
        return sum(not partition.has_leader for partition in self.partitions)

    @property
    def under_replicated(self) -> int:
        return sum(partition.is_under_replicated for partition in self.partitions)


class Reassignment(NamedTuple):
    """A partition that moves to other brokers."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class QuorumMember(NamedTuple):
    """A controller, or a broker that follows the controllers' log."""

    node_id: int
    is_voter: bool
    is_leader: bool
    end_offset: int
    lag: int
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    leader: int
    epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]
