"""A store opened for reading: beside its live writer, or a data directory that Kafka wrote.

Takes no lock and writes nothing. Topics that appear later are found when asked for.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ReadOnlyError, StorageError, UnknownTopicError
from cordwood.format.file_names import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    partition_directory_name,
)
from cordwood.format.partition_metadata import ZERO_TOPIC_ID
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.archived_segments import ArchivePlace, ArchiveStatus
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.log.rules.retention import RetentionPlan
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import Archives
from cordwood.log.store.open_store import OpenStore
from cordwood.log.topics.committed_offsets import CommittedOffsets, Group
from cordwood.log.topics.directory_listing import find_partitions
from cordwood.log.topics.log_directory import Checkpoints, read_checkpoints
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_catalog import DELETING, CatalogReader, TopicEntry
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.handle_cache import HandleCache

if TYPE_CHECKING:
    from cordwood.log.compaction.compaction_forecast import CompactionForecast

logger = logging.getLogger(__name__)


class ReadOnlyStore(OpenStore):
    """The topics found in the data directories. Any thread may use it."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        fs: FileSystem,
        clock: Clock,
        defaults: TopicConfig,
        archives: Archives | None = None,
        wants: Callable[[str, int], bool] | None = None,
    ) -> None:
        """`wants` chooses partitions by topic and number: a store of thousands opens faster."""
        self._fs = fs
        self._clock = clock
        self._defaults = defaults
        self._archives = archives
        self._wants = wants
        self._handles = HandleCache()
        self._paths = [os.path.abspath(path) for path in directories]
        self._catalog = CatalogReader(fs, self._paths)
        self._topics: dict[str, Topic[ReadOnlyLog]] = {}
        self._offsets = CommittedOffsets(self._offsets_topic, clock)
        for path in self._paths:
            if not fs.exists(path):
                raise StorageError(f"there is no data directory {path}")
        self._look()

    def _look(self) -> None:
        """Find topics; those already open stay open unless they were deleted or recreated."""
        entries = self._entries()
        checkpoints = {path: read_checkpoints(self._fs, path) for path in self._paths}
        logs: dict[str, dict[int, ReadOnlyLog]] = {}
        ids: dict[str, UUID] = {}
        for path in self._paths:
            for found in find_partitions(self._fs, path, wants=self._wants).live:
                entry = entries.get(found.topic)
                if entries and (entry is None or entry.state == DELETING):
                    continue
                known = self._topics.get(found.topic)
                ids[found.topic] = found.topic_id or ids.get(found.topic) or ZERO_TOPIC_ID
                if known is not None and known.topic_id != ids[found.topic]:
                    known = None
                if known is not None and known.has_partition(found.number):
                    continue
                log = self._open_log(path, found.topic, found.number, entry, checkpoints[path])
                if log is not None and known is not None:
                    known.add_log(found.number, log)
                elif log is not None:
                    logs.setdefault(found.topic, {})[found.number] = log
        for name in [n for n in self._topics if n not in ids]:
            del self._topics[name]
        for name, partitions in logs.items():
            entry = entries.get(name)
            self._topics[name] = Topic(
                name,
                entry.topic_id if entry is not None else ids[name],
                self._config_of(entry),
                partitions,
                partition_count=entry.partitions if entry is not None else max(partitions) + 1,
            )

    def _entries(self) -> Mapping[str, TopicEntry]:
        try:
            catalog = self._catalog.read()
        except StorageError as error:
            logger.warning("reading without the catalog of topics: %s", error)
            return {}
        return {} if catalog is None else catalog.topics

    def _config_of(self, entry: TopicEntry | None) -> TopicConfig:
        return TopicConfig.parse({} if entry is None else entry.config, defaults=self._defaults)

    def _open_log(
        self,
        path: str,
        topic: str,
        number: int,
        entry: TopicEntry | None,
        checkpoints: Checkpoints,
    ) -> ReadOnlyLog | None:
        place = (topic, number)
        allows_gaps = (
            entry is None or self._config_of(entry).is_compacted or place in checkpoints.cleaned
        )
        directory = os.path.join(path, partition_directory_name(topic, number))
        try:
            log = ReadOnlyLog(
                self._fs,
                directory,
                topic,
                number,
                handles=self._handles,
                log_start=checkpoints.log_starts.get(place),
                allows_gaps=allows_gaps,
            )
        except FileNotFoundError:
            return None  # being created, or just gone
        if self._archives is not None and entry is not None:
            log.attach_archive(
                self._archives.source(
                    ArchivePlace(
                        topic=topic,
                        topic_id=entry.topic_id,
                        partition=number,
                        directory=directory,
                        config=self._config_of(entry),
                        allows_gaps=allows_gaps,
                        owner=None,
                    )
                )
            )
        return log

    # --- topics ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._paths[0]

    @property
    def data_dirs(self) -> list[str]:
        return list(self._paths)

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order, as they are now."""
        self._check_open()
        self._look()
        return sorted(n for n in self._topics if include_internal or n not in INTERNAL_TOPICS)

    def topic(self, name: str) -> Topic[ReadOnlyLog]:
        self._check_open()
        if name not in self._topics:
            self._look()
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(name) from None

    def topic_overrides(self, name: str) -> dict[str, str]:
        """The keys that were set for a topic, as text; none where there is no catalog of ours."""
        self.topic(name)
        entry = self._entries().get(name)
        return {} if entry is None else dict(entry.config)

    # --- what the owner would do -------------------------------------------------------------

    def explain_retention(self, topic: str) -> list[RetentionPlan]:
        """For each partition, what retention would do now and why: the plan the owner runs."""
        now_ms = self._clock.now_ms()
        config = self._newest_config(topic)
        return [log.upkeep.plan_retention(config, now_ms) for log in self.topic(topic).partitions]

    def explain_compaction(self, topic: str, *, force: bool = False) -> list[CompactionPlan]:
        """For each partition, what compaction would do now, or why it would not."""
        now_ms = self._clock.now_ms()
        config = self._newest_config(topic)
        return [
            log.upkeep.plan_compaction(
                config, now_ms, cleaned_up_to=self._cleaned_up_to(log), force=force
            )
            for log in self.topic(topic).partitions
        ]

    def forecast_compaction(
        self, plan: CompactionPlan, *, pace: Callable[[int], None]
    ) -> "CompactionForecast":
        """What following `plan` would save. Reads the whole log; `pace` is told of bytes."""
        log = self.topic(plan.topic).partition(plan.partition)
        config = self._newest_config(plan.topic)
        return log.upkeep.forecast_compaction(config, plan, self._clock.now_ms(), pace=pace)

    def archive_status(self) -> list[ArchiveStatus]:
        """How far the archive of each partition is; what its owner did lately is not known."""
        self._check_open()
        return [] if self._archives is None else self._archives.status(self)

    def _newest_config(self, topic: str) -> TopicConfig:
        """The topic may have been altered since it was opened here."""
        self.topic(topic)
        return self._config_of(self._entries().get(topic))

    def _cleaned_up_to(self, log: ReadOnlyLog) -> Offset | None:
        home = os.path.dirname(log.directory)
        return read_checkpoints(self._fs, home).cleaned.get((log.topic, log.partition))

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A consumer group's committed offsets, as far as its writer has committed them."""
        self._check_open()
        return Group(name, self._offsets)

    def groups(self) -> list[str]:
        self._check_open()
        return self._offsets.groups()

    def _offsets_topic(self, create: bool) -> Topic[ReadOnlyLog] | None:
        if create:
            raise ReadOnlyError("commit offsets")
        try:
            return self.topic(CONSUMER_OFFSETS_TOPIC)
        except UnknownTopicError:
            return None

    # --- what a reader may not do ------------------------------------------------------------

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic[ReadOnlyLog]:
        raise ReadOnlyError(f"create topic {name!r}")

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partitions: int | None = None,
    ) -> Topic[ReadOnlyLog]:
        raise ReadOnlyError(f"alter topic {name!r}")

    def delete_topic(self, name: str) -> None:
        raise ReadOnlyError(f"delete topic {name!r}")

    def maintain(self) -> None:
        raise ReadOnlyError("maintain the store")

    # --- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of all files. Safe to repeat."""
        self._is_closed = True
        if self._archives is not None:
            self._archives.close()
        for topic in self._topics.values():
            for log in topic.partitions:
                log.close()

    def _described(self) -> str:
        return f"the store in {self.path}"
