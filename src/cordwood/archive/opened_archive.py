"""An archive opened without the store that wrote it: its topics, for reading."""

from types import TracebackType
from typing import Self
from uuid import UUID

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.manifests.manifest import ArchivedTopic
from cordwood.archive.objects.object_store import open_object_store
from cordwood.archive.topics.partition_archive import ArchiveParts, PartitionArchive
from cordwood.archive.topics.restore import (
    RestoredPartition,
    explain_partition,
    find_topic,
    find_topics,
)
from cordwood.log.beside.archived_log import ArchivedLog
from cordwood.log.reading.archived_segments import ArchivePlace
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.topics.topic import Topic
from cordwood.storage.files import FileSystem, RealFileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache

_CLOSE_S = 1.0  # what is fetched ahead is wanted by nobody


def open_archive(
    url: str, *, cache_bytes: int = CACHE_BYTES, fs: FileSystem | None = None
) -> "OpenedArchive":
    """Open the archive at `url` for reading, on any machine.

    The files that are read are cached in a temporary directory of at most `cache_bytes`.
    """
    return OpenedArchive(url, cache_bytes=cache_bytes, fs=fs or RealFileSystem())


class OpenedArchive:
    """The topics of an archive. Any thread may use it. Close it to remove its cache.

    A forked child is refused; it opens the archive itself.
    """

    def __init__(self, url: str, *, cache_bytes: int, fs: FileSystem) -> None:
        self._objects = open_object_store(url, fs)
        self._lifetime = Lifetime(f"the archive {self._objects.url}")
        cache = SegmentCache(fs, bytes_max=cache_bytes)
        self._parts = ArchiveParts(
            fs=fs, cache=cache, handles=HandleCache(), threads=FetchThreads()
        )
        self._topics: dict[UUID, Topic[ArchivedLog]] = {}
        refuse_after_fork(self, f"the archive {self._objects.url}")

    @property
    def url(self) -> str:
        return self._objects.url

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        self._lifetime.check_open()
        return [name for name in self._objects.names("") if find_topics(self._objects, name)]

    def topic(self, name: str, *, topic_id: UUID | None = None) -> Topic[ArchivedLog]:
        """A topic as it was archived last. `topic_id` chooses among several of the same name."""
        self._lifetime.check_open()
        archived = find_topic(self._objects, name, topic_id)
        return self._topics.get(archived.topic_id) or self._open(archived)

    def _open(self, archived: ArchivedTopic) -> Topic[ArchivedLog]:
        config = TopicConfig.parse(archived.config)
        logs: dict[int, ArchivedLog] = {}
        for number in range(archived.partitions):
            source = self._source(archived, number, config)
            allows_gaps = source.manifest.allows_gaps
            logs[number] = ArchivedLog(archived.topic, number, source, allows_gaps=allows_gaps)
        topic: Topic[ArchivedLog] = Topic(
            archived.topic,
            archived.topic_id,
            config,
            logs,
            partition_count=archived.partitions,
        )
        self._topics[archived.topic_id] = topic
        return topic

    def _source(
        self, archived: ArchivedTopic, number: int, config: TopicConfig
    ) -> PartitionArchive:
        place = ArchivePlace(
            topic=archived.topic,
            topic_id=archived.topic_id,
            partition=number,
            directory="",
            config=config,
            allows_gaps=False,
            owner=None,
        )
        return PartitionArchive(self._objects, place, self._parts)

    def explain_restore(
        self, name: str, *, to_timestamp_ms: int | None = None, topic_id: UUID | None = None
    ) -> list[RestoredPartition]:
        """What `Store.restore_topic` would restore of each partition."""
        self._lifetime.check_open()
        archived = find_topic(self._objects, name, topic_id)
        config = TopicConfig.parse(archived.config)
        return [
            explain_partition(self._source(archived, number, config), to_timestamp_ms)
            for number in range(archived.partitions)
        ]

    def close(self) -> None:
        """Close all files and remove the cache. Safe to repeat.

        In a forked child it does nothing: the cache is its parent's.
        """
        if is_forked(self):
            return
        self._lifetime.end()
        for topic in self._topics.values():
            for log in topic.partitions:
                log.close()
        self._parts.threads.close(_CLOSE_S)
        self._parts.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
