"""The data directories of a store, opened: locks, catalog, and every partition's log.

The order of things: take the lock of every directory, read the catalog of topics, finish what
a crash left half done, open all partitions side by side. A directory or a partition that cannot
be used stays offline and takes nothing else with it.
"""

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Final

from cordwood.clock import Clock, SystemClock
from cordwood.errors import (
    StorageError,
)
from cordwood.format.file_names import (
    CONSUMER_OFFSETS_TOPIC,
    PARTITION_METADATA,
    partition_directory_name,
)
from cordwood.format.partition_metadata import (
    encode_topic_id,
    new_topic_id,
    render_partition_metadata,
)
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.partition.log_loader import LoadRequest, load_log
from cordwood.log.partition.log_parts import FlushQueue, LogParts, segment_limits
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication_ledger import (
    NOTHING_PUBLISHED,
    Place,
    read_publications,
    write_publications,
)
from cordwood.log.reading.archived_segments import ArchivePlace
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.archive_port import Archives
from cordwood.log.store.open_store import OpenStore
from cordwood.log.topics.directory_listing import FoundPartition, find_partitions
from cordwood.log.topics.log_directory import DirectoryStatus, LogDirectory
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_catalog import (
    CREATING,
    DELETING,
    LIVE,
    Catalog,
    TopicEntry,
    read_catalog,
    write_catalog,
)
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem, RealFileSystem, replace_file
from cordwood.storage.flusher import Flusher
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.high_watermark_file import HighWatermarkFile
from cordwood.storage.recovery import Damage

logger = logging.getLogger(__name__)

