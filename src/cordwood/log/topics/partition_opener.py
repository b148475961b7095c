"""Makes the directories of partitions, and opens their logs."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from cordwood.clock import Clock
from cordwood.format.file_names import PARTITION_METADATA, partition_directory_name
from cordwood.format.small_files.partition_metadata import render_partition_metadata
from cordwood.log.partition.log_loader import LoadRequest, load_log
from cordwood.log.partition.log_parts import LogParts, segment_limits
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.log_directory import LogDirectory
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, replace_file
from cordwood.storage.handle_cache import HandleCache
from cordwood.storage.high_watermark_file import HighWatermarkFile
from cordwood.storage.segment_manifest_file import read_manifest

logger = logging.getLogger(__name__)

ArchiveFinder = Callable[[ArchivePlace], ArchivedSegments | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurroundings:
    """The things that all logs of a store share.

    `defaults` configures topics for which nothing was set. `find_archive` gives the archive of
    a partition; None if the store has no archives.
    """

    fs: FileSystem
    clock: Clock
    steady_clock: Clock
    random: Random
    handles: HandleCache
    sync_times: SharedHistogram
    defaults: TopicConfig
    find_archive: ArchiveFinder | None


class PartitionOpener:
    """Opens the partitions of one store. Several threads may open different partitions."""

    def __init__(self, directories: DataDirectories, shared: LogSurroundings) -> None:
        self._directories = directories
        self._shared = shared
        self._fs = shared.fs

    @property
    def defaults(self) -> TopicConfig:
        return self._shared.defaults

    def set_defaults(self, defaults: TopicConfig) -> None:
        self._shared = replace(self._shared, defaults=defaults)

    def config_of(self, entry: TopicEntry) -> TopicConfig:
        return TopicConfig.parse(entry.config, defaults=self._shared.defaults)

    def make_directory(self, entry: TopicEntry, number: int) -> LogDirectory:
        """Make a partition's directory, in the data directory that has the fewest partitions.

        Data directories that are offline or hang get none. The topic's id is in it before any data.
        """
        usable = [d for d in self._directories if d.is_usable] or list(self._directories)
        directory = min(usable, key=lambda d: len(d.logs))
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        self._fs.make_directory(path)
        self.write_metadata(directory, entry, number)
        self._fs.sync_directory(directory.path)
        # The checkpoints may still hold offsets of an earlier topic of this name.
        directory.forget((entry.name, number))
        return directory

    def write_metadata(self, directory: LogDirectory, entry: TopicEntry, number: int) -> None:
        path = os.path.join(directory.path, partition_directory_name(entry.name, number))
        content = render_partition_metadata(entry.topic_id).encode()
        replace_file(self._fs, os.path.join(path, PARTITION_METADATA), content)

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
        place = (entry.name, number)
        path = os.path.join(directory.path, partition_directory_name(*place))
        config = self.config_of(entry)
        marks = HighWatermarkFile(self._fs, path, writable=True)
        checkpoints = directory.checkpoints
        manifest = read_manifest(self._fs, path)
        was_compacted = manifest is not None or place in checkpoints.cleaned
        allows_gaps = config.is_compacted or was_compacted
        loaded = load_log(
            LoadRequest(
                fs=self._fs,
                directory=path,
                handles=self._shared.handles,
                limits=segment_limits(config, allows_gaps=allows_gaps),
                marks=marks.read(),
                now_ms=self._shared.clock.now_ms(),
                steady_ms=self._shared.steady_clock.now_ms(),
                recovery_point=checkpoints.recovery_points.get(place),
                log_start=checkpoints.log_starts.get(place),
                is_clean=directory.was_clean,
                is_durable_exact=config.durability == "disk",
                allows_gaps=allows_gaps,
                manifest=manifest,
            )
        )
        log = PartitionLog(
            LogParts(
                topic=entry.name,
                partition=number,
                directory=path,
                config=config,
                fs=self._fs,
                clock=self._shared.clock,
                steady_clock=self._shared.steady_clock,
                handles=self._shared.handles,
                flusher=directory.flusher,
                owner=directory,
                marks=marks,
                random=self._shared.random,
                sync_times=self._shared.sync_times,
                held_from=held_from,
            ),
            loaded,
        )
        if was_compacted:
            log.compaction.note_compacted(checkpoints.cleaned.get(place, log.start_offset))
        for damage in log.damages:
            logger.error("%s", damage)
        try:
            self.attach_archive(log, entry)
        except BaseException:
            log.close(is_orderly=False)
            raise
        directory.logs[place] = log
        return log

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
                    owner=self._directories.writer_id,
                )
            )
        )
