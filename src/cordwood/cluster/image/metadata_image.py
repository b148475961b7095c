"""All that the controllers have decided, up to one offset of the metadata log.

An image is immutable. A change makes another image that shares what did not change.
"""

from collections.abc import Mapping
from uuid import UUID

from cordwood.cluster.image.access_image import (
    AccessRule,
    DelegationToken,
    QuotaEntity,
    ScramCredential,
    ScramUser,
)
from cordwood.cluster.image.broker_image import BrokerImage, ControllerImage
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.quantities import Offset
from cordwood.value_class import dataclass, field

ConfigResource = tuple[int, str]  # Kafka's number of the kind of resource, and its name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic and its partitions, by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """What the cluster is, after all records below `end` of the metadata log.

    epoch      of the last of these records: the term of the controller that wrote it
    configs    overrides by resource: (2, topic), (4, node id or "" for all brokers), ...
    features   finalised level of each feature, `metadata.version` among them; 0 is left out
    """

    end: Offset = Offset(0)
    epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[UUID, TopicImage] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    access_rules: Mapping[UUID, AccessRule] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram_users: Mapping[ScramUser, ScramCredential] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def partition(self, topic_id: UUID, number: int) -> PartitionImage | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def config_of(self, kind: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource."""
        return self.configs.get((kind, name), {})


NO_METADATA = MetadataImage()
