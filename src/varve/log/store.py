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
from dataclasses import dataclass, field, replace
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
from varve.format.partition_metadata import (
    encode_topic_id,
    new_topic_id,
    render_partition_metadata,
)
from varve.log.archived_segments import ArchivePlace, Archives, ArchiveStatus
from varve.log.backup import Backup, StoreSnapshot
from varve.log.cleaner import Cleaner, CleanerConfig
from varve.log.committed_offsets import CommittedOffsets, Group
from varve.log.compaction_plan import CompactionPlan
from varve.log.compaction_run import CompactionResult
from varve.log.durable_log import FlushQueue, LogParts, segment_limits
from varve.log.housekeeping import Housekeeping, UpkeepFunction, UpkeepStatus
from varve.log.log_directory import LogDirectory
from varve.log.log_loader import LoadRequest, load_log
from varve.log.partition_log import PartitionLog
from varve.log.retention import RetentionPlan
from varve.log.staged_topic import StagedTopic
from varve.log.store_files import FoundPartition, find_partitions, partition_directories
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
from varve.log.upkeep_tasks import FREE_BYTES_MIN, UpkeepTasks
from varve.quantities import MIB
from varve.storage.files import FileSystem, RealFileSystem, replace_file
from varve.storage.flusher import Flusher
from varve.storage.handle_cache import HandleCache
from varve.storage.high_watermark_file import HighWatermarkFile
from varve.storage.recovery import Damage

logger = logging.getLogger(__name__)

