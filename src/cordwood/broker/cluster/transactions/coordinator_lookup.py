"""Which broker leads a partition, and which one coordinates a transaction, by the newest image."""

from collections.abc import Callable

from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.cluster.image.partition_image import NO_LEADER
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.format.transaction_records import TopicPartition, transaction_partition


class CoordinatorLookup:
    """Any thread may ask."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def is_known(self, place: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._image().topic(place[0])
        return topic is not None and place[1] in topic.partitions

    def leader_of(self, place: TopicPartition) -> int | None:
        """The broker that leads a partition; None: none does now, or there is no such partition."""
        topic = self._image().topic(place[0])
        partition = None if topic is None else topic.partitions.get(place[1])
        if partition is None or partition.leader == NO_LEADER:
            return None
        return partition.leader

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates an id; None: none does now."""
        topic = self._image().topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        number = transaction_partition(transactional_id, len(topic.partitions))
        return self.leader_of((TRANSACTION_STATE_TOPIC, number))
