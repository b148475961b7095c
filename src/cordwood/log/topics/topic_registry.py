"""The topics of a store that is open for writing. A crash during a change leaves old or new.

    change     catalog says       then                            then catalog says
    create     creating           make and open the partitions    live
    grow       creating           make and open the new ones      live
    delete     deleting           close and rename the partitions nothing
    install    deleting           rename the staged directories   live

The next opening finishes a topic that is `creating` and removes one that is `deleting`; see
`docs/format.md`. A change that fails while the process lives on is undone at once.
"""

import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cordwood.errors import (
    ConfigError,
    InvalidTopicNameError,
    TopicExistsError,
    UnknownTopicError,
)
from cordwood.format.file_names import (
    INTERNAL_TOPICS,
    check_topic_name,
    deleted_directory_name,
    topic_names_collide,
)
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts, known_key
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.directory_listing import partition_directories
from cordwood.log.topics.incoming_topic import IncomingTopic
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.topic import Topic, visible_names
from cordwood.log.topics.topic_catalog import (
    CREATING,
    DELETING,
    LIVE,
    CatalogKeeper,
    TopicEntry,
)
from cordwood.storage.files import FileSystem

logger = logging.getLogger(__name__)

_PARTITIONS_MAX: Final = 10_000  # per topic; each costs a directory and several files


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
        catalog: CatalogKeeper,
        opener: PartitionOpener,
        defaults: TopicConfig,
        lifetime: Lifetime,
    ) -> None:
        self.changing = threading.RLock()
        self.defaults = defaults
        self._topics = dict(topics)
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

    def overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, with their values as text."""
        entry = self._catalog.topics.get(name)
        if entry is None:
            raise UnknownTopicError(name)
        return dict(entry.config)

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
        for other in self._topics:
            if topic_names_collide(name, other):
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
        """Create a topic, with that id if one is given. See `Store.create_topic`."""
        with self.changing:
            parsed = self.check_new(name, partitions=partitions, config=config)
            entry = TopicEntry(
                name=name,
                topic_id=topic_id or new_topic_id(),
                partitions=partitions,
                config=canonical_texts(config or {}),
                state=CREATING,
            )
            try:
                logs = self._add_partitions(entry, range(partitions))
            except OSError as error:
                error.add_note(f"while creating topic {name!r}, which was undone")
                self._undo(name, None)
                raise
            return self._add(entry, parsed, logs)

    def _add_partitions(self, entry: TopicEntry, numbers: range) -> dict[int, PartitionLog]:
        """Make and open partitions of a topic that is `creating`; it is live on return."""
        self._clear_leftovers(entry.name, from_number=numbers.start)
        self._catalog.put(entry)
        logs: dict[int, PartitionLog] = {}
        for number in numbers:
            directory = self._opener.make_directory(entry, number)
            logs[number] = self._opener.open(directory, entry, number)
        self._catalog.put(entry.with_state(LIVE))
        return logs

    def _add(
        self, entry: TopicEntry, config: TopicConfig, logs: Mapping[int, PartitionLog]
    ) -> Topic[PartitionLog]:
        topic = Topic(
            entry.name,
            entry.topic_id,
            config,
            logs,
            partition_count=entry.partitions,
            offline=self._directories.why_offline,
        )
        self._topics[entry.name] = topic
        return topic

    def _undo(self, name: str, entry: TopicEntry | None) -> None:
        """Put a topic back to `entry`, or remove it: the next start must not finish the change."""
        try:
            self._clear_leftovers(name, from_number=0 if entry is None else entry.partitions)
            if entry is None:
                self._catalog.remove(name)
            else:
                self._catalog.put(entry)
        except OSError as error:
            logger.error("a failed change of topic %s could not be undone: %s", name, error)

    def _clear_leftovers(self, name: str, *, from_number: int) -> None:
        """Remove partitions that belong to no topic: a failed change may have left some.

        Called before a topic gets partitions of these numbers. Otherwise it would take over
        the records in them.
        """
        for directory in self._directories:
            for place in [p for p in directory.logs if p[0] == name and p[1] >= from_number]:
                directory.logs.pop(place).close(is_orderly=False)
            found = partition_directories(self._fs, directory.path, name)
            leftovers = [path for number, path in found.items() if number >= from_number]
            for path in leftovers:
                self._fs.remove_tree(path)
            if leftovers:
                self._fs.sync_directory(directory.path)
                directory.save_after_removal()

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
            # A change that failed and could not be undone has left its wish in the catalog.
            entry = replace(
                self._catalog.topics[name], partitions=topic.partition_count, state=LIVE
            )
            if config:
                entry = self._altered(entry, config)
            if partitions is not None:
                entry = self._grow(topic, entry, partitions)
            self._catalog.put(entry)
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

    def _grow(self, topic: Topic[PartitionLog], entry: TopicEntry, partitions: int) -> TopicEntry:
        if entry.name in INTERNAL_TOPICS:
            raise ConfigError("partitions", partitions, f"of {entry.name} cannot be changed")
        if partitions < entry.partitions:
            rule = f"must be at least {entry.partitions}, the present number"
            raise ConfigError("partitions", partitions, rule)
        if partitions == entry.partitions:
            return entry
        self.check_partition_count(partitions)
        grown = replace(entry, partitions=partitions, state=CREATING)
        try:
            logs = self._add_partitions(grown, range(entry.partitions, partitions))
        except OSError as error:
            error.add_note(f"while adding partitions to {entry.name!r}, which was undone")
            self._undo(entry.name, entry)
            raise
        for number, log in logs.items():
            topic.add_log(number, log)
        return grown.with_state(LIVE)

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

    def delete(self, name: str) -> None:
        """Remove a topic. Its name is free at once; its files are unlinked later.

        They stay for `file.delete.delay.ms`, so that readers under way can finish.
        """
        with self.changing:
            topic = self.get(name)
            self._catalog.put(self._catalog.topics[name].with_state(DELETING))
            del self._topics[name]
            for directory in self._directories:
                for place in [p for p in directory.logs if p[0] == name]:
                    log = directory.logs.pop(place)
                    log.close()
                    gone = os.path.join(
                        directory.path, deleted_directory_name(*place, uuid.uuid4().hex)
                    )
                    self._fs.rename(log.directory, gone)
                    directory.delete_later([gone], topic.config.file_delete_delay_ms)
                self._fs.sync_directory(directory.path)
                directory.save_after_removal()
            self._clear_leftovers(name, from_number=0)
            self._catalog.remove(name)

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
            parsed = self.check_new(name, partitions=len(incoming.partitions), config=config)
            entry = TopicEntry(
                name=name,
                topic_id=incoming.topic_id,
                partitions=len(incoming.partitions),
                config=canonical_texts(config),
                state=DELETING,
            )
            self._clear_leftovers(name, from_number=0)
            self._catalog.put(entry)
            try:
                incoming.move_in(self._fs)
                logs = self._open_incoming(incoming, entry)
                self._catalog.put(entry.with_state(LIVE))
            except BaseException as error:
                error.add_note(f"while installing topic {name!r}, which was undone")
                self._undo(name, None)
                raise
            return self._add(entry, parsed, logs)

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
