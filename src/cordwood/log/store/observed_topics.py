"""The topics that a read-only store finds in its data directories, looked up again on demand."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from cordwood.errors import ConfigError, StorageError, TopicDeletedError, UnknownTopicError
from cordwood.format.file_names import partition_directory_name
from cordwood.format.small_files.partition_metadata import ZERO_TOPIC_ID
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.archived_segments import ArchivePlace
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.catalog_files import CatalogReader
from cordwood.log.topics.directory_listing import FoundPartition, find_partitions
from cordwood.log.topics.log_directory import Checkpoints, PartitionName, read_checkpoints
from cordwood.log.topics.partition_opener import ArchiveFinder
from cordwood.log.topics.topic import Topic, visible_names
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache

logger = logging.getLogger(__name__)


class ObservedTopics:
    """Topics that another process may change at any moment. Any thread may use it.

    A topic stays open until a look finds that it was deleted or created again. A partition that
    cannot be opened is offline and hides no other; the next look tries it again.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        fs: FileSystem,
        defaults: TopicConfig,
        find_archive: ArchiveFinder | None,
        wants: Callable[[str, int], bool] | None,
    ) -> None:
        self._paths = paths
        self._fs = fs
        self._defaults = defaults
        self._find_archive = find_archive
        self._wants = wants
        self._handles = HandleCache()
        self._catalog = CatalogReader(fs, paths)
        self._topics: dict[str, Topic[ReadOnlyLog]] = {}
        self._offline: dict[PartitionName, Exception] = {}
        for path in paths:
            if not fs.exists(path):
                raise StorageError(f"there is no data directory {path}")
        self.look()

    def names(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order, as they are now."""
        self.look()
        return visible_names(self._topics, include_internal=include_internal)

    def get(self, name: str) -> Topic[ReadOnlyLog]:
        """The topic of that name. Raises `UnknownTopicError`."""
        topic = self.find(name)
        if topic is None:
            raise UnknownTopicError(name, known=self._all_names())
        return topic

    def _all_names(self) -> set[str]:
        """The names of all topics, also of those that were not wanted here."""
        return set(self._entries()) or {
            found.topic for path in self._paths for found in find_partitions(self._fs, path).live
        }

    def find(self, name: str) -> Topic[ReadOnlyLog] | None:
        """The topic of that name, or None. Looks again if it is not known or was deleted."""
        known = self._topics.get(name)
        is_offline = any(topic == name for topic, _ in self._offline)
        if known is None or is_offline or not _is_current(known):
            self.look()
        return self._topics.get(name)

    def overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, as text; empty without a catalog of ours."""
        self.get(name)
        entry = self._entries().get(name)
        return {} if entry is None else dict(entry.config)

    def newest_config(self, name: str) -> TopicConfig:
        """The configuration of a topic now: it may have changed since it was opened here."""
        self.get(name)
        return self._config_of(self._entries().get(name))

    def cleaned_up_to(self, log: ReadOnlyLog) -> Offset | None:
        """How far the owner has compacted a log."""
        home = os.path.dirname(log.directory)
        return read_checkpoints(self._fs, home).cleaned.get((log.topic, log.partition))

    def logs(self) -> list[ReadOnlyLog]:
        """The open logs of all topics, as they are now."""
        self.look()
        return [log for topic in self._topics.values() for log in topic.opened_partitions]

    def close(self) -> None:
        for topic in self._topics.values():
            for log in topic.opened_partitions:
                log.close()

    # --- looking -----------------------------------------------------------------------------

    def look(self) -> None:
        """Find new topics and partitions, and drop topics that no longer exist."""
        entries = self._entries()
        logs: dict[str, dict[int, ReadOnlyLog]] = {}
        ids: dict[str, UUID] = {}
        offline: dict[PartitionName, Exception] = {}
        for path in self._paths:
            checkpoints = read_checkpoints(self._fs, path)
            for found in find_partitions(self._fs, path, wants=self._wants).live:
                entry = entries.get(found.topic)
                if entries and entry is None:
                    continue
                is_new = entry is not None and not entry.has_begun(found.number)
                is_other = entry is not None and found.topic_id != entry.topic_id
                if is_new and is_other and found.error is None:
                    # A power cut took its id, or brought an earlier topic's directory back. The
                    # next owner makes it again.
                    continue
                known = self._topics.get(found.topic)
                if found.error is not None and known is not None:
                    ids.setdefault(found.topic, known.topic_id)
                ids[found.topic] = found.topic_id or ids.get(found.topic) or ZERO_TOPIC_ID
                if known is not None and known.topic_id != ids[found.topic]:
                    known = None
                if known is not None and known.has_partition(found.number):
                    continue
                try:
                    if found.error is not None:
                        raise found.error
                    log = self._open_log(path, found, entry, checkpoints)
                except Exception as error:  # whatever it is: the others are not concerned
                    offline[found.topic, found.number] = error
                    if known is None:
                        logs.setdefault(found.topic, {})
                    else:
                        known.partition_count = max(known.partition_count, found.number + 1)
                    continue
                if log is not None and known is not None:
                    known.add_log(found.number, log)
                elif log is not None:
                    logs.setdefault(found.topic, {})[found.number] = log
        self._note_offline(offline)
        for name in [n for n in self._topics if n not in ids]:
            del self._topics[name]
        for name, partitions in logs.items():
            entry = entries.get(name)
            numbers = [*partitions, *(number for topic, number in offline if topic == name)]
            self._topics[name] = Topic(
                name,
                entry.topic_id if entry is not None else ids[name],
                self._valid_config_of(entry) or self._defaults,
                partitions,
                partition_count=entry.partitions if entry is not None else max(numbers) + 1,
                offline=self._why_offline,
                absent=[]
                if entry is None
                else [n for n in range(entry.partitions) if not entry.is_here(n)],
            )

    def _note_offline(self, offline: dict[PartitionName, Exception]) -> None:
        for name, error in offline.items():
            if name not in self._offline:
                logger.error("%s-%d is offline: %r", *name, error)
        self._offline = offline

    def _why_offline(self, topic: str, number: int) -> str | None:
        error = self._offline.get((topic, number))
        return None if error is None else f"it cannot be read: {error}"

    def _entries(self) -> Mapping[str, TopicEntry]:
        try:
            catalog = self._catalog.read()
        except StorageError as error:
            logger.warning("reading without the topic catalog: %s", error)
            return {}
        return {} if catalog is None else catalog.topics

    def _config_of(self, entry: TopicEntry | None) -> TopicConfig:
        return TopicConfig.parse({} if entry is None else entry.config, defaults=self._defaults)

    def _valid_config_of(self, entry: TopicEntry | None) -> TopicConfig | None:
        """None if there is none, or if it is not valid: records can be read without it."""
        if entry is None:
            return None
        try:
            return self._config_of(entry)
        except ConfigError as error:
            logger.warning("reading without the configuration of %s: %s", entry.name, error)
            return None

    def _open_log(
        self,
        path: str,
        found: FoundPartition,
        entry: TopicEntry | None,
        checkpoints: Checkpoints,
    ) -> ReadOnlyLog | None:
        """None if the files are missing: the partition is being created or was just deleted."""
        place = (found.topic, found.number)
        config = self._valid_config_of(entry)
        was_compacted = entry is None or place in checkpoints.cleaned
        allows_gaps = was_compacted or config is None or config.is_compacted
        directory = os.path.join(path, partition_directory_name(*place))
        try:
            log = ReadOnlyLog(
                self._fs,
                directory,
                found.topic,
                found.number,
                handles=self._handles,
                log_start=checkpoints.log_starts.get(place),
                allows_gaps=allows_gaps,
                was_compacted=was_compacted,
                is_new=entry is not None and not entry.has_begun(found.number),
            )
        except FileNotFoundError:
            return None
        if self._find_archive is not None and entry is not None and config is not None:
            archive_place = ArchivePlace(
                topic=found.topic,
                topic_id=entry.topic_id,
                partition=found.number,
                directory=directory,
                config=config,
                allows_gaps=allows_gaps,
                owner=None,
            )
            log.attach_archive(self._find_archive(archive_place))
        return log


def _is_current(topic: Topic[ReadOnlyLog]) -> bool:
    """Whether the topic was not deleted since it was opened. Asks the first partition alone."""
    try:
        for log in topic.opened_partitions[:1]:
            log.check_current()
    except TopicDeletedError:
        return False
    return True
