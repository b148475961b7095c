"""A store: topics over one or several data directories, held by one writer process.

The order of things at opening: take the lock of every directory, read the catalog of topics,
finish what a crash left half done, open all partitions side by side. A directory that cannot be
used takes only its own partitions offline.
"""

import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final

from varve.clock import Clock, SystemClock
from varve.errors import (
    ConfigError,
    InvalidTopicNameError,
    LogClosedError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from varve.format.file_names import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    PARTITION_METADATA,
    check_topic_name,
    deleted_directory_name,
    partition_directory_name,
    topic_names_collide,
)
from varve.format.partition_metadata import new_topic_id, render_partition_metadata
from varve.log.committed_offsets import CommittedOffsets, Group
from varve.log.durable_log import FlushQueue, LogParts, segment_limits
from varve.log.housekeeping import Housekeeping, run_due_work
from varve.log.log_directory import LogDirectory
from varve.log.log_loader import LoadRequest, load_log
from varve.log.partition_log import PartitionLog
from varve.log.store_files import FoundPartition, find_partitions
from varve.log.topic import Topic
from varve.log.topic_catalog import (
    CREATING,
    DELETING,
    LIVE,
    Catalog,
    TopicEntry,
    read_catalog,
    write_catalog,
)
from varve.log.topic_config import TopicConfig
from varve.quantities import MIB
from varve.storage.files import FileSystem, RealFileSystem, replace_file
from varve.storage.flusher import Flusher
from varve.storage.handle_cache import HandleCache
from varve.storage.high_watermark_file import HighWatermarkFile
from varve.storage.recovery import Damage

logger = logging.getLogger(__name__)

_PARTITIONS_MAX: Final = 10_000  # per topic; each costs a directory and several files
_OPENING_THREADS: Final = 4
_OFFSETS_CONFIG: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 * MIB),
}


@dataclass(slots=True, kw_only=True)
class StoreSetup:
    """How a store is run. Tests pass their own file system, clock and flusher."""

    fs: FileSystem = field(default_factory=RealFileSystem)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    defaults: TopicConfig = field(default_factory=TopicConfig)
    flusher: FlushQueue | None = None  # None: a thread for each directory
    has_housekeeping: bool = True
    opening_threads: int = _OPENING_THREADS


