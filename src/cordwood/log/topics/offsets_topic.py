"""The internal topic that keeps the committed offsets of groups, as Kafka's brokers name it."""

from collections.abc import Mapping
from typing import Final

from cordwood.errors import NotLeaderError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.quantities import MIB, NO_LEADER_EPOCH
from cordwood.storage.disk.disk_errors import refused_when_full

OFFSETS_CONFIG: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 * MIB),
}


class OffsetsTopic:
    """The offsets topic of a store that is open for writing. Any thread may use it.

    is_of_cluster  the controllers create it, not this store
    """

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self.is_of_cluster = False

    def find(self) -> Topic[PartitionLog] | None:
        return self._registry.find(CONSUMER_OFFSETS_TOPIC)

    def ensure(
        self, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic[PartitionLog]:
        """The topic. If it does not exist, it is created with these settings.

        Otherwise no lock is taken: a commit need not wait for a long change of topics.
        """
        found = self.find()
        if found is not None:
            return found
        if self.is_of_cluster:
            raise NotLeaderError(CONSUMER_OFFSETS_TOPIC, epoch=NO_LEADER_EPOCH)
        with self._registry.changing, refused_when_full(CONSUMER_OFFSETS_TOPIC, "creating"):
            return self.find() or self._registry.create(
                CONSUMER_OFFSETS_TOPIC,
                partitions=partitions,
                config={**OFFSETS_CONFIG, **(config or {})},
            )
