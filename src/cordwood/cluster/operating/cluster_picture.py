"""A cluster at one moment, as its brokers and controllers describe it."""

from enum import StrEnum
from typing import Final, NamedTuple

from cordwood.value_class import dataclass

NO_LEADER: Final = -1


class Place(NamedTuple):
    """A partition, by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerState(StrEnum):
    """What a broker can be for the controllers.

    FENCED     it is registered, but it has stopped, or has not caught up yet
    MISSING    it has replicas, but is not registered

    A broker in a controlled shutdown is alive until it has given its leaderships away. No request
    of Kafka's protocol tells it apart.
    """

    ALIVE = "alive"
    FENCED = "fenced"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPicture:
    """One broker. `kind` is cordwood or kafka; None if it did not tell."""

    node_id: int
    host: str = ""
    port: int = -1
    rack: str | None = None
    state: BrokerState = BrokerState.ALIVE
    kind: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.state is BrokerState.ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPicture:
    """One partition. While it moves, `replicas` has those that are added and those that leave."""

    place: Place
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_in_sync: int | None = None

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when nothing moves any more."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is behind that should not be. One that is being added may be."""
        return len(set(self.replicas) - set(self.adding) - set(self.in_sync)) > 0

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused. A partition with fewer replicas needs all that it has."""
        if self.min_in_sync is None:
            return False
        return len(self.in_sync) < min(self.min_in_sync, len(self.target))

    @property
    def preferred_leader(self) -> int:
        return self.target[0] if self.target else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_leader


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMember:
    """A controller that votes, or a node that only follows the metadata log.

    The times are of the leader's clock; -1: never, or not told.
    """

    node_id: int
    log_end: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumPicture:
    """The controllers, as the active one describes them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...] = ()

    @property
    def leader(self) -> QuorumMember | None:
        return next((each for each in self.voters if each.node_id == self.leader_id), None)

    def lag(self, member: QuorumMember) -> int:
        """How many records of the metadata log it does not have yet."""
        leader = self.leader
        return 0 if leader is None else max(leader.log_end - member.log_end, 0)

    def lag_ms(self, member: QuorumMember) -> int | None:
        """How long ago it had everything; None if nobody knows."""
        leader = self.leader
        if leader is None or leader.last_caught_up_ms < 0 or member.last_caught_up_ms < 0:
            return None
        return max(leader.last_caught_up_ms - member.last_caught_up_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    """Everything at once. `quorum` is None if there are no controllers, or they did not answer."""

    cluster_id: str
    brokers: tuple[BrokerPicture, ...]
    partitions: tuple[PartitionPicture, ...]
    quorum: QuorumPicture | None = None
    quorum_problem: str | None = None

    def broker(self, node_id: int) -> BrokerPicture | None:
        return next((each for each in self.brokers if each.node_id == node_id), None)

    @property
    def alive(self) -> tuple[BrokerPicture, ...]:
        return tuple(broker for broker in self.brokers if broker.is_alive)


def with_missing(picture: ClusterPicture) -> tuple[BrokerPicture, ...]:
    """The brokers, and those that have replicas without being registered."""
    known = {broker.node_id for broker in picture.brokers}
    missing = {
        node_id
        for partition in picture.partitions
        for node_id in partition.replicas
        if node_id not in known
    }
    return tuple(
        sorted(
            [
                *picture.brokers,
                *(BrokerPicture(node_id=each, state=BrokerState.MISSING) for each in missing),
            ],
            key=lambda broker: broker.node_id,
        )
    )
