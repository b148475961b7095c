"""The cluster as its clients see it, from what the controllers have decided."""

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.cluster_view import (
    BrokerAddress,
    CoordinatorKind,
    PartitionView,
    RegisteredBroker,
    TopicView,
)
from cordwood.cluster.image.broker_image import BrokerImage
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.image.partition_image import NO_LEADER, PartitionImage
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.format.groups.group_offsets import group_partition
from cordwood.protocol.error_code import ErrorCode

COORDINATOR_TOPICS: Final = {
    CoordinatorKind.GROUP: CONSUMER_OFFSETS_TOPIC,
    CoordinatorKind.TRANSACTION: TRANSACTION_STATE_TOPIC,
}


class ImageView:
    """Answers from the newest image. Any thread may ask.

    `want_topic` has an internal topic created, soon; it may be called often.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        image: Callable[[], MetadataImage],
        want_topic: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._image = image
        self._want_topic = want_topic

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def controller_id(self) -> int:
        """This broker: it relays what is for the controllers."""
        return self._node_id

    def brokers(self, here: ClientListener) -> list[BrokerAddress]:
        """The brokers that are not fenced; this one if all are.

        After the controllers were away, every broker is fenced for a moment. librdkafka forgets
        all brokers if none is named, and may never ask again.
        """
        image = self._image()
        found = (_address(broker, here) for broker in image.brokers.values())
        return [address for address in found if address is not None] or [
            BrokerAddress(self._node_id, here.host, here.port, None)
        ]

    def registered(self, here: ClientListener) -> list[RegisteredBroker]:
        found = ((broker, _place(broker, here)) for broker in self._image().brokers.values())
        return [
            RegisteredBroker(address, broker.is_fenced)
            for broker, address in found
            if address is not None
        ]

    def addresses(self, node_ids: Collection[int], here: ClientListener) -> list[BrokerAddress]:
        """Where the clients of the listener `here` reach these brokers."""
        image = self._image()
        found = (
            _address(image.brokers[node_id], here)
            for node_id in sorted(node_ids)
            if node_id in image.brokers
        )
        return [address for address in found if address is not None]

    def rack_of(self, node_id: int, here: ClientListener) -> str | None:
        """The rack of a broker that clients of the listener `here` can reach; None: not known."""
        broker = self._image().brokers.get(node_id)
        address = None if broker is None else _address(broker, here)
        return None if address is None else address.rack

    # --- topics ------------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        return sorted(self._image().topic_ids)

    def topic(self, wanted: str | UUID) -> TopicView | None:
        found = self._find(wanted)
        if found is None:
            return None
        return TopicView(found.name, found.topic_id, len(found.partitions))

    def partitions(self, topic: TopicView, numbers: range) -> list[PartitionView]:
        image = self._image()
        found = image.topics.get(topic.topic_id)
        if found is None:
            return []
        return [
            _partition_view(image, number, found.partitions[number])
            for number in numbers
            if number in found.partitions
        ]

    def name_of(self, topic_id: UUID) -> str | None:
        found = self._image().topics.get(topic_id)
        return None if found is None else found.name

    def leader_of(self, wanted: str | UUID, partition: int) -> tuple[int, int] | None:
        """The id and the epoch of the leader; None if there is none."""
        found = self._find(wanted)
        place = None if found is None else found.partitions.get(partition)
        if place is None or place.leader == NO_LEADER:
            return None
        return place.leader, place.leader_epoch

    def why_absent(self, wanted: str | UUID, partition: int) -> ErrorCode:
        """Why there is no log of that partition here."""
        found = self._find(wanted)
        if found is None:
            is_name = isinstance(wanted, str)
            return ErrorCode.unknown_topic_or_partition if is_name else ErrorCode.unknown_topic_id
        if partition not in found.partitions:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.not_leader_or_follower

    def _find(self, wanted: str | UUID) -> TopicImage | None:
        image = self._image()
        return image.topic(wanted) if isinstance(wanted, str) else image.topics.get(wanted)

    # --- coordinators ------------------------------------------------------------------------

    def coordinator(
        self, kind: CoordinatorKind, key: str, here: ClientListener
    ) -> BrokerAddress | ErrorCode:
        """The leader of the partition that has the records of the group or transactional id."""
        image = self._image()
        topic = image.topic(COORDINATOR_TOPICS[kind])
        if topic is None:
            self._want_topic(COORDINATOR_TOPICS[kind])
            return ErrorCode.coordinator_not_available
        partition = topic.partitions.get(group_partition(key, len(topic.partitions)))
        broker = None if partition is None else image.brokers.get(partition.leader)
        address = None if broker is None else _address(broker, here)
        return ErrorCode.coordinator_not_available if address is None else address


def _address(broker: BrokerImage, here: ClientListener) -> BrokerAddress | None:
    """Where a broker is reached by clients of a listener; None if it is fenced or lacks it."""
    return None if broker.is_fenced else _place(broker, here)


def _place(broker: BrokerImage, here: ClientListener) -> BrokerAddress | None:
    endpoint = broker.endpoint(here.name)
    if endpoint is None:
        return None
    return BrokerAddress(broker.node_id, endpoint.host, endpoint.port, broker.rack)


def _partition_view(image: MetadataImage, number: int, partition: PartitionImage) -> PartitionView:
    def is_alive(node_id: int) -> bool:
        broker = image.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    has_leader = partition.leader != NO_LEADER and is_alive(partition.leader)
    return PartitionView(
        number=number,
        leader=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        in_sync=partition.in_sync,
        offline=tuple(node for node in partition.replicas if not is_alive(node)),
        eligible=partition.eligible,
        last_known=partition.last_known,
        error=ErrorCode.none if has_leader else ErrorCode.leader_not_available,
    )
