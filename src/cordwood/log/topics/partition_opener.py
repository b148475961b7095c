"""Makes the directories of partitions, and opens their logs."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random

from cordwood.clock import Clock
from cordwood.errors import LogClosedError, StorageError
from cordwood.format.file_names import (
    PARTITION_METADATA,
    FileKind,
    partition_directory_name,
    segment_file_name,
)
from cordwood.format.small_files.partition_metadata import render_partition_metadata
from cordwood.log.partition.log_loader import LoadedLog, LoadRequest, load_log, load_new_log
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_parts import LogParts, segment_limits
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, cluster_owner
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.catalog_files import KeptCatalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.directory_listing import read_topic_id
from cordwood.log.topics.log_directory import Checkpoints, LogDirectory
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.quantities import Offset
from cordwood.storage.disk.disk_errors import refused_when_full
from cordwood.storage.files import FileSystem, replace_file, sync_file, write_file
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from cordwood.storage.small_files.segment_manifest_file import read_manifest
from cordwood.value_class import dataclass, replace

logger = logging.getLogger(__name__)

ArchiveFinder = Callable[[ArchivePlace], ArchivedSegments | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurroundings:
    """The things that all logs of a store share.

    `defaults` configures topics for which nothing was set. `find_archive` gives the archive of
    a partition; None if the store has no archives. `role` is that of every log.
    """

    fs: FileSystem
    clock: Clock
    steady_clock: Clock
    random: Random
    handles: HandleCache
    sync_times: SharedHistogram
    defaults: TopicConfig
    find_archive: ArchiveFinder | None
    role: ReplicaRole = SOLE_REPLICA


@contextlib.contextmanager
def _noting(directory: LogDirectory) -> Iterator[None]:
    """Tell the health of a directory about errors of its disk."""
    try:
        yield
    except OSError as error:
        directory.health.note_failure(error)
        raise


class PartitionOpener:
    """Makes and opens the partitions of one store. Several threads may open different ones.

    A new partition is a directory with its topic's id and an empty log file; nothing of it is
    synced. It is settled when its first records are: see `_settle`.
    """

    def __init__(
        self, directories: DataDirectories, catalog: KeptCatalog, shared: LogSurroundings
    ) -> None:
        self._directories = directories
        self._catalog = catalog
        self._shared = shared
        self.fs = self._fs = shared.fs
        self._config: tuple[Mapping[str, str], TopicConfig] | None = None

    @property
    def defaults(self) -> TopicConfig:
        return self._shared.defaults

    def set_defaults(self, defaults: TopicConfig) -> None:
        self._shared = replace(self._shared, defaults=defaults)
        self._config = None

    def config_of(self, entry: TopicEntry) -> TopicConfig:
        known = self._config
        if known is None or known[0] is not entry.config:
            parsed = TopicConfig.parse(entry.config, defaults=self._shared.defaults)
            self._config = known = (entry.config, parsed)
        return known[1]

    # --- making ------------------------------------------------------------------------------

    def make(self, entry: TopicEntry, number: int) -> None:
        """Make a partition, in the data directory that has the fewest. Not durable.

        Data directories that are offline or hang get none.
        """
        directory = self._next_directory()
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        if self._fs.exists(path):
            # Left behind by a topic that was deleted, or by a creation that failed.
            self._fs.remove_tree(path)
        directory.unopened.add((entry.name, number))
        with _noting(directory):
            self._make_files(path, entry)

    def _next_directory(self) -> LogDirectory:
        usable = [d for d in self._directories if d.is_usable] or list(self._directories)
        return min(usable, key=lambda d: len(d.logs) + len(d.unopened))

    def _make_files(self, path: str, entry: TopicEntry) -> None:
        self._fs.make_directory(path)
        content = render_partition_metadata(entry.topic_id).encode()
        write_file(self._fs, os.path.join(path, PARTITION_METADATA), content)
        log = segment_file_name(Offset(0), FileKind.LOG)
        self._fs.create(os.path.join(path, log), exclusive=False).close()

    def reserve(self, entry: TopicEntry, number: int) -> None:
        """Make a missing partition now, or when it is opened: the disk may be full."""
        try:
            self.make(entry, number)
        except OSError as error:
            name = (entry.name, number)
            logger.warning("%s-%d is made when it is used: %s", *name, error)
            if not any(name in directory.unopened for directory in self._directories):
                self._next_directory().unopened.add(name)

    def unmake(self, name: str, numbers: Iterable[int]) -> None:
        """Remove partitions that were made for a change that failed."""
        for number in numbers:
            for directory in self._directories:
                if (name, number) in directory.unopened:
                    directory.unopened.discard((name, number))
                    path = os.path.join(directory.path, partition_directory_name(name, number))
                    with contextlib.suppress(OSError):  # the next start removes it
                        self._fs.remove_tree(path)

    def write_metadata(self, directory: LogDirectory, entry: TopicEntry, number: int) -> None:
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        content = render_partition_metadata(entry.topic_id).encode()
        replace_file(self._fs, os.path.join(path, PARTITION_METADATA), content)

    # --- opening -----------------------------------------------------------------------------

    def open_new(self, topic: str, number: int) -> PartitionLog:
        """Open a partition that has not begun. Waits for no disk."""
        place = (topic, number)
        entry = self._catalog.topics.get(topic)
        directory = next((d for d in self._directories if place in d.unopened), None)
        if entry is None or directory is None:
            raise LogClosedError(f"{topic}-{number}")
        path = os.path.join(directory.path, partition_directory_name(topic, number))
        with refused_when_full(f"{topic}-{number}", "opening"), _noting(directory):
            if not self._fs.exists(os.path.join(path, PARTITION_METADATA)):
                self._make_files(path, entry)
            marks = self._marks(directory, entry, number)
            loaded = load_new_log(self._request(directory, entry, number, marks))
            log = self._build(directory, entry, number, marks, loaded)
        directory.unopened.discard(place)
        return log

    def open(
        self,
        directory: LogDirectory,
        entry: TopicEntry,
        number: int,
        *,
        held_from: Offset | None = None,
    ) -> PartitionLog:
        """Open a partition's log, recovering it if needed, and add it to its directory.

        Records from `held_from` on belong to an unfinished publication and stay invisible.
        """
        marks = self._marks(directory, entry, number)
        loaded = load_log(self._request(directory, entry, number, marks))
        log = self._build(directory, entry, number, marks, loaded, held_from)
        if not entry.has_begun(number) and log.state.end > 0:
            log.syncing.settle()
        return log

    def open_beside(
        self, directory: LogDirectory, entry: TopicEntry, number: int, path: str
    ) -> PartitionLog:
        """Make and open an empty log of a partition in another directory than its own.

        It is not added to `directory`, and has no archive. Nothing of it is durable.
        """
        content = render_partition_metadata(entry.topic_id).encode()
        write_file(self._fs, os.path.join(path, PARTITION_METADATA), content)
        marks = HighWatermarkFile(self._fs, path, writable=True, is_new=True)
        request = self._request(directory, replace(entry, begun=0), number, marks)
        loaded = load_new_log(request)
        return PartitionLog(self._parts(directory, entry, number, marks), loaded)

    def check_identity(self, directory: LogDirectory, entry: TopicEntry, number: int) -> None:
        """Raise `OSError` if it cannot be known whether the files belong to this topic.

        Raises `StorageError` if a partition that has not begun has the files of another topic.
        The next start removes those.
        """
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        topic_id = read_topic_id(self._fs, path)
        if topic_id != entry.topic_id and not entry.has_begun(number):
            raise StorageError(
                f"{path} belongs to an earlier topic {entry.name}; restart to remove it"
            )

    def _marks(self, directory: LogDirectory, entry: TopicEntry, number: int) -> HighWatermarkFile:
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        is_new = not entry.has_begun(number)
        return HighWatermarkFile(self._fs, path, writable=True, is_new=is_new)

    def _request(
        self, directory: LogDirectory, entry: TopicEntry, number: int, marks: HighWatermarkFile
    ) -> LoadRequest:
        place = (entry.name, number)
        config = self.config_of(entry)
        # The checkpoints may still hold offsets of an earlier topic of this name.
        known = directory.checkpoints if entry.has_begun(number) else Checkpoints()
        path = os.path.dirname(marks.path)
        manifest = read_manifest(self._fs, path)
        allows_gaps = config.is_compacted or manifest is not None or place in known.cleaned
        return LoadRequest(
            fs=self._fs,
            directory=path,
            handles=self._shared.handles,
            limits=segment_limits(config, allows_gaps=allows_gaps),
            marks=marks.read(),
            now_ms=self._shared.clock.now_ms(),
            steady_ms=self._shared.steady_clock.now_ms(),
            recovery_point=known.recovery_points.get(place),
            log_start=known.log_starts.get(place),
            is_clean=directory.was_clean,
            is_durable_exact=config.durability == "disk",
            has_begun=entry.has_begun(number),
            allows_gaps=allows_gaps,
            manifest=manifest,
        )

    def _build(
        self,
        directory: LogDirectory,
        entry: TopicEntry,
        number: int,
        marks: HighWatermarkFile,
        loaded: LoadedLog,
        held_from: Offset | None = None,
    ) -> PartitionLog:
        place = (entry.name, number)
        parts = replace(
            self._parts(directory, entry, number, marks),
            held_from=held_from,
            settle=(
                None if entry.has_begun(number) else partial(self._settle, directory, entry, number)
            ),
        )
        log = PartitionLog(parts, loaded)
        known = directory.checkpoints.cleaned if entry.has_begun(number) else {}
        if loaded.manifest is not None or place in known:
            log.compaction.note_compacted(known.get(place, log.start_offset))
        for damage in log.damages:
            logger.error("%s", damage)
        try:
            self.attach_archive(log, entry)
        except BaseException:
            log.close(is_orderly=False)
            raise
        directory.logs[place] = log
        return log

    def _parts(
        self, directory: LogDirectory, entry: TopicEntry, number: int, marks: HighWatermarkFile
    ) -> LogParts:
        return LogParts(
            topic=entry.name,
            partition=number,
            directory=os.path.dirname(marks.path),
            config=self.config_of(entry),
            fs=self._fs,
            clock=self._shared.clock,
            steady_clock=self._shared.steady_clock,
            handles=self._shared.handles,
            flusher=directory.flusher,
            owner=directory,
            marks=marks,
            random=self._shared.random,
            sync_times=self._shared.sync_times,
            role=self._shared.role,
        )

    def _settle(self, directory: LogDirectory, entry: TopicEntry, number: int) -> None:
        """Make a new partition durable: its first records are about to be acknowledged.

        From then on a missing directory is a loss. Its own names are durable already.
        """
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        sync_file(self._fs, os.path.join(path, PARTITION_METADATA))
        directory.forget((entry.name, number))
        self._fs.sync_directory(directory.path)
        self._catalog.begin(entry, number)

    @property
    def _archive_owner(self) -> str:
        """Who archives: this store, or the cluster whose partitions it has replicas of."""
        if self._shared.role.is_sole:
            return self._directories.writer_id
        return cluster_owner(self._directories.cluster_id)

    def attach_archive(self, log: PartitionLog, entry: TopicEntry) -> None:
        """Give the log the archive that its configuration names, if it names one."""
        if self._shared.find_archive is None:
            return
        log.archive.attach(
            self._shared.find_archive(
                ArchivePlace(
                    topic=entry.name,
                    topic_id=entry.topic_id,
                    partition=log.partition,
                    directory=log.directory,
                    config=log.config,
                    allows_gaps=log.source.allows_gaps,
                    owner=self._archive_owner,
                    led=None if self._shared.role.is_sole else log.replica,
                )
            )
        )
