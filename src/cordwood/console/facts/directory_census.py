"""Facts from the files of a store, read beside its owner. Takes no lock and writes nothing."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.clock import SystemClock
from cordwood.console.facts.cluster_facts import (
    CommittedFacts,
    DamageFacts,
    DiskFacts,
    GroupFacts,
    PartitionFacts,
    Place,
    TopicFacts,
)
from cordwood.errors import CordwoodError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.topic import Topic
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# A look lists the files of this many partitions again: what was replaced or deleted shows then.
_REFRESHED_AT_ONCE: Final = 100
_SEARCHED_AT_ONCE: Final = 50


class _Turns:
    """Some of many places in each turn, and all of them after enough turns."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0

    def of(self, places: Mapping[Place, object]) -> list[Place]:
        names = list(places)
        count = min(self._count, len(names))
        chosen = [names[(self._next + step) % len(names)] for step in range(count)]
        self._next = (self._next + count) % max(len(names), 1)
        return chosen


class DirectoryCensus:
    """Counts what is in the data directories. Owned by the thread that takes snapshots."""

    def __init__(self, store: ReadOnlyStore, *, free_bytes_min: int) -> None:
        self.store = store
        self._free_bytes_min = free_bytes_min
        self._logs: dict[Place, ReadOnlyLog] = {}
        self._refreshing = _Turns(_REFRESHED_AT_ONCE)
        self._searching = _Turns(_SEARCHED_AT_ONCE)
        self._damages: dict[Place, tuple[DamageFacts, ...]] = {}

    def topics(self) -> dict[str, TopicFacts]:
        """All topics, as they are now. The other questions are about what this call has found."""
        found: dict[str, TopicFacts] = {}
        logs: dict[Place, ReadOnlyLog] = {}
        for name in self.store.topics(include_internal=True):
            try:
                topic = self.store.topic(name)
                found[name] = _topic(topic)
                logs |= {(name, log.partition): log for log in topic.opened_partitions}
            except (CordwoodError, OSError) as error:  # deleted meanwhile
                logger.debug("topic %s: %s", name, error)
        self._logs = logs
        for place in self._refreshing.of(logs):
            try:
                logs[place].source.refresh()
            except (CordwoodError, OSError) as error:
                logger.debug("%s-%d: %s", *place, error)
        return found

    def damages(self) -> tuple[DamageFacts, ...]:
        """Missing segments and sealed segments that end too early. Looks at some in each turn."""
        known = {place: found for place, found in self._damages.items() if place in self._logs}
        for place in self._searching.of(self._logs):
            try:
                known[place] = damages_of(self._logs[place])
            except (CordwoodError, OSError) as error:
                logger.debug("%s-%d: %s", *place, error)
        self._damages = known
        return tuple(damage for place in sorted(known) for damage in known[place])

    def groups(self) -> dict[str, GroupFacts]:
        return {
            name: GroupFacts(
                name=name,
                committed=tuple(
                    CommittedFacts(topic, partition, committed.offset, committed.metadata)
                    for (topic, partition), committed in sorted(
                        self.store.group(name).details().items()
                    )
                ),
            )
            for name in self.store.groups()
        }

    def disks(self) -> tuple[DiskFacts, ...]:
        return tuple(_disk(path, self._free_bytes_min) for path in self.store.data_dirs)


def _topic(topic: Topic[ReadOnlyLog]) -> TopicFacts:
    return TopicFacts(
        name=topic.name,
        topic_id=encode_topic_id(topic.topic_id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partition(topic, n) for n in range(topic.partition_count)),
        cleanup_policy=",".join(topic.config.cleanup_policy),
        has_archive=topic.config.archive_url is not None,
    )


def _partition(topic: Topic[ReadOnlyLog], number: int) -> PartitionFacts:
    try:
        log = topic.partition(number)
        view = log.view()
        if len(view.segments) > 1 and view.segments.end_of(0) <= view.start:
            log.source.refresh()  # the owner has deleted it
            view = log.view()
    except (CordwoodError, OSError) as error:
        return PartitionFacts(topic.name, number, problem=str(error))
    return PartitionFacts(
        topic.name,
        number,
        view.start,
        view.high_watermark,
        _local_bytes(view) if topic.config.archive_url else view.segments.size,
        len(view.segments),
    )


def _local_bytes(view: LogView) -> int:
    return sum(segment.size for segment in view.segments if not segment.is_archived)


def damages_of(log: ReadOnlyLog) -> tuple[DamageFacts, ...]:
    """What is known to be damaged in a partition, without reading all of it."""
    return tuple(
        DamageFacts(
            topic=log.topic,
            partition=log.partition,
            path=damage.path,
            position=damage.position,
            first_offset=damage.first_offset,
            next_offset=damage.next_offset,
            reason=damage.reason,
        )
        for damage in log.find_damages()
    )


def _disk(path: str, floor_bytes: int) -> DiskFacts:
    try:
        room = os.statvfs(path)
    except OSError as error:
        return DiskFacts(
            path=path, free_bytes=0, total_bytes=0, floor_bytes=floor_bytes, error=str(error)
        )
    return DiskFacts(
        path=path,
        free_bytes=room.f_bavail * room.f_frsize,
        total_bytes=room.f_blocks * room.f_frsize,
        floor_bytes=floor_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDirectories:
    """A store that is read beside its owner. `defaults` are those ``cordwood serve`` would have."""

    store: ReadOnlyStore
    defaults: TopicConfig
    free_bytes_min: int


def open_directories(paths: Sequence[str]) -> OpenedDirectories:
    """The store in `paths`. Nothing is locked or written."""
    from cordwood.archive.cache.segment_cache import SegmentCache
    from cordwood.archive.store_archives import StoreArchives
    from cordwood.settings import load_settings

    fs, clock = RealFileSystem(), SystemClock()
    settings = load_settings()
    store = ReadOnlyStore(
        list(paths),
        fs=fs,
        clock=clock,
        defaults=settings.topic_defaults,
        archives=StoreArchives(fs=fs, clock=clock, cache=SegmentCache(fs)),
    )
    return OpenedDirectories(
        store=store,
        defaults=settings.topic_defaults,
        free_bytes_min=settings.store.log_dir_free_bytes_min,
    )
