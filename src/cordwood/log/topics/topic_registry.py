"""The topics of a store that is open for writing. A crash during a change leaves old or new.

One line of the catalog is one change, of one or many topics. The directories of partitions come
before it or follow it, and are not synced with it:

    change     before the line                     after it
    create     make the new directories            -
    grow       make the new directories            -
    delete     -                                   close the logs, rename the directories
    install    doom the id, rename the staged      -
               directories, sync them

The next opening removes new directories that have no line, makes those again that a power cut
took, and removes those of deleted topics; see `store_opening` and `docs/format.md`.
"""

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.errors import (
    ConfigError,
    CordwoodError,
    InvalidTopicNameError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.format.file_names import (
    INTERNAL_TOPICS,
    check_topic_name,
    metric_name,
    partition_directory_name,
)
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts, known_key
from cordwood.log.topics.catalog_files import KeptCatalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.incoming_topic import IncomingTopic
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.store_share import StoreShare
from cordwood.log.topics.topic import Topic, visible_names
from cordwood.log.topics.topic_catalog import CatalogChange, TopicEntry
from cordwood.storage.disk.disk_errors import refused_when_full
from cordwood.storage.files import FileSystem
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)

_PARTITIONS_MAX: Final = 10_000  # per topic; each costs a directory and several files


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that is to be created. `config` maps Kafka's keys to values."""

    name: str
    partitions: int = 1
    config: Mapping[str, object] = field(default_factory=dict)
    topic_id: uuid.UUID | None = None  # None: a new one


def _here(entry: TopicEntry, numbers: range) -> list[int]:
    return [number for number in numbers if entry.is_here(number)]