class Store:
    """Topics, for their one writer. Any thread may use it; changes to topics take turns."""

    def __init__(self, directories: Sequence[str], setup: StoreSetup) -> None:
        self._setup = setup
        self._fs = setup.fs
        self._clock = setup.clock
        self._handles = HandleCache()
        self._lock = threading.RLock()
        self._topics: dict[str, Topic[PartitionLog]] = {}
        self._catalog = Catalog(generation=0, topics={})
        self._is_closed = False
        self._flushers: list[Flusher] = []
        self._offline: dict[str, OSError] = {}
        self._directories = self._open_directories([os.path.abspath(d) for d in directories])
        self._offsets = CommittedOffsets(self._offsets_topic, setup.clock)
        self._housekeeping: Housekeeping | None = None
        try:
            self._load()
        except BaseException:
            self._abandon()
            raise
        if setup.has_housekeeping:
            self._housekeeping = Housekeeping(
                self.path, lambda: list(self._directories), setup.clock
            )
            self._housekeeping.start()

    # --- opening -----------------------------------------------------------------------------

    def _open_directories(self, paths: Sequence[str]) -> list[LogDirectory]:
        opened: list[LogDirectory] = []
        try:
            for path in dict.fromkeys(paths):
                flusher = self._setup.flusher
                if flusher is None:
                    own = Flusher(path)
                    self._flushers.append(own)
                    flusher = own
                directory = LogDirectory(self._fs, path, self._clock, flusher)
                cluster = opened[0].meta.cluster_id if opened and opened[0].meta else None
                try:
                    directory.open(cluster)
                except OSError as error:
                    if len(paths) == 1:
                        raise
                    logger.error("%s is offline: %s", path, error)
                    self._offline[path] = error
                    continue
                opened.append(directory)
        except BaseException:
            for directory in opened:
                directory.release()
            raise
        if not opened:
            raise StorageError(f"no data directory can be used: {self._offline}")
        return opened

    def _load(self) -> None:
        paths = [directory.path for directory in self._directories]
        catalog = read_catalog(self._fs, paths)
        found = {d.path: find_partitions(self._fs, d.path) for d in self._directories}
        self._catalog = catalog or self._catalog
        for directory in self._directories:
            for leftover in found[directory.path].deleted:
                self._fs.remove_tree(os.path.join(directory.path, leftover))
        places = {
            (partition.topic, partition.number): (directory, partition)
            for directory in self._directories
            for partition in found[directory.path].live
        }
        self._finish_deletions(places)
        self._adopt(places)
        self._finish_creations(places)
        self._open_logs(places)

    def _finish_deletions(
        self, places: dict[tuple[str, int], tuple[LogDirectory, FoundPartition]]
    ) -> None:
        for entry in [e for e in self._catalog.topics.values() if e.state == DELETING]:
            for name, number in [place for place in places if place[0] == entry.name]:
                directory, _ = places.pop((name, number))
                self._fs.remove_tree(
                    os.path.join(directory.path, partition_directory_name(name, number))
                )
                self._fs.sync_directory(directory.path)
            self._save(self._catalog.without(entry.name))

    def _adopt(self, places: dict[tuple[str, int], tuple[LogDirectory, FoundPartition]]) -> None:
        """Take in partitions that the catalog does not know: another program's directory."""
        strangers = sorted({topic for topic, _ in places} - set(self._catalog.topics))
        catalog = self._catalog
        for topic in strangers:
            numbers = [number for name, number in places if name == topic]
            ids = [places[topic, n][1].topic_id for n in numbers]
            known = [topic_id for topic_id in ids if topic_id is not None]
            logger.info("adopting topic %s with %d partitions", topic, max(numbers) + 1)
            catalog = catalog.put(
                TopicEntry(
                    name=topic,
                    topic_id=known[0] if known else new_topic_id(),
                    partitions=max(numbers) + 1,
                    config=_OFFSETS_CONFIG if topic == CONSUMER_OFFSETS_TOPIC else {},
                )
            )
        if strangers:
            self._save(catalog)

    def _finish_creations(
        self, places: dict[tuple[str, int], tuple[LogDirectory, FoundPartition]]
    ) -> None:
        for entry in [e for e in self._catalog.topics.values() if e.state == CREATING]:
            for number in range(entry.partitions):
                if (entry.name, number) not in places:
                    directory = self._make_partition(entry, number)
                    places[entry.name, number] = (
                        directory,
                        FoundPartition(topic=entry.name, number=number, topic_id=entry.topic_id),
                    )
            self._save(self._catalog.put(entry.with_state(LIVE)))
        for (name, number), (directory, found) in places.items():
            if found.topic_id is None:
                self._write_metadata(directory, self._catalog.topics[name], number)

    def _open_logs(
        self, places: dict[tuple[str, int], tuple[LogDirectory, FoundPartition]]
    ) -> None:
        """Several partitions at a time: after a crash each may have much to re-read."""

        def open_one(place: tuple[str, int]) -> PartitionLog:
            directory, _ = places[place]
            return self._open_log(directory, self._catalog.topics[place[0]], place[1])

        order = sorted(places)
        threads = min(self._setup.opening_threads, max(len(order), 1))
        if threads <= 1:
            logs = [open_one(place) for place in order]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="varve-open") as pool:
                logs = list(pool.map(open_one, order))
        by_topic: dict[str, dict[int, PartitionLog]] = {name: {} for name in self._catalog.topics}
        for (topic, number), log in zip(order, logs, strict=True):
            by_topic[topic][number] = log
        for directory in self._directories:
            directory.save_found_log_starts()
        for name, entry in self._catalog.topics.items():
            self._topics[name] = Topic(
                name,
                entry.topic_id,
                self._config_of(entry),
                by_topic[name],
                partition_count=entry.partitions,
            )

    def _open_log(self, directory: LogDirectory, entry: TopicEntry, number: int) -> PartitionLog:
        place = (entry.name, number)
        path = os.path.join(directory.path, partition_directory_name(*place))
        config = self._config_of(entry)
        marks = HighWatermarkFile(self._fs, path, writable=True)
        checkpoints = directory.checkpoints
        allows_gaps = config.is_compacted or place in checkpoints.cleaned
        loaded = load_log(
            LoadRequest(
                fs=self._fs,
                directory=path,
                handles=self._handles,
                limits=segment_limits(config, allows_gaps=allows_gaps),
                marks=marks.read(),
                now_ms=self._clock.now_ms(),
                recovery_point=checkpoints.recovery_points.get(place),
                log_start=checkpoints.log_starts.get(place),
                is_clean=directory.was_clean,
                is_durable_exact=config.durability == "disk",
                allows_gaps=allows_gaps,
            )
        )
        log = PartitionLog(
            LogParts(
                topic=entry.name,
                partition=number,
                directory=path,
                config=config,
                fs=self._fs,
                clock=self._clock,
                handles=self._handles,
                flusher=directory.flusher,
                owner=directory,
                marks=marks,
                random=self._setup.random,
            ),
            loaded,
        )
        if place in checkpoints.cleaned:
            log.note_compacted()
        for damage in log.damages:
            logger.error("%s", damage)
        directory.logs[place] = log
        return log

    def _config_of(self, entry: TopicEntry) -> TopicConfig:
        return TopicConfig.parse(entry.config, defaults=self._setup.defaults)

    # --- topics ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The first data directory."""
        return self._directories[0].path

    @property
    def data_dirs(self) -> list[str]:
        return [directory.path for directory in self._directories]

    @property
    def cluster_id(self) -> str:
        meta = self._directories[0].meta
        return (meta.cluster_id or "") if meta is not None else ""

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        self._check_open()
        return sorted(n for n in self._topics if include_internal or n not in INTERNAL_TOPICS)

    def topic(self, name: str) -> Topic[PartitionLog]:
        self._check_open()
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(name) from None

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> Topic[PartitionLog]:
        """A new topic. `config` maps Kafka's keys to values, with units where they have some."""
        with self._lock:
            self._check_open()
            self._check_new(name, partitions)
            parsed = TopicConfig.parse(config or {}, defaults=self._setup.defaults)
            entry = TopicEntry(
                name=name,
                topic_id=new_topic_id(),
                partitions=partitions,
                config=parsed.render(defaults=self._setup.defaults),
                state=CREATING,
            )
            try:
                self._save(self._catalog.put(entry))
                logs: dict[int, PartitionLog] = {}
                for number in range(partitions):
                    directory = self._make_partition(entry, number)
                    logs[number] = self._open_log(directory, entry, number)
                self._save(self._catalog.put(entry.with_state(LIVE)))
            except OSError as error:
                error.add_note(f"while creating topic {name!r}, which was taken back")
                self._undo_creation(entry)
                raise
            topic = Topic(name, entry.topic_id, parsed, logs, partition_count=partitions)
            self._topics[name] = topic
            return topic

    def _undo_creation(self, entry: TopicEntry) -> None:
        """What was refused must not be there after the next start."""
        try:
            for directory in self._directories:
                for place in [p for p in directory.logs if p[0] == entry.name]:
                    directory.logs.pop(place).close()
                for number in range(entry.partitions):
                    name = partition_directory_name(entry.name, number)
                    path = os.path.join(directory.path, name)
                    if self._fs.exists(path):
                        self._fs.remove_tree(path)
            self._save(self._catalog.without(entry.name))
        except OSError as error:
            logger.error("topic %s could not be taken back: %s", entry.name, error)

    def _check_new(self, name: str, partitions: int) -> None:
        check_topic_name(name)
        if name in self._topics:
            raise TopicExistsError(name)
        for other in self._topics:
            if topic_names_collide(name, other):
                raise InvalidTopicNameError(name, f"collides with {other!r}: '.' and '_' are alike")
        if not 1 <= partitions <= _PARTITIONS_MAX:
            raise ConfigError("partitions", partitions, f"must be 1 to {_PARTITIONS_MAX}")

    def _make_partition(self, entry: TopicEntry, number: int) -> LogDirectory:
        """A partition's directory, where the fewest are; its id is there before any data."""
        directory = min(self._directories, key=lambda d: len(d.logs))
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        self._fs.make_directory(path)
        self._write_metadata(directory, entry, number)
        self._fs.sync_directory(directory.path)
        # What an earlier topic of this name left in the checkpoints says nothing of this one.
        directory.forget((entry.name, number))
        return directory

    def _write_metadata(self, directory: LogDirectory, entry: TopicEntry, number: int) -> None:
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        content = render_partition_metadata(entry.topic_id).encode()
        replace_file(self._fs, os.path.join(path, PARTITION_METADATA), content)

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
            entry = self._catalog.topics[name]
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
            return topic

    def _altered(self, entry: TopicEntry, config: Mapping[str, object | None]) -> TopicEntry:
        texts: dict[str, object] = dict(entry.config)
        for key, value in config.items():
            if value is None:
                TopicConfig.parse({key: "0"}) if key not in TopicConfig().effective() else None
                texts.pop(key, None)
            else:
                texts[key] = value
        parsed = TopicConfig.parse(texts, defaults=self._setup.defaults)
        return TopicEntry(
            name=entry.name,
            topic_id=entry.topic_id,
            partitions=entry.partitions,
            config=parsed.render(defaults=self._setup.defaults),
            state=entry.state,
        )

    def _add_partitions(
        self, topic: Topic[PartitionLog], entry: TopicEntry, partitions: int
    ) -> None:
        if partitions > _PARTITIONS_MAX:
            raise ConfigError("partitions", partitions, f"must be at most {_PARTITIONS_MAX}")
        grown = TopicEntry(
            name=entry.name,
            topic_id=entry.topic_id,
            partitions=partitions,
            config=entry.config,
            state=CREATING,
        )
        self._save(self._catalog.put(grown))
        for number in range(entry.partitions, partitions):
            directory = self._make_partition(grown, number)
            topic.add_log(number, self._open_log(directory, grown, number))
        self._save(self._catalog.put(grown.with_state(LIVE)))

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
            self._save(self._catalog.without(name))

    def _save(self, catalog: Catalog) -> None:
        write_catalog(self._fs, [d.path for d in self._directories], catalog)
        self._catalog = catalog

    # --- groups ------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A consumer group's committed offsets."""
        self._check_open()
        if not name:
            raise ConfigError("group", name, "must not be empty")
        return Group(name, self._offsets)

    def groups(self) -> list[str]:
        """The names of all groups that have committed offsets."""
        self._check_open()
        return self._offsets.groups()

    def _offsets_topic(self, create: bool) -> Topic[PartitionLog] | None:
        topic = self._topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None and create:
            with self._lock:
                topic = self._topics.get(CONSUMER_OFFSETS_TOPIC) or self.create_topic(
                    CONSUMER_OFFSETS_TOPIC, config=_OFFSETS_CONFIG
                )
        return topic

    # --- upkeep ------------------------------------------------------------------------------

    def maintain(self) -> None:
        """One pass of what the background does: rolls, syncs, unlinking, checkpoints."""
        self._check_open()
        run_due_work(self._directories)
        for directory in self._directories:
            directory.checkpoint()

    def damages(self) -> list[Damage]:
        """Promised bytes that were found unreadable when the store was opened."""
        return [
            damage
            for directory in self._directories
            for log in directory.logs.values()
            for damage in log.damages
        ]

    # --- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Sync everything, mark the directories clean, release them. Safe to repeat."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._housekeeping is not None:
            self._housekeeping.stop()
        for directory in self._directories:
            logs = list(directory.logs.values())
            for log in logs:
                log.close()
            directory.close(is_clean=all(log.failure is None for log in logs))
        for flusher in self._flushers:
            flusher.stop()

    def _abandon(self) -> None:
        """Opening failed: let go of everything, mark nothing clean."""
        self._is_closed = True
        for directory in self._directories:
            directory.release()
        for flusher in self._flushers:
            flusher.stop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(f"the store in {self.path}")

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