OPENING_THREADS: Final = 4
OFFSETS_CONFIG: Final = {
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
    opening_threads: int = OPENING_THREADS
    archives: Archives | None = None  # None: topics cannot be archived
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    # log.dir.free.bytes.min: appends are refused while fewer are free; None: 16 MiB on real disks
    free_bytes_min: int | None = None
    sync_times: SharedHistogram = field(default_factory=SharedHistogram)


class OpenedDirectories(OpenStore):
    """What a store stands on. `TopicStore` adds changing topics, `Store` all the rest."""

    def __init__(self, directories: Sequence[str], setup: StoreSetup) -> None:
        self._setup = setup
        self._fs = setup.fs
        self._clock = setup.clock
        self._handles = HandleCache()
        self._lock = threading.RLock()
        self._topics: dict[str, Topic[PartitionLog]] = {}
        self._catalog = Catalog(generation=0, topics={})
        self._publications = NOTHING_PUBLISHED
        self._flushers: list[Flusher] = []
        self._offline: dict[str, OSError] = {}
        self._directories = self._open_directories([os.path.abspath(d) for d in directories])
        try:
            self._load()
        except BaseException:
            self._abandon()
            raise

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
        self._publications = read_publications(self._fs, paths)
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
                    config=OFFSETS_CONFIG if topic == CONSUMER_OFFSETS_TOPIC else _ADOPTED_CONFIG,
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
            with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-open") as pool:
                logs = list(pool.map(open_one, order))
        self._drop_unpublished()
        by_topic: dict[str, dict[int, PartitionLog]] = {name: {} for name in self._catalog.topics}
        for (topic, number), log in zip(order, logs, strict=True):
            if log is not None and not log.is_closed:
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

    def _drop_unpublished(self) -> None:
        """Cut off what a publication left that was not finished: nobody has seen it.

        A log that cannot be cut stays offline, one that is offline stays on the list of cuts.
        """
        cuts = self._publications.cuts
        if not cuts:
            return
        for directory in self._directories:
            for place, log in list(directory.logs.items()):
                if _place_of(self._catalog.topics[place[0]], place[1]) not in cuts:
                    continue
                try:
                    log.publication.drop()
                except OSError as error:
                    logger.error("%s-%d is offline: %s", *place, error)
                    directory.offline[place] = error
                    directory.logs.pop(place).close()
        topics = self._catalog.topics
        done = [
            place
            for place in cuts
            if place.topic not in topics
            or topics[place.topic].topic_id != place.topic_id
            or any((place.topic, place.partition) in d.logs for d in self._directories)
        ]
        if done:
            self._publications = self._publications.without_cuts(done)
            write_publications(self._fs, self.data_dirs, self._publications)

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
                sync_times=self._setup.sync_times,
                held_from=self._publications.cuts.get(_place_of(entry, number)),
            ),
            loaded,
        )
        if place in checkpoints.cleaned:
            log.compaction.note_compacted(checkpoints.cleaned[place])
        for damage in log.damages:
            logger.error("%s", damage)
        self._attach_archive(log, entry)
        directory.logs[place] = log
        return log

    def _attach_archive(self, log: PartitionLog, entry: TopicEntry) -> None:
        archives = self._setup.archives
        if archives is None:
            return
        log.archive.attach(
            archives.source(
                ArchivePlace(
                    topic=entry.name,
                    topic_id=entry.topic_id,
                    partition=log.partition,
                    directory=log.directory,
                    config=log.config,
                    allows_gaps=log.source.allows_gaps,
                    owner=self.writer_id,
                )
            )
        )

    def _config_of(self, entry: TopicEntry) -> TopicConfig:
        return TopicConfig.parse(entry.config, defaults=self._setup.defaults)

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

    def _save(self, catalog: Catalog) -> None:
        write_catalog(self._fs, [d.path for d in self._directories], catalog)
        self._catalog = catalog

    # --- facts -------------------------------------------------------------------------------

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

    @property
    def sync_times(self) -> SharedHistogram:
        """How long syncs took since the store was opened."""
        return self._setup.sync_times

    def directory_status(self) -> list[DirectoryStatus]:
        """Every data directory that was asked for, also those that cannot be used."""
        unusable = [DirectoryStatus.unusable(path, e) for path, e in self._offline.items()]
        return [directory.status() for directory in self._directories] + unusable

    def partition_sizes(self) -> dict[str, dict[tuple[str, int], int]]:
        """For each data directory, by its path, the bytes of every partition that lies in it."""
        return {
            directory.path: {
                place: log.state.segments.size for place, log in list(directory.logs.items())
            }
            for directory in self._directories
        }

    def damages(self) -> list[Damage]:
        """Promised bytes that were found unreadable when the store was opened."""
        return [
            damage
            for directory in self._directories
            for log in directory.logs.values()
            for damage in log.damages
        ]

    def _all_logs(self) -> list[PartitionLog]:
        return [log for d in self._directories for log in list(d.logs.values())]

    # --- letting go --------------------------------------------------------------------------

    def _close_directories(self) -> None:
        """Sync everything, mark the directories clean where all went well, release them.

        All of them, also when one fails; the first failure is then raised.
        """
        failure: OSError | None = None
        for directory in self._directories:
            try:
                self._close_directory(directory)
            except OSError as error:
                failure = failure or error
        for flusher in self._flushers:
            flusher.stop()
        if failure is not None:
            raise failure

    def _close_directory(self, directory: LogDirectory) -> None:
        try:
            logs = list(directory.logs.values())
            for log in logs:
                log.close()
            is_clean = not directory.offline and all(log.state.failure is None for log in logs)
            directory.close(is_clean=is_clean)
        finally:
            directory.release()

    def _abandon(self) -> None:
        """Let go of everything, sync nothing, mark nothing clean."""
        self._is_closed = True
        for log in self._all_logs():
            log.close(is_orderly=False)
        for directory in self._directories:
            directory.release()
        for flusher in self._flushers:
            flusher.stop()

    def _described(self) -> str:
        return f"the store in {self.path}"


def _place_of(entry: TopicEntry, number: int) -> Place:
    return Place(topic=entry.name, topic_id=entry.topic_id, partition=number)
