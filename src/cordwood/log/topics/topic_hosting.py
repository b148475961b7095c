"""The partitions of a cluster's topics that this broker has, as the controllers decide.

One line of the catalog is one change, as in `topic_registry`. What power may interrupt:

    new partition       directory, then the line. A directory without a line is removed
    moved away          the line, then the directory. What is left over is removed
    another topic of    the old one is deleted, then the new one is made
    the same name
"""

import logging
import uuid
from collections.abc import Collection, Mapping

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts
from cordwood.log.topics.catalog_files import KeptCatalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.replica_swap import ReplicaSwap
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_catalog import CatalogChange, TopicEntry
from cordwood.log.topics.topic_registry import TopicRegistry
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTopic:
    """A topic of a cluster, of which this broker has the partitions `here`."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    here: frozenset[int]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def absent(self) -> int:
        """The bits of the partitions that are elsewhere."""
        bits = (1 << self.partitions) - 1
        for number in self.here:
            bits &= ~(1 << number)
        return bits


class TopicHosting:
    """Makes the topics of a store what the controllers have decided. Any thread may use it."""

    def __init__(
        self,
        registry: TopicRegistry,
        *,
        directories: DataDirectories,
        catalog: KeptCatalog,
        opener: PartitionOpener,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._catalog = catalog
        self._opener = opener
        self.swaps = ReplicaSwap(registry, directories=directories, catalog=catalog, opener=opener)

    def host(self, wanted: HostedTopic) -> Topic[PartitionLog]:
        """Have exactly the partitions of `wanted` here.

        Makes what is new and removes what was moved away. An earlier topic of that name is
        deleted. Durable on return, except for new directories, which have no records. Partitions
        that are removed must have no role any more.
        """
        registry = self._registry
        with registry.changing:
            topic = registry.find(wanted.name)
            if topic is not None and topic.topic_id != wanted.topic_id:
                registry.delete([wanted.name])
                topic = None
            entry = TopicEntry(
                name=wanted.name,
                topic_id=wanted.topic_id,
                partitions=wanted.partitions,
                config=canonical_texts(wanted.config),
                absent=wanted.absent,
            )
            config = self._opener.config_of(entry)
            if topic is None:
                return self._host_new(entry, config)
            self._change(topic, entry, wanted.here)
            if topic.config != config:
                topic.reconfigure(config)
            return topic

    def missing(self) -> list[tuple[str, int]]:
        """Partitions that had records and are not open: offline, or their directory is gone."""
        return [
            (entry.name, number)
            for entry in self._catalog.topics.values()
            for number in range(entry.partitions)
            if entry.is_here(number)
            and entry.has_begun(number)
            and not any((entry.name, number) in directory.logs for directory in self._directories)
        ]

    def is_gone(self, name: str, number: int) -> bool:
        """Whether every directory can be used and none has the partition: it was replaced."""
        place = (name, number)
        return self._directories.are_all_usable and not any(
            place in directory.logs or place in directory.unopened or place in directory.offline
            for directory in self._directories
        )

    def host_again(self, wanted: HostedTopic, number: int) -> Topic[PartitionLog]:
        """Make a partition again that is gone, without records. For one that others have."""
        logger.warning("%s-%d is gone; it is made again, to be filled", wanted.name, number)
        with self._registry.changing:
            self.host(replace(wanted, here=wanted.here - {number}))
            return self.host(wanted)

    def unhost(self, name: str, topic_id: uuid.UUID) -> None:
        """Have nothing of a topic here: it was deleted, or all its partitions are elsewhere."""
        registry = self._registry
        with registry.changing:
            topic = registry.find(name)
            if topic is not None and topic.topic_id == topic_id:
                registry.delete([name])

    def set_aside(self, name: str, topic_id: uuid.UUID) -> list[str]:
        """Have nothing of a topic here, but keep its files; the paths that they have now."""
        registry = self._registry
        with registry.changing:
            topic = registry.find(name)
            if topic is None or topic.topic_id != topic_id:
                return []
            return registry.set_aside(name)

    def _host_new(self, entry: TopicEntry, config: TopicConfig) -> Topic[PartitionLog]:
        here = [n for n in range(entry.partitions) if entry.is_here(n)]
        self._registry.make_partitions(entry, here)
        self._catalog.apply(CatalogChange(put=(entry,)))
        return self._registry.add(entry, config)

    def _change(self, topic: Topic[PartitionLog], entry: TopicEntry, here: Collection[int]) -> None:
        old = self._catalog.topics[entry.name]
        if (old.partitions, old.absent, old.config) == (
            entry.partitions,
            entry.absent,
            entry.config,
        ):
            return
        before = {n for n in range(old.partitions) if old.is_here(n)}
        self._registry.make_partitions(entry, [n for n in here if n not in before])
        self._catalog.apply(CatalogChange(put=(replace(entry, begun=old.begun),)))
        topic.host(entry.partitions, here)
        self._remove(topic, before.difference(here))

    def _remove(self, topic: Topic[PartitionLog], numbers: Collection[int]) -> None:
        """Take the directories of partitions away. What cannot be, the next start removes."""
        for directory in self._directories:
            for name in [*directory.logs, *directory.unopened, *directory.offline]:
                if name[0] != topic.name or name[1] not in numbers:
                    continue
                log = directory.logs.pop(name, None)
                try:
                    if log is not None:
                        log.close(is_orderly=False)
                    directory.remove(name, topic.config.file_delete_delay_ms)
                except OSError as error:
                    logger.warning("could not remove %s-%d yet: %s", *name, error)