class TopicRegistry:
    """The topics by name. Any thread may use it; changes take turns.

    changing  the lock of every change; hold it to keep topics from changing
    defaults  the configuration of a topic for which nothing was set
    """

    def __init__(
        self,
        topics: Mapping[str, Topic[PartitionLog]],
        *,
        fs: FileSystem,
        directories: DataDirectories,
        catalog: KeptCatalog,
        opener: PartitionOpener,
        defaults: TopicConfig,
        lifetime: Lifetime,
        share: StoreShare | None = None,
    ) -> None:
        """With a `share`, other processes own the other partitions: nothing of them is here."""
        self._share = share
        self.changing = threading.RLock()
        self.defaults = defaults
        self._topics = dict(topics)
        self._metric_names = {metric_name(name): name for name in topics}
        self._unsynced_deletions: set[uuid.UUID] = set()
        self._fs = fs
        self._directories = directories
        self._catalog = catalog
        self._opener = opener
        self._lifetime = lifetime

    # --- looking -----------------------------------------------------------------------------

    def names(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        self._lifetime.check_open()
        return visible_names(self._topics, include_internal=include_internal)

    def get(self, name: str) -> Topic[PartitionLog]:
        """The topic of that name. Raises `UnknownTopicError`."""
        self._lifetime.check_open()
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(name) from None

    def find(self, name: str) -> Topic[PartitionLog] | None:
        """The topic of that name, or None."""
        return self._topics.get(name)

    def id_of(self, name: str) -> uuid.UUID | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    def names_by_id(self) -> dict[uuid.UUID, str]:
        """The names of all topics by their ids, including internal topics."""
        return {topic.topic_id: name for name, topic in list(self._topics.items())}

    def entries(self) -> Mapping[str, TopicEntry]:
        """What the catalog says of all topics. A change replaces it."""
        return self._catalog.topics

    def begin(self, name: str, topic_id: uuid.UUID, number: int) -> None:
        """Another process of this node is about to acknowledge a partition's first records.

        Durable on return. Of a topic that was deleted meanwhile, nothing is noted.
        """
        entry = self._catalog.topics.get(name)
        if entry is not None and entry.topic_id == topic_id and number < entry.partitions:
            self._catalog.begin(entry, number)

    def overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, with their values as text."""
        entry = self._catalog.topics.get(name)
        if entry is None:
            raise UnknownTopicError(name)
        return dict(entry.config)

    def is_adopted(self, name: str) -> bool:
        """Whether another broker wrote the topic before it was ours."""
        entry = self._catalog.topics.get(name)
        return entry is not None and entry.is_adopted

    def log(self, name: str, partition: int) -> PartitionLog | None:
        """The log of a partition; None if there is none. Raises `StorageError` if it is offline."""
        topic = self._topics.get(name)
        if topic is None or not topic.is_here(partition):
            return None
        return topic.partition(partition)

    # --- checking ----------------------------------------------------------------------------

    def check_new(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> TopicConfig:
        """Raise what `create` would raise. Return the configuration the topic would have."""
        self._lifetime.check_open()
        check_topic_name(name)
        if name in self._topics:
            raise TopicExistsError(name)
        other = self._metric_names.get(metric_name(name))
        if other is not None:
            raise InvalidTopicNameError(name, f"collides with {other!r}: '.' and '_' are alike")
        self.check_partition_count(partitions)
        return TopicConfig.parse(config or {}, defaults=self.defaults)

    def check_config(self, name: str, config: Mapping[str, object | None]) -> TopicConfig:
        """Raise what `alter` would raise. Return the configuration the topic would have."""
        with self.changing:
            self.get(name)
            return self._opener.config_of(self._altered(self._catalog.topics[name], config))

    def check_partition_count(self, partitions: int) -> None:
        """Raise `ConfigError` unless a topic may have that many partitions."""
        if not 1 <= partitions <= _PARTITIONS_MAX:
            raise ConfigError("partitions", partitions, f"must be 1 to {_PARTITIONS_MAX}")

    # --- creating ----------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Topic[PartitionLog]:
        """Create one topic, with that id if one is given. See `create_all`."""
        wanted = NewTopic(name=name, partitions=partitions, config=config or {}, topic_id=topic_id)
        [created] = self.create_all([wanted])
        if isinstance(created, Exception):
            raise created
        return created

    def create_all(
        self, wanted: Sequence[NewTopic]
    ) -> list[Topic[PartitionLog] | CordwoodError | OSError]:
        """Create topics. For each, in order, the topic or why it was refused.

        Those that were not refused are durable on return, all of them by one sync.
        """
        with self.changing:
            made: dict[str, tuple[TopicEntry, TopicConfig]] = {}
            refused: dict[int, CordwoodError | OSError] = {}
            for index, topic in enumerate(wanted):
                try:
                    with refused_when_full(f"topic {topic.name!r}", "creating"):
                        made[topic.name] = self._make(topic, made)
                except (CordwoodError, OSError) as error:
                    refused[index] = error
            try:
                if made:
                    with refused_when_full(f"topics {', '.join(made)}", "creating"):
                        self._catalog.apply(CatalogChange(put=tuple(e for e, _ in made.values())))
            except (CordwoodError, OSError) as error:
                for entry, _ in made.values():
                    self._opener.unmake(entry.name, range(entry.partitions))
                error.add_note(f"while creating {', '.join(made)}, which was undone")
                refused |= {i: error for i in range(len(wanted)) if i not in refused}
                made = {}
            topics = {name: self.add(entry, config) for name, (entry, config) in made.items()}
            return [
                refused[index] if index in refused else topics[topic.name]
                for index, topic in enumerate(wanted)
            ]

    def _make(
        self, topic: NewTopic, made: Mapping[str, tuple[TopicEntry, TopicConfig]]
    ) -> tuple[TopicEntry, TopicConfig]:
        """Check a topic against all others and make its partitions. Nothing is durable."""
        config = self.check_new(topic.name, partitions=topic.partitions, config=topic.config)
        if topic.name in made:
            raise TopicExistsError(topic.name)
        for other in made:
            if metric_name(other) == metric_name(topic.name):
                reason = f"collides with {other!r}: '.' and '_' are alike"
                raise InvalidTopicNameError(topic.name, reason)
        entry = TopicEntry(
            name=topic.name,
            topic_id=topic.topic_id or new_topic_id(),
            partitions=topic.partitions,
            config=canonical_texts(topic.config),
            absent=self._absent(topic.name, topic.partitions),
        )
        self.make_partitions(entry, _here(entry, range(topic.partitions)))
        return entry, config

    def _absent(self, name: str, partitions: int) -> int:
        return 0 if self._share is None else self._share.absent(name, partitions)

    def make_partitions(self, entry: TopicEntry, numbers: Sequence[int]) -> None:
        """Make directories, or none of them. Not durable. Holds `changing`."""
        try:
            for number in numbers:
                self._opener.make(entry, number)
        except BaseException as error:
            error.add_note(f"while making partitions of topic {entry.name!r}, which was undone")
            self._opener.unmake(entry.name, numbers)
            raise

    def add(
        self,
        entry: TopicEntry,
        config: TopicConfig,
        logs: Mapping[int, PartitionLog] | None = None,
    ) -> Topic[PartitionLog]:
        """Let everyone find a topic whose entry is in the catalog. Holds `changing`."""
        opened = logs or {}
        topic = Topic(
            entry.name,
            entry.topic_id,
            config,
            opened,
            partition_count=entry.partitions,
            offline=self._directories.why_offline,
            unopened=[n for n in range(entry.partitions) if n not in opened and entry.is_here(n)],
            open_log=self._opener.open_new,
            absent=[n for n in range(entry.partitions) if not entry.is_here(n)],
        )
        self._topics[entry.name] = topic
        self._metric_names[metric_name(entry.name)] = entry.name
        return topic

    # --- altering ----------------------------------------------------------------------------

    def alter(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[PartitionLog]:
        """Set configuration keys (None: back to the default), or add partitions."""
        with self.changing:
            topic = self.get(name)
            entry = self._catalog.topics[name]
            if config:
                entry = self._altered(entry, config)
            added = range(0)
            if partitions is not None:
                added = self._added(entry, partitions)
                absent = entry.absent | self._absent(name, partitions)
                entry = replace(entry, partitions=partitions, absent=absent)
            self.make_partitions(entry, _here(entry, added))
            try:
                self._catalog.apply(CatalogChange(put=(entry,)))
            except OSError:
                self._opener.unmake(name, added)
                raise
            if added and entry.absent:
                topic.host(entry.partitions, _here(entry, range(entry.partitions)))
            elif added:
                topic.add_partitions(added)
            topic.reconfigure(self._opener.config_of(entry))
            if config:
                for log in topic.opened_partitions:
                    self._opener.attach_archive(log, entry)
            return topic

    def _altered(self, entry: TopicEntry, config: Mapping[str, object | None]) -> TopicEntry:
        texts: dict[str, object] = dict(entry.config)
        for key, value in config.items():
            if value is None:
                known_key(key, value)
                texts.pop(key, None)
            else:
                texts[key] = value
        TopicConfig.parse(texts, defaults=self.defaults)  # each key, and all together
        return replace(entry, config=canonical_texts(texts))

    def _added(self, entry: TopicEntry, partitions: int) -> range:
        """The numbers of the partitions that a topic gets."""
        if entry.name in INTERNAL_TOPICS:
            raise ConfigError("partitions", partitions, f"of {entry.name} cannot be changed")
        if partitions < entry.partitions:
            rule = f"must be at least {entry.partitions}, the present number"
            raise ConfigError("partitions", partitions, rule)
        if partitions > entry.partitions:
            self.check_partition_count(partitions)
        return range(entry.partitions, partitions)

    def check_defaults(self, defaults: TopicConfig) -> dict[str, TopicConfig]:
        """The configuration of each topic with other defaults. Raises `ConfigError`."""
        with self.changing:
            return {
                name: TopicConfig.parse(self.overrides(name), defaults=defaults)
                for name in self._topics
            }

    def set_defaults(self, defaults: TopicConfig) -> None:
        """Use other defaults from here on, for new topics and for those that exist.

        Raises `ConfigError`, and changes nothing, if a topic does not allow it.
        """
        with self.changing:
            configs = self.check_defaults(defaults)
            self.defaults = defaults
            self._opener.set_defaults(defaults)
            for name, config in configs.items():
                if config != self._topics[name].config:
                    self._topics[name].reconfigure(config)

    # --- deleting ----------------------------------------------------------------------------

    def delete(self, names: Sequence[str]) -> None:
        """Remove topics, all of them by one sync. Their names are free at once.

        Their files stay for `file.delete.delay.ms`, so that readers under way can finish.
        """
        with self.changing:
            topics = [self.get(name) for name in names]
            self._catalog.apply(CatalogChange(delete=tuple(names)))
            for topic in topics:
                del self._topics[topic.name]
                self._metric_names.pop(metric_name(topic.name), None)
                topic.end()
                self._remove(topic)

    def set_aside(self, name: str) -> list[str]:
        """Forget a topic, and keep its files under other names, which are returned. Durable.

        The files come first: the catalog would have the next start remove what it has forgotten.
        """
        with self.changing:
            topic = self.get(name)
            kept: list[str] = []
            for directory in self._directories:
                names = [*directory.logs, *directory.unopened, *directory.offline]
                for place in [place for place in names if place[0] == name]:
                    log = directory.logs.pop(place, None)
                    if log is not None:
                        log.close(is_orderly=False)
                    with contextlib.suppress(FileNotFoundError):
                        kept.append(directory.set_aside(place))
            self._catalog.apply(CatalogChange(delete=(name,)))
            del self._topics[name]
            self._metric_names.pop(metric_name(name), None)
            topic.end()
            self._unsynced_deletions.add(topic.topic_id)
            return kept

    def _remove(self, topic: Topic[PartitionLog]) -> None:
        """Close the logs of a deleted topic and take its directories away.

        What cannot be taken away now, the next start removes: the catalog knows its id.
        """
        is_removed = True
        for directory in self._directories:
            names = [*directory.logs, *directory.unopened, *directory.offline]
            for name in [name for name in names if name[0] == topic.name]:
                log = directory.logs.pop(name, None)
                try:
                    if log is not None:
                        log.close(is_orderly=False)
                    directory.remove(name, topic.config.file_delete_delay_ms)
                except OSError as error:
                    is_removed = False
                    logger.warning("could not remove %s-%d yet: %s", *name, error)
        if is_removed:
            self._unsynced_deletions.add(topic.topic_id)

    def sync(self) -> None:
        """Make the second copies of the catalog durable, and forget what is deleted for good."""
        with self.changing:
            if self._unsynced_deletions:
                for directory in self._directories:
                    self._fs.sync_directory(directory.path)
                self._catalog.apply(CatalogChange(forget=tuple(self._unsynced_deletions)))
                self._unsynced_deletions.clear()
            self._catalog.sync_copies()

    def end(self) -> None:
        """The store closes: no more partitions are opened. Holds `changing`."""
        for topic in self._topics.values():
            topic.end()

    # --- installing --------------------------------------------------------------------------

    def stage(self, name: str, topic_id: uuid.UUID, partitions: int) -> IncomingTopic:
        """Make directories for a topic's files. `install` turns them into a topic."""
        self.check_new(name, partitions=partitions)
        paths = self._directories.paths
        return IncomingTopic.create(self._fs, paths, name, topic_id, partitions)

    def install(self, incoming: IncomingTopic, config: Mapping[str, object]) -> Topic[PartitionLog]:
        """Turn staged files into a topic. A crash leaves the whole topic or nothing of it."""
        with self.changing:
            name = incoming.topic
            count = len(incoming.partitions)
            parsed = self.check_new(name, partitions=count, config=config)
            entry = TopicEntry(
                name=name,
                topic_id=incoming.topic_id,
                partitions=count,
                config=canonical_texts(config),
                begun=(1 << count) - 1,
            )
            self._catalog.apply(CatalogChange(doom={entry.topic_id: name}))
            try:
                incoming.move_in(self._fs)
                logs = self._open_incoming(incoming, entry)
                self._catalog.apply(CatalogChange(put=(entry,)))
            except BaseException as error:
                error.add_note(f"while installing topic {name!r}, which was undone")
                self._take_back(incoming)
                raise
            return self.add(entry, parsed, logs)

    def _take_back(self, incoming: IncomingTopic) -> None:
        """Remove the directories of a topic that could not be installed."""
        try:
            for number in range(len(incoming.partitions)):
                name = (incoming.topic, number)
                for directory in self._directories:
                    log = directory.logs.pop(name, None)
                    if log is not None:
                        log.close(is_orderly=False)
                    path = os.path.join(directory.path, partition_directory_name(*name))
                    if self._fs.exists(path):
                        self._fs.remove_tree(path)
        except OSError as error:
            logger.warning("topic %s is removed at the next start: %s", incoming.topic, error)
        else:
            self._unsynced_deletions.add(incoming.topic_id)

    def _open_incoming(self, incoming: IncomingTopic, entry: TopicEntry) -> dict[int, PartitionLog]:
        logs: dict[int, PartitionLog] = {}
        for number, partition in enumerate(incoming.partitions):
            place = (entry.name, number)
            directory = next(d for d in self._directories if d.path == partition.data_dir)
            directory.forget(place)
            directory.checkpoints.log_starts[place] = partition.start
            directory.checkpoints.recovery_points[place] = partition.end
            if partition.allows_gaps:
                directory.checkpoints.cleaned[place] = partition.start
            logs[number] = self._opener.open(directory, entry, number)
            # The segments stay as they came; appends go into a new one.
            logs[number].roll()
            # The markers of some transactions may lie behind the end of these files.
            logs[number].batches.abort_open_transactions()
        for directory in self._directories:
            directory.checkpoint()
            directory.save_log_starts()
            directory.save_cleaned()
        return logs
