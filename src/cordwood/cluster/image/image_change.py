"""What differs between two images, so that nobody has to compare 100,000 partitions."""

from uuid import UUID

from cordwood.cluster.image.access_image import QuotaEntity, ScramUser
from cordwood.cluster.image.metadata_image import ConfigResource, MetadataImage
from cordwood.value_class import dataclass

TopicPartition = tuple[UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChange:
    """Two images, and the names of what may differ. Values are in the images.

    is_whole      the new image was loaded from a snapshot: the sets below hold all that it and the
                  old one have, also what is equal in both
    topics        topics that were created, or have other partitions; deleted ones are not in it
    partitions    partitions that are new or were changed
    """

    old: MetadataImage
    new: MetadataImage
    is_whole: bool = False
    topics: frozenset[UUID] = frozenset()
    deleted_topics: frozenset[UUID] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    brokers: frozenset[int] = frozenset()
    controllers: frozenset[int] = frozenset()
    configs: frozenset[ConfigResource] = frozenset()
    features: frozenset[str] = frozenset()
    access_rules: frozenset[UUID] = frozenset()
    quotas: frozenset[QuotaEntity] = frozenset()
    scram_users: frozenset[ScramUser] = frozenset()
    tokens: frozenset[str] = frozenset()


def whole_change(old: MetadataImage, loaded: ImageChange) -> ImageChange:
    """The change from `old` to an image that was loaded from nothing."""
    new = loaded.new
    partitions = loaded.partitions
    if old.topics:
        partitions = partitions.union(
            (topic.topic_id, number)
            for topic in old.topics.values()
            if topic.topic_id in new.topics
            for number in topic.partitions
        )
    return ImageChange(
        old=old,
        new=new,
        is_whole=True,
        topics=frozenset(new.topics),
        deleted_topics=frozenset(old.topics.keys() - new.topics.keys()),
        partitions=partitions,
        brokers=frozenset(old.brokers.keys() | new.brokers.keys()),
        controllers=frozenset(old.controllers.keys() | new.controllers.keys()),
        configs=frozenset(old.configs.keys() | new.configs.keys()),
        features=frozenset(old.features.keys() | new.features.keys()),
        access_rules=frozenset(old.access_rules.keys() | new.access_rules.keys()),
        quotas=frozenset(old.quotas.keys() | new.quotas.keys()),
        scram_users=frozenset(old.scram_users.keys() | new.scram_users.keys()),
        tokens=frozenset(old.tokens.keys() | new.tokens.keys()),
    )