_PARTITIONS_MAX: Final = 10_000  # per topic; each costs a directory and several files
_OPENING_THREADS: Final = 4
_CLEANER_S: Final = 15.0  # as Kafka's log.cleaner.backoff.ms
_ARCHIVE_S: Final = 30.0  # as Kafka's remote.log.manager.task.interval.ms
_OFFSETS_CONFIG: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 * MIB),
}
# How long its owner wanted a topic kept is not to be found in the files: nothing is deleted
# until someone says so.
_ADOPTED_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


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
    archives: Archives | None = None  # None: topics cannot be archived
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    # log.dir.free.bytes.min: appends are refused while fewer are free; None: 16 MiB on real disks
    free_bytes_min: int | None = None


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
        try:
            self._load()
        except BaseException:
            self._abandon()
            raise
        self._housekeeping = Housekeeping(self.path, setup.clock)
        self._tasks = UpkeepTasks(
            lambda: list(self._directories), setup.clock, free_bytes_min=_free_bytes_min(setup)
        )
        self._tasks.register(self._housekeeping)
        self.cleaner = Cleaner(self._all_logs, self._tasks.steady_clock, setup.cleaner)
        self._housekeeping.add("compaction", _CLEANER_S, self._run_cleaner, takes_long=True)
        if setup.archives is not None:
            self._housekeeping.add("archive", _ARCHIVE_S, self._run_archive, takes_long=True)
        if setup.has_housekeeping:
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
                    config=_OFFSETS_CONFIG if topic == CONSUMER_OFFSETS_TOPIC else _ADOPTED_CONFIG,
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
        """Several partitions at a time: after a crash each may have much to re-read.

        One whose files cannot be read stays offline and does not stop the others.
        """

        def open_one(place: tuple[str, int]) -> PartitionLog | None:
            directory, _ = places[place]
            try:
                return self._open_log(directory, self._catalog.topics[place[0]], place[1])
            except OSError as error:
                logger.error("%s-%d is offline: %s", *place, error)
                directory.offline[place] = error
                return None

        order = sorted(places)
        threads = min(self._setup.opening_threads, max(len(order), 1))
        if threads <= 1:
            logs = [open_one(place) for place in order]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="varve-open") as pool:
                logs = list(pool.map(open_one, order))
        by_topic: dict[str, dict[int, PartitionLog]] = {name: {} for name in self._catalog.topics}
        for (topic, number), log in zip(order, logs, strict=True):
            if log is not None:
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
                offline=self._why_offline,
            )

    def _why_offline(self, topic: str, number: int) -> str:
        """Why a partition that the topic has is not open here."""
        for directory in self._directories:
            error = directory.offline.get((topic, number))
            if error is not None:
                return f"{directory.path} cannot be read: {error}"
        if self._offline:
            return ", ".join(f"{path} cannot be used: {e}" for path, e in self._offline.items())
        return "its directory is missing"

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
            log.note_compacted(checkpoints.cleaned[place])
        for damage in log.damages:
            logger.error("%s", damage)
        self._attach_archive(log, entry)
        directory.logs[place] = log
        return log

    def _attach_archive(self, log: PartitionLog, entry: TopicEntry) -> None:
        archives = self._setup.archives
        if archives is None:
            return
        log.attach_archive(
            archives.source(
                ArchivePlace(
                    topic=entry.name,
                    topic_id=entry.topic_id,
                    partition=log.partition,
                    directory=log.directory,
                    config=log.config,
                    allows_gaps=log.allows_gaps,
                    owner=self.writer_id,
                )
            )
        )

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

    @property
    def writer_id(self) -> str:
        """Which store this is, for archives: a copy of it, or one restored from it, is another."""
        meta = self._directories[0].meta
        if meta is None or meta.directory_id is None:
            return self.cluster_id
        return encode_topic_id(meta.directory_id)

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
        """One pass of everything the background does, now, in this thread.

        Each task runs, also when one before it failed; the first failure is then raised.
        """
        self._check_open()
        self._housekeeping.run_all()

    def upkeep(self) -> list[UpkeepStatus]:
        """What the housekeeping does, when it last did it, how that went, and when it is next."""
        return self._housekeeping.status()

    def add_upkeep(self, name: str, interval_s: float, function: UpkeepFunction) -> None:
        """Have the housekeeping run `function` too, on a thread of its own when it is due.

        It returns the bytes of disk it gave back, or None.
        """
        self._housekeeping.add(name, interval_s, function, takes_long=True)

    def explain_retention(self, topic: str) -> list[RetentionPlan]:
        """For each partition, what retention would do now and why: the plan that runs."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.plan_retention(now_ms) for log in self.topic(topic).partitions]

    def explain_compaction(self, topic: str) -> list[CompactionPlan]:
        """For each partition, what compaction would do now, or why it would not."""
        now_ms = self._tasks.steady_clock.now_ms()
        return [log.plan_compaction(now_ms) for log in self.topic(topic).partitions]

    def compact(self, topic: str, *, force: bool = False) -> list[CompactionResult]:
        """Compact the partitions of a topic that are due, now, in this thread.

        With `force` all of them, whatever the ratio and the lags, active segments included:
        they are sealed first. Logs that were left alone after a failure are tried again.
        """
        return self.cleaner.run_now(self.topic(topic).partitions, force=force)

    def snapshot(self, path: str | os.PathLike[str]) -> StoreSnapshot:
        """Copy the store, as it is now, to a new directory that `varve.open` opens at once.

        Appends and reads go on meanwhile; topics cannot be created or deleted. Sealed segments
        are shared with the copy where the file system allows. Durable on return; a copy that
        was interrupted is called ``<path>.incomplete``.
        """
        target = os.path.abspath(os.fspath(path))
        with self._lock:
            self._check_open()
            for directory in self._directories:
                if os.path.commonpath([directory.path, target]) == directory.path:
                    raise ConfigError("path", target, f"must not lie within {directory.path}")
            logs = [log for topic in self._topics.values() for log in topic.partitions]
            backup = Backup(self._fs, target, self._clock)
            return backup.run(logs, self._catalog, self._directories[0].meta)

    def _run_cleaner(self) -> int | None:
        return sum(result.bytes_reclaimed for result in self.cleaner.run_due())

    def _all_logs(self) -> list[PartitionLog]:
        return [log for d in self._directories for log in list(d.logs.values())]

    # --- archive -----------------------------------------------------------------------------

    def archive_now(self) -> list[ArchiveStatus]:
        """Copy what is due into the archives, now; say how far each has come.

        What failed, and why, is in the answer: the other partitions go on.
        """
        self._check_open()
        self._archives.run(self)
        return self._archives.status(self)

    def archive_status(self) -> list[ArchiveStatus]:
        """How far the archive of each partition has come, and what failed last."""
        archives = self._setup.archives
        return [] if archives is None else archives.status(self)

    def restore_topic(
        self,
        name: str,
        url: str,
        *,
        to_timestamp_ms: int | None = None,
        topic_id: uuid.UUID | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Topic[PartitionLog]:
        """Recreate a topic from its archive at `url`, with its id, configuration and groups.

        With `to_timestamp_ms` each partition ends before the first record that is newer, and
        the batch that holds that record goes whole. The topic is there whole, or not at all.
        `topic_id` chooses among several topics that had the name; else it is the one archived
        last. `config` overrides keys of the archived configuration.
        """
        self._check_open()
        return self._archives.restore(
            self,
            name,
            url,
            to_timestamp_ms=to_timestamp_ms,
            topic_id=topic_id,
            config=config,
        )

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
                config=parsed.render(defaults=self._setup.defaults),
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

    @property
    def _archives(self) -> Archives:
        archives = self._setup.archives
        if archives is None:
            raise ConfigError("archive.url", "", "this store was opened without archives")
        return archives

    def _run_archive(self) -> None:
        self._archives.run(self)
        failures = [s for s in self._archives.status(self) if s.last_error is not None]
        if failures:
            first = failures[0]
            raise StorageError(f"{first.topic}-{first.partition}: {first.last_error}")

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
        if self._setup.archives is not None:
            self._setup.archives.close()
        self.cleaner.stop()
        self._housekeeping.stop()
        for directory in self._directories:
            logs = list(directory.logs.values())
            for log in logs:
                log.close()
            is_clean = not directory.offline and all(log.failure is None for log in logs)
            directory.close(is_clean=is_clean)
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


def _free_bytes_min(setup: StoreSetup) -> int:
    if setup.free_bytes_min is not None:
        return setup.free_bytes_min
    return FREE_BYTES_MIN if isinstance(setup.fs, RealFileSystem) else 0
