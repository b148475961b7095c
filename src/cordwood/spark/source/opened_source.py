"""The target of `path`, opened for reading: a store, a directory of Kafka, or an archive.

    /srv/data, file:///srv/data    a data directory, ours or Kafka's
    file:///srv/archive            an archive in a directory, which holds no partitions
    s3://bucket/prefix             an archive

Used for planning, on the driver. Takes no lock and writes nothing.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlsplit
from uuid import UUID

from cordwood.archive.archives_on_demand import ArchivesOnDemand
from cordwood.clock import SystemClock
from cordwood.errors import ConfigError, UnknownTopicError
from cordwood.format.file_names import META_PROPERTIES
from cordwood.format.small_files.partition_metadata import ZERO_TOPIC_ID, encode_topic_id
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.publishing.consistent_ends import whole_ends
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.directory_listing import find_partitions
from cordwood.quantities import Offset
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import dataclass

Wants = Callable[[str, int], bool]

_FILE_SCHEMES: Final = ("", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic and its selected partitions. `topic_id` is "" if it is unknown."""

    name: str
    topic_id: str
    logs: Mapping[int, LogReader]
    archive_url: str = ""
    is_compacted: bool = False

    def place(self, number: int) -> LogPlace:
        """The place from which an executor opens a partition's log."""
        log = self.logs[number]
        directory, start = "", log.start_offset
        if isinstance(log, ReadOnlyLog):
            directory, start = log.directory, log.local_start_offset
        return LogPlace(
            topic=self.name,
            partition=number,
            topic_id=self.topic_id,
            directory=directory,
            log_start=start,
            allows_gaps=log.source.allows_gaps,
            was_compacted=log.source.gaps_below > 0,
            archive_url=self.archive_url,
        )


class OpenedSource(ABC):
    """Topics to read. For one thread; the caller closes it.

    `directories` are the store's; empty for an archive, which is read-only.
    """

    directories: tuple[str, ...] = ()

    @abstractmethod
    def look(self) -> dict[str, SourceTopic]:
        """The selected topics in their present state."""

    @abstractmethod
    def ends(self, topics: Mapping[str, SourceTopic]) -> dict[TopicPartition, Offset]:
        """How far each partition can be read now; never into the middle of a publication."""

    @abstractmethod
    def all_topics(self) -> list[str]:
        """The names of all topics, selected or not, for messages."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_source(paths: Sequence[str], wants: Wants) -> OpenedSource:
    """Open `paths` with the partitions that `wants` selects by topic and number."""
    places = [_local_path(path) for path in paths]
    directories = [place for place in places if place is not None]
    if len(directories) == len(paths) and not _is_archive(paths, directories):
        return _StoreSource(directories, wants)
    if len(paths) > 1:
        raise ConfigError("path", ", ".join(paths), "an archive must be a single URL")
    return _ArchiveSource(paths[0], wants)


def absolute_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The same paths, valid in a process with another working directory."""
    return tuple(path if urlsplit(path).scheme else os.path.abspath(path) for path in paths)


def _local_path(path: str) -> str | None:
    """The directory that `path` names; None for a URL of another scheme."""
    parts = urlsplit(path)
    if "://" not in path and parts.scheme != "file":
        return path
    return unquote(parts.path) if parts.scheme in _FILE_SCHEMES else None


def _is_archive(paths: Sequence[str], directories: Sequence[str]) -> bool:
    """Whether these are an archive: a directory given as a URL that contains no store."""
    if all(path == directory for path, directory in zip(paths, directories, strict=True)):
        return False
    fs = RealFileSystem()
    for directory in directories:
        if not fs.exists(directory) or fs.exists(os.path.join(directory, META_PROPERTIES)):
            return False
        if find_partitions(fs, directory, wants=None).live:
            return False
    return True


class _StoreSource(OpenedSource):
    def __init__(self, directories: Sequence[str], wants: Wants) -> None:
        fs, clock = RealFileSystem(), SystemClock()
        self._fs = fs
        self.directories = tuple(directories)
        self._store = ReadOnlyStore(
            directories,
            fs=fs,
            clock=clock,
            defaults=TopicConfig.parse({}),
            archives=ArchivesOnDemand(fs, clock),
            wants=wants,
        )

    def look(self) -> dict[str, SourceTopic]:
        found: dict[str, SourceTopic] = {}
        for name in self._store.topics(include_internal=True):
            topic = self._store.topic(name)
            logs = {log.partition: log for log in topic.partitions}
            found[name] = SourceTopic(
                name=name,
                topic_id=_id_text(topic.topic_id),
                logs=logs,
                archive_url=topic.config.archive_url or "",
                is_compacted=topic.config.is_compacted,
            )
        return found

    def ends(self, topics: Mapping[str, SourceTopic]) -> dict[TopicPartition, Offset]:
        return whole_ends(self._store, list(topics), fs=self._fs)

    def all_topics(self) -> list[str]:
        return sorted(
            {
                found.topic
                for path in self._store.data_dirs
                for found in find_partitions(self._fs, path).live
            }
        )

    def close(self) -> None:
        self._store.close()


class _ArchiveSource(OpenedSource):
    def __init__(self, url: str, wants: Wants) -> None:
        from cordwood.archive.opened_archive import open_archive

        self._url = url
        self._archive = open_archive(url)
        self._wants = wants

    def look(self) -> dict[str, SourceTopic]:
        found: dict[str, SourceTopic] = {}
        for name in self._archive.topics():
            try:
                topic = self._archive.topic(name)
            except UnknownTopicError:
                continue  # removed since it was listed
            logs = {log.partition: log for log in topic.partitions}
            wanted = {number: log for number, log in logs.items() if self._wants(name, number)}
            for log in wanted.values():
                log.refresh()
            if wanted:
                found[name] = SourceTopic(
                    name=name,
                    topic_id=_id_text(topic.topic_id),
                    logs=dict(wanted),
                    archive_url=self._url,
                )
        return found

    def ends(self, topics: Mapping[str, SourceTopic]) -> dict[TopicPartition, Offset]:
        return {
            (name, number): log.high_watermark
            for name, topic in topics.items()
            for number, log in topic.logs.items()
        }

    def all_topics(self) -> list[str]:
        return self._archive.topics()

    def close(self) -> None:
        self._archive.close()


def _id_text(topic_id: UUID) -> str:
    return "" if topic_id == ZERO_TOPIC_ID else encode_topic_id(topic_id)
