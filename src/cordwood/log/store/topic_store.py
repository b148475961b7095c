"""Topics of a store: creating, changing and deleting them, so that a crash leaves old or new."""

import logging
import os
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
from cordwood.format.partition_metadata import (
    new_topic_id,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts, known_key
from cordwood.log.store.opened_directories import OpenedDirectories
from cordwood.log.topics.directory_listing import partition_directories
from cordwood.log.topics.incoming_topic import StagedTopic
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_catalog import (
    CREATING,
    DELETING,
    LIVE,
    TopicEntry,
)

logger = logging.getLogger(__name__)

_PARTITIONS_MAX: Final = 10_000  # per topic; each costs a directory and several files


class TopicStore(OpenedDirectories):
    """The topics. Any thread may use it; changes take turns."""

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        self._check_open()
        return sorted(n for n in list(self._topics) if include_internal or n not in INTERNAL_TOPICS)

    def topic(self, name: str) -> Topic[PartitionLog]:
        self._check_open()
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(name) from None

    def find_topic(self, name: str) -> Topic[PartitionLog] | None:
        """The topic of that name; None when there is none."""
        return self._topics.get(name)

    def topic_names_by_id(self) -> dict[uuid.UUID, str]:
        """The names of all topics by their ids, internal ones too."""
        return {topic.topic_id: name for name, topic in list(self._topics.items())}

    @property
    def topic_defaults(self) -> TopicConfig:
        """The configuration of a topic for which nothing was set."""
        return self._setup.defaults

    def topic_overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, and their values as text."""
        entry = self._catalog.topics.get(name)
        if entry is None:
            raise UnknownTopicError(name)
        return dict(entry.config)

    def check_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> TopicConfig:
        """Raise what `create_topic` would; return the configuration the topic would have."""
        self._check_open()
        self._check_new(name, partitions)
        return TopicConfig.parse(config or {}, defaults=self._setup.defaults)

    def check_topic_config(self, name: str, config: Mapping[str, object | None]) -> TopicConfig:
        """Raise what `alter_topic` would; return the configuration the topic would have."""
        with self._lock:
            self.topic(name)
            return self._config_of(self._altered(self._catalog.topics[name], config))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> Topic[PartitionLog]:
        """A new topic. `config` maps Kafka's keys to values, with units where they have some."""
        with self._lock:
            parsed = self.check_topic(name, partitions=partitions, config=config)
            entry = TopicEntry(
                name=name,
                topic_id=new_topic_id(),
                partitions=partitions,
                config=canonical_texts(config or {}),
                state=CREATING,
            )
            try:
                self._clear_leftovers(name, from_number=0)
                self._save(self._catalog.put(entry))
                logs: dict[int, PartitionLog] = {}
                for number in range(partitions):
                    directory = self._make_partition(entry, number)
                    logs[number] = self._open_log(directory, entry, number)
                self._save(self._catalog.put(entry.with_state(LIVE)))
            except OSError as error:
                error.add_note(f"while creating topic {name!r}, which was taken back")
                self._take_back(name, None)
                raise
            topic = Topic(name, entry.topic_id, parsed, logs, partition_count=partitions)
            self._topics[name] = topic
            return topic

    def _take_back(self, name: str, entry: TopicEntry | None) -> None:
        """What was refused must not be there after the next start: back to `entry`, or nothing."""
        try:
            self._clear_leftovers(name, from_number=0 if entry is None else entry.partitions)
            self._save(self._catalog.without(name) if entry is None else self._catalog.put(entry))
        except OSError as error:
            logger.error("a change of topic %s could not be taken back: %s", name, error)

    def _clear_leftovers(self, name: str, *, from_number: int) -> None:
        """Remove partitions that no topic has: a change of it that failed may have left some.

        Done before a topic comes to have partitions of these numbers, or the records in them
        would be its own.
        """
        for directory in self._directories:
            for place in [p for p in directory.logs if p[0] == name and p[1] >= from_number]:
                directory.logs.pop(place).close()
            found = partition_directories(self._fs, directory.path, name)
            leftovers = [path for number, path in found.items() if number >= from_number]
            for path in leftovers:
                self._fs.remove_tree(path)
            if leftovers:
                self._fs.sync_directory(directory.path)
                directory.save_recovery_points()
                directory.save_log_starts()
                directory.save_cleaned()

    def _check_new(self, name: str, partitions: int) -> None:
        check_topic_name(name)
        if name in self._topics:
            raise TopicExistsError(name)
        for other in self._topics:
            if topic_names_collide(name, other):
                raise InvalidTopicNameError(name, f"collides with {other!r}: '.' and '_' are alike")
        self.check_partition_count(partitions)

    def check_partition_count(self, partitions: int) -> None:
        """Raise `ConfigError` unless a topic may have so many partitions."""
        if not 1 <= partitions <= _PARTITIONS_MAX:
            raise ConfigError("partitions", partitions, f"must be 1 to {_PARTITIONS_MAX}")

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[PartitionLog]:
        """Change configuration keys (None: back to the default) or add partitions."""
        with self._lock:
            topic = self.topic(name)
            # Should a change have failed and not been taken back, the catalog says what it wanted.
            entry = replace(
                self._catalog.topics[name], partitions=topic.partition_count, state=LIVE
            )
            if config:
                entry = self._altered(entry, config)
            if partitions is not None and name in INTERNAL_TOPICS:
                raise ConfigError("partitions", partitions, f"{name} keeps the partitions it has")
            if partitions is not None and partitions < entry.partitions:
                raise ConfigError(
                    "partitions", partitions, f"must be at least {entry.partitions}, what there are"
                )
            if partitions is not None and partitions > entry.partitions:
                self._add_partitions(topic, entry, partitions)
                entry = self._catalog.topics[name]
            self._save(self._catalog.put(entry))
            topic.reconfigure(self._config_of(entry))
            if config:
                for log in topic.partitions:
                    self._attach_archive(log, entry)
            return topic

    def _altered(self, entry: TopicEntry, config: Mapping[str, object | None]) -> TopicEntry:
        texts: dict[str, object] = dict(entry.config)
        for key, value in config.items():
            if value is None:
                known_key(key, value)
                texts.pop(key, None)
            else:
                texts[key] = value
        TopicConfig.parse(texts, defaults=self._setup.defaults)  # each key, and all together
        return replace(entry, config=canonical_texts(texts))

    def _add_partitions(
        self, topic: Topic[PartitionLog], entry: TopicEntry, partitions: int
    ) -> None:
        self.check_partition_count(partitions)
        grown = replace(entry, partitions=partitions, state=CREATING)
        try:
            self._clear_leftovers(entry.name, from_number=entry.partitions)
            self._save(self._catalog.put(grown))
            logs: dict[int, PartitionLog] = {}
            for number in range(entry.partitions, partitions):
                directory = self._make_partition(grown, number)
                logs[number] = self._open_log(directory, grown, number)
            self._save(self._catalog.put(grown.with_state(LIVE)))
        except OSError as error:
            error.add_note(f"while adding partitions to {entry.name!r}, which was taken back")
            self._take_back(entry.name, entry)
            raise
        for number, log in logs.items():
            topic.add_log(number, log)

    def delete_topic(self, name: str) -> None:
        """Remove a topic. Its name is free at once; its files go after `file.delete.delay.ms`."""
        with self._lock:
            topic = self.topic(name)
            self._save(self._catalog.put(self._catalog.topics[name].with_state(DELETING)))
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
                directory.save_recovery_points()
                directory.save_log_starts()
                directory.save_cleaned()
            self._clear_leftovers(name, from_number=0)
            self._save(self._catalog.without(name))

    def stage_topic(self, name: str, topic_id: uuid.UUID, partitions: int) -> StagedTopic:
        """Directories to be filled with a topic's files; `install_topic` makes it one."""
        self._check_open()
        self._check_new(name, partitions)
        return StagedTopic.create(self._fs, self.data_dirs, name, topic_id, partitions)

    def install_topic(
        self, staged: StagedTopic, config: Mapping[str, object]
    ) -> Topic[PartitionLog]:
        """Make staged files a topic. A crash leaves the whole topic or nothing of it.

        The catalog first says that the topic is being deleted: what is there without being
        complete is then removed at the next start.
        """
        with self._lock:
            self._check_open()
            name = staged.topic
            self._check_new(name, len(staged.partitions))
            parsed = TopicConfig.parse(config, defaults=self._setup.defaults)
            entry = TopicEntry(
                name=name,
                topic_id=staged.topic_id,
                partitions=len(staged.partitions),
                config=canonical_texts(config),
                state=DELETING,
            )
            self._clear_leftovers(name, from_number=0)
            self._save(self._catalog.put(entry))
            logs: dict[int, PartitionLog] = {}
            try:
                staged.move_in(self._fs)
                for number, partition in enumerate(staged.partitions):
                    directory = next(d for d in self._directories if d.path == partition.data_dir)
                    directory.forget((name, number))
                    directory.checkpoints.log_starts[name, number] = partition.start
                    directory.checkpoints.recovery_points[name, number] = partition.end
                    if partition.allows_gaps:
                        directory.checkpoints.cleaned[name, number] = partition.start
                    logs[number] = self._open_log(directory, entry, number)
                    # The segments stay as they came: what is appended goes into a new one.
                    logs[number].roll()
                for directory in self._directories:
                    directory.checkpoint()
                    directory.save_log_starts()
                    directory.save_cleaned()
                self._save(self._catalog.put(entry.with_state(LIVE)))
            except BaseException as error:
                error.add_note(f"while installing topic {name!r}, which was taken back")
                self._take_back(name, None)
                raise
            topic = Topic(name, entry.topic_id, parsed, logs, partition_count=entry.partitions)
            self._topics[name] = topic
            return topic
