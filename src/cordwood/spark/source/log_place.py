"""One partition's log in a plan: exactly what an executor needs to open it.

An executor does not list the store, which may hold thousands of partitions. It opens one directory,
or one partition of an archive.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cordwood.clock import SystemClock
from cordwood.errors import UnknownPartitionError, UnknownTopicError
from cordwood.format.small_files.partition_metadata import (
    ZERO_TOPIC_ID,
    decode_topic_id,
    encode_topic_id,
)
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.archived_segments import ArchivePlace
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.directory_listing import read_topic_id
from cordwood.quantities import Offset
from cordwood.storage.files import RealFileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a partition lay when the query was planned.

    `topic_id` is "" if the topic has none, `directory` if there is only an archive, `archive_url`
    if there is no archive.
    """

    topic: str
    partition: int
    topic_id: str
    directory: str
    log_start: int
    allows_gaps: bool
    was_compacted: bool
    archive_url: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def current_topic_id(self) -> str | None:
        """The id of the topic that is in this place now; None if there is none.

        An archive stores each topic under its id, so it cannot become another topic.
        """
        if not self.directory:
            return self.topic_id
        fs = RealFileSystem()
        if not fs.exists(self.directory):
            return None
        found = read_topic_id(fs, self.directory)
        return "" if found is None or found == ZERO_TOPIC_ID else encode_topic_id(found)

    def has_gaps_now(self) -> bool:
        """Whether the topic is compacted by now, so that offsets may be missing."""
        if not self.directory:
            return self.allows_gaps

        def is_this(topic: str, partition: int) -> bool:
            return (topic, partition) == (self.topic, self.partition)

        with ReadOnlyStore(
            [os.path.dirname(self.directory)],
            fs=RealFileSystem(),
            clock=SystemClock(),
            defaults=TopicConfig(),
            wants=is_this,
        ) as store:
            return any(log.source.allows_gaps for log in store.topic(self.topic).partitions)

    @contextmanager
    def open(self) -> Iterator[LogReader | None]:
        """The log, for reading; None if it is gone or its topic was recreated."""
        if self.current_topic_id() != self.topic_id:
            yield None
        elif not self.directory:
            yield from self._open_archive()
        else:
            yield from self._open_directory()

    def _open_archive(self) -> Iterator[LogReader | None]:
        from cordwood.archive.opened_archive import open_archive

        with open_archive(self.archive_url) as archive:
            try:
                topic = archive.topic(self.topic, topic_id=decode_topic_id(self.topic_id))
                log = topic.partition(self.partition)
            except (UnknownTopicError, UnknownPartitionError):
                yield None
            else:
                yield log

    def _open_directory(self) -> Iterator[LogReader | None]:
        try:
            log = ReadOnlyLog(
                RealFileSystem(),
                self.directory,
                self.topic,
                self.partition,
                handles=HandleCache(),
                log_start=Offset(self.log_start),
                allows_gaps=self.allows_gaps,
                was_compacted=self.was_compacted,
            )
        except FileNotFoundError:
            yield None
            return
        with ExitStack() as opened:
            opened.callback(log.close)
            if self.archive_url:
                self._join_archive(log, opened)
            yield log

    def _join_archive(self, log: ReadOnlyLog, opened: ExitStack) -> None:
        """Put the archived segments before the log. Imported here: few topics have an archive."""
        from cordwood.archive.cache.segment_cache import SegmentCache
        from cordwood.archive.store_archives import StoreArchives

        fs = RealFileSystem()
        archives = StoreArchives(fs=fs, clock=SystemClock(), cache=SegmentCache(fs))
        opened.callback(archives.close)
        log.attach_archive(archives.source(self._archive_place()))

    def _archive_place(self) -> ArchivePlace:
        return ArchivePlace(
            topic=self.topic,
            topic_id=decode_topic_id(self.topic_id),
            partition=self.partition,
            directory=self.directory,
            config=TopicConfig.parse({"archive.url": self.archive_url}),
            allows_gaps=self.allows_gaps,
            owner=None,
        )
