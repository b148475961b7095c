"""The cluster as its clients see it: brokers, topics, the leader of each partition, coordinators.

A broker that is alone is the whole cluster (`SoleBroker`). A member of a cluster answers from what
the controllers have decided (`broker.cluster.image_view`).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.cluster_identity import ClientListener, ClusterIdentity
from cordwood.broker.error_codes import ErrorCode
from cordwood.log.store.store import Store

_NO_LEADER: Final = -1


class BrokerAddress(NamedTuple):
    """A broker, and where the clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class RegisteredBroker(NamedTuple):
    """A broker, whether or not it is alive."""

    address: BrokerAddress
    is_fenced: bool = False


class TopicView(NamedTuple):
    """A topic of the cluster, wherever its partitions are."""

    name: str
    topic_id: UUID
    partition_count: int


class PartitionView(NamedTuple):
    """One partition of a topic, and why it cannot be used."""

    number: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int] = ()
    eligible: Sequence[int] = ()
    last_known: Sequence[int] = ()
    error: ErrorCode = ErrorCode.none


class CoordinatorKind(IntEnum):
    """What a coordinator is looked up for, in the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class ClusterView(Protocol):
    """What clients are told about the cluster. Any thread may ask; nothing waits for a disk."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def controller_id(self) -> int:
        """The broker that takes requests for the controllers."""
        ...

    def brokers(self, here: ClientListener) -> list[BrokerAddress]:
        """The brokers that are alive, as the clients of the listener `here` reach them."""
        ...

    def registered(self, here: ClientListener) -> list[RegisteredBroker]:
        """All brokers, also those that are not alive."""
        ...

    def topic_names(self) -> list[str]:
        """All topics in order, including internal ones."""
        ...

    def topic(self, wanted: str | UUID) -> TopicView | None:
        """The topic of that name or id; None if there is none."""
        ...

    def partitions(self, topic: TopicView, numbers: range) -> list[PartitionView]:
        """Some partitions of a topic. Those that are gone meanwhile are left out."""
        ...

    def coordinator(
        self, kind: CoordinatorKind, key: str, here: ClientListener
    ) -> BrokerAddress | ErrorCode:
        """The broker that coordinates a group or a transactional id, or why there is none."""
        ...


class SoleBroker:
    """One broker that is the whole cluster: it leads, controls and coordinates everything."""

    def __init__(self, identity: ClusterIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store
        self._names: dict[UUID, str] = {}

    @property
    def node_id(self) -> int:
        return self._identity.node_id

    @property
    def cluster_id(self) -> str:
        return self._identity.cluster_id

    @property
    def controller_id(self) -> int:
        return self._identity.node_id

    def brokers(self, here: ClientListener) -> list[BrokerAddress]:
        return [self._address(here)]

    def registered(self, here: ClientListener) -> list[RegisteredBroker]:
        return [RegisteredBroker(self._address(here))]

    def topic_names(self) -> list[str]:
        return self._store.topics(include_internal=True)

    def topic(self, wanted: str | UUID) -> TopicView | None:
        registry = self._store.registry
        if isinstance(wanted, str):
            topic = registry.find(wanted)
        else:
            topic = registry.find(self._names.get(wanted, ""))
            if topic is None or topic.topic_id != wanted:
                self._names = registry.names_by_id()
                topic = registry.find(self._names.get(wanted, ""))
        if topic is None:
            return None
        return TopicView(topic.name, topic.topic_id, topic.partition_count)

    def partitions(self, topic: TopicView, numbers: range) -> list[PartitionView]:
        """It leads all partitions, except those whose files cannot be read.

        It also leads a partition whose disk failed: what can be read is served.
        """
        found = self._store.registry.find(topic.name)
        if found is None:
            return []
        node = self._identity.node_id
        partitions: list[PartitionView] = []
        for number in numbers:
            if found.has_partition(number):
                log = found.opened(number)
                epoch = 0 if log is None else int(log.epochs.current)
                if log is not None and log.is_failed:
                    view = PartitionView(
                        number, node, epoch, (node,), (), (node,),
                        error=ErrorCode.kafka_storage_error,
                    )  # fmt: skip
                else:
                    view = PartitionView(number, node, epoch, (node,), (node,))
            else:
                view = PartitionView(
                    number, _NO_LEADER, _NO_LEADER, (node,), (), (node,),
                    error=ErrorCode.leader_not_available,
                )  # fmt: skip
            partitions.append(view)
        return partitions

    def coordinator(
        self, kind: CoordinatorKind, key: str, here: ClientListener
    ) -> BrokerAddress | ErrorCode:
        return self._address(here)

    def _address(self, here: ClientListener) -> BrokerAddress:
        me = self._identity
        return BrokerAddress(me.node_id, here.host, here.port, me.rack)
