"""A consistent copy of a live store, made beside its appends.

    ends              of all logs are taken at one moment, at which no publication is under way and
                      no transaction gets its markers: the copy has each of them whole or not at
                      all. Those of committed offsets are taken first, so that no committed offset
                      is past the copied records
    sealed segments   hard links if the file system can, else copies
    last segment      copied up to its end, which is synced first; the copy appends to it
    small files       written new: checkpoints, epochs, marks, segment manifests, catalog,
                      `meta.properties`, ledger, settings that were saved; and, only if asked
                      for, users, access rules and quotas

Everything is written to ``<path>.incomplete``, synced, and then renamed. So a directory called
`path` is a whole copy. Neither store changes a shared file in place.

The copy does not include archives and must not write to them: its topics have no `archive.url`
and begin with their first local segment.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, LogClosedError
from cordwood.format.file_names import (
    CLEANER,
    CONSUMER_OFFSETS_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    FileKind,
    partition_directory_name,
    segment_file_name,
)
from cordwood.format.small_files.meta_properties import MetaProperties, render_meta_properties
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.format.small_files.segment_manifest import SegmentManifest
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication import Publisher
from cordwood.log.publishing.publication_ledger import write_publications
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.topics.catalog_files import write_catalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.log_directory import PartitionName
from cordwood.log.topics.topic_catalog import Catalog
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, make_durable_directory, replace_file
from cordwood.storage.replacement.file_copy import copy_file, link_or_copy
from cordwood.storage.replacement.segment_files import find_snapshots
from cordwood.storage.segment import Segment
from cordwood.storage.small_files.checkpoint_file import (
    write_epoch_checkpoint,
    write_offset_checkpoint,
)
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from cordwood.storage.small_files.segment_manifest_file import write_manifest
from cordwood.value_class import dataclass, replace

CopyTo = Callable[[str], None]

INCOMPLETE: Final = ".incomplete"
_ARCHIVE_KEYS: Final = frozenset({"archive.url", "archive.after.ms"})
_DERIVED: Final = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.KEYINDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """A finished copy of a store."""

    path: str
    partitions: int
    linked_bytes: int
    copied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _CopiedLog:
    """How far a partition was copied. `recovery_point` is the start of its last segment."""

    start: Offset
    end: Offset
    recovery_point: Offset
    cleaned: Offset | None
    linked_bytes: int
    copied_bytes: int


class Backup:
    """One copy. Runs once."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        clock: Clock,
        should_stop: Callable[[], bool],
        progress: WorkProgress,
        *,
        directory_id: UUID | None = None,
    ) -> None:
        """`should_stop` is called between segments; if it returns True, the copy is abandoned.

        `directory_id` becomes the id of the copy's directory; None: a new one.
        """
        self._fs = fs
        self._clock = clock
        self._path = path
        self._incomplete = path + INCOMPLETE
        self._should_stop = should_stop
        self._progress = progress
        self._directory_id = directory_id or new_topic_id()

    def run(
        self,
        directories: DataDirectories,
        catalog: Catalog,
        publisher: Publisher,
        transactions: TransactionCoordinator,
        copy_beside: Sequence[CopyTo] = (),
    ) -> StoreSnapshot:
        """Copy all logs of a store and their small files. Durable on return.

        Each of `copy_beside` writes a file of the store into the directory of the copy. If it fails
        or is stopped, nothing of it stays.
        """
        for home in directories.paths:
            if os.path.commonpath([home, self._path]) == home:
                raise ConfigError("path", self._path, f"must not lie within {home}")
        if self._fs.exists(self._path):
            raise ConfigError("path", self._path, "must not exist yet")
        if self._fs.exists(self._incomplete):
            self._fs.remove_tree(self._incomplete)
        try:
            return self._copy(directories, catalog, publisher, transactions, copy_beside)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.remove_tree(self._incomplete)
            raise

    def _copy(
        self,
        directories: DataDirectories,
        catalog: Catalog,
        publisher: Publisher,
        transactions: TransactionCoordinator,
        copy_beside: Sequence[CopyTo],
    ) -> StoreSnapshot:
        make_durable_directory(self._fs, self._incomplete)
        with publisher.still, transactions.still():
            # Not before: a log that was opened meanwhile may be part of a transaction that ended.
            logs = directories.logs()
            logs.sort(key=lambda log: log.topic != CONSUMER_OFFSETS_TOPIC)
            bounds = [(log, log.high_watermark) for log in logs]
            publications = replace(publisher.publications, cuts={}, latest={})
        self._progress.expect(sum(log.state.segments.size for log in logs))
        bounds = [(log, _synced_end(log, end)) for log, end in bounds]
        copied = {(log.topic, log.partition): self._copy_log(log, end) for log, end in bounds}
        self._write_small_files(copied, catalog, directories.meta)
        if publications.applications:
            write_publications(self._fs, [self._incomplete], publications)
        for copy_to in copy_beside:
            copy_to(self._incomplete)
        self._fs.sync_directory(self._incomplete)
        self._fs.rename(self._incomplete, self._path)
        self._fs.sync_directory(os.path.dirname(self._path) or ".")
        return StoreSnapshot(
            path=self._path,
            partitions=len(copied) + sum(len(d.unopened) for d in directories),
            linked_bytes=sum(log.linked_bytes for log in copied.values()),
            copied_bytes=sum(log.copied_bytes for log in copied.values()),
        )

    # --- one partition -----------------------------------------------------------------------

    def _copy_log(self, log: PartitionLog, end: Offset) -> _CopiedLog:
        """Copy one log. If retention or compaction removes a file meanwhile, start again."""
        target = os.path.join(self._incomplete, partition_directory_name(log.topic, log.partition))
        while True:
            view = log.archive.local_view
            self._fs.make_directory(target)
            try:
                return self._copy_view(log, view, end, target)
            except FileNotFoundError:
                if log.state.segments is view.segments:
                    raise
                self._fs.remove_tree(target)

    def _copy_view(
        self, log: PartitionLog, view: LogView[Segment], end: Offset, target: str
    ) -> _CopiedLog:
        end = Offset(max(min(end, view.high_watermark), view.start))
        linked = copied = 0
        last_base: Offset | None = None
        for index, segment in enumerate(view.segments):
            if segment.base_offset >= end and index:
                break
            if self._should_stop():
                raise LogClosedError(f"the copy to {self._path}")
            is_whole = segment is not view.segments.active and view.segments.end_of(index) <= end
            if is_whole and self._share(segment, target):
                linked += segment.size
            else:
                copied += segment.size if is_whole else self._copy_head(segment, end, target)
            last_base = None if is_whole else segment.base_offset
            self._progress.add(segment.size)
        if last_base is None:
            # The copy appends to its last segment, so that one must not be shared.
            path = os.path.join(target, segment_file_name(end, FileKind.LOG))
            self._fs.create(path).close()
            last_base = end
        self._copy_beside(log, target, last_base, end)
        self._write_manifest(log, view, target, last_base)
        marks = HighWatermarkFile(self._fs, target, writable=True)
        marks.publish(high_watermark=end, log_start=view.start, durable=end)
        marks.sync()
        marks.close()
        self._fs.sync_directory(target)
        cleaned = log.state.cleaned_up_to
        return _CopiedLog(
            start=view.start,
            end=end,
            recovery_point=last_base,
            cleaned=None if cleaned is None else min(cleaned, end),
            linked_bytes=linked,
            copied_bytes=copied,
        )

    def _share(self, segment: Segment, target: str) -> bool:
        """Link or copy a sealed segment; copy its indexes, which are small. True if linked."""
        is_linked = link_or_copy(
            self._fs, segment.name, os.path.join(target, os.path.basename(segment.name))
        )
        for kind in _DERIVED:
            source = segment.path(kind)
            if self._fs.exists(source):
                copy_file(self._fs, source, os.path.join(target, os.path.basename(source)))
        modified_ms = segment.modified_ms()
        if not is_linked:
            copy = os.path.join(target, os.path.basename(segment.name))
            self._fs.set_modified_ms(copy, modified_ms)  # retention uses it
        return is_linked

    def _copy_head(self, segment: Segment, end: Offset, target: str) -> int:
        """Copy the batches below `end`. Opening the copy builds the indexes."""
        position = segment.reader().locate(end, segment.hint(end))
        size = segment.size if position is None else position
        copy = os.path.join(target, os.path.basename(segment.name))
        copied = copy_file(self._fs, segment.name, copy, size=size)
        self._fs.set_modified_ms(copy, segment.modified_ms())
        return copied

    def _copy_beside(self, log: PartitionLog, target: str, last_base: Offset, end: Offset) -> None:
        for offset in find_snapshots(self._fs, log.directory):
            if offset <= last_base:
                name = segment_file_name(offset, FileKind.SNAPSHOT)
                copy_file(self._fs, os.path.join(log.directory, name), os.path.join(target, name))
        epochs = [entry for entry in log.epochs.known.entries if entry.start_offset <= end]
        write_epoch_checkpoint(self._fs, target, epochs)
        metadata = os.path.join(log.directory, PARTITION_METADATA)
        if self._fs.exists(metadata):
            copy_file(self._fs, metadata, os.path.join(target, PARTITION_METADATA))

    def _write_manifest(
        self, log: PartitionLog, view: LogView[Segment], target: str, last_base: Offset
    ) -> None:
        """The segments of the copy, and those that the log has lost: the copy has lost them too."""
        manifest = log.compaction.manifest
        if manifest is None:
            return
        bases = {segment.base_offset for segment in view.segments} | {last_base}
        bases |= {hole.first for hole in log.source.holes}
        listed = [base for base in bases if base < manifest.end and base <= last_base]
        write_manifest(
            self._fs,
            target,
            SegmentManifest(
                generation=manifest.generation, end=manifest.end, segments=tuple(sorted(listed))
            ),
        )

    # --- the rest ----------------------------------------------------------------------------

    def _write_small_files(
        self,
        copied: dict[PartitionName, _CopiedLog],
        catalog: Catalog,
        meta: MetaProperties | None,
    ) -> None:
        path = self._incomplete
        topics = {
            name: replace(
                entry, config={k: v for k, v in entry.config.items() if k not in _ARCHIVE_KEYS}
            )
            for name, entry in catalog.topics.items()
        }
        write_catalog(self._fs, [path], replace(catalog, topics=topics))
        checkpoints = {
            RECOVERY_POINT: {name: log.recovery_point for name, log in copied.items()},
            LOG_START: {name: log.start for name, log in copied.items() if log.start > 0},
            HIGH_WATERMARK_CHECKPOINT: {name: log.end for name, log in copied.items()},
            CLEANER: {n: log.cleaned for n, log in copied.items() if log.cleaned is not None},
        }
        for name, offsets in checkpoints.items():
            if offsets:
                write_offset_checkpoint(self._fs, path, name, offsets)
        if meta is not None:
            own = replace(meta, directory_id=self._directory_id)
            text = render_meta_properties(own, written_ms=self._clock.now_ms())
            replace_file(self._fs, os.path.join(path, META_PROPERTIES), text.encode())


def _synced_end(log: PartitionLog, end: Offset) -> Offset:
    """Sync a log up to `end`; how far that was possible."""
    if log.state.durable < end:
        log.sync()
    return min(end, log.state.durable)
