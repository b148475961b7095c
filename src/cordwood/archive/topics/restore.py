"""Restoring a topic from its archive: the whole topic, or as it was at a point in time.

All files are fetched into staging directories, checked against the manifest and synced before they
become a topic, so a crash leaves the whole topic or nothing. The order:

    1  fetch and check the files of every partition, and cut them at the point in time
    2  if archiving continues in the same place: take the archive over from the other store
    3  commit the groups' offsets, none past the end of the restored log
    4  install the topic

A point in time is a timestamp T. A partition ends before its first record, in offset order, that
is newer than T. Later records are cut off even if their timestamps are older, because a log keeps
its order. Batches are not split: the batch that holds the first newer record is cut off as a whole.

A restored topic is a copy without an `archive.url`, because another store may be alive and write
the archive. Archiving continues in the same place only if this store owns the archive already, or
takes it over on request. A topic that was cut or renamed never continues there: it does not match
its archive.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from cordwood.archive.fetching.fetch_threads import read_ahead
from cordwood.archive.manifests.manifest import ArchivedTopic, Manifest
from cordwood.archive.manifests.segment_copy import ArchivedFile, SegmentCopy
from cordwood.archive.objects.object_port import ObjectStore, copy_into, read_part
from cordwood.archive.objects.object_urls import shown_url
from cordwood.archive.topics.partition_archive import ArchiveParts, PartitionArchive
from cordwood.archive.topics.topic_keeper import read_topic
from cordwood.errors import (
    ConfigError,
    FormatError,
    LogClosedError,
    StorageError,
    UnknownTopicError,
)
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.format.small_files.partition_metadata import decode_topic_id, new_topic_id
from cordwood.log.beside.archived_log import ArchivedLog
from cordwood.log.partition.derived_state.producer_snapshots import (
    load_newest,
    replay,
    write_snapshot,
)
from cordwood.log.reading.archived_segments import ArchivePlace
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.reading.time_lookup import find_time
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import ArchivableStore, WantedTopic
from cordwood.log.topics.incoming_topic import IncomingPartition, IncomingTopic
from cordwood.log.topics.topic import Topic
from cordwood.quantities import INT64_MAX, Offset, TimestampMs
from cordwood.storage.replacement.segment_files import find_segments, find_snapshots
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.small_files.checkpoint_file import write_epoch_checkpoint
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


def find_topics(objects: ObjectStore, name: str) -> list[ArchivedTopic]:
    """Every archived topic of that name; the one that was changed last comes last."""
    found: list[ArchivedTopic] = []
    for part in objects.names(name):
        try:
            topic_id = decode_topic_id(part)
        except FormatError:
            continue  # not a topic of ours
        topic = read_topic(objects, name, topic_id)
        if topic is not None:
            found.append(topic)
    found.sort(key=lambda topic: topic.updated_ms)
    return found


def find_topic(objects: ObjectStore, name: str, topic_id: UUID | None) -> ArchivedTopic:
    """The topic of that name and id; without an id, the one that was changed last."""
    for topic in reversed(find_topics(objects, name)):
        if topic_id is None or topic.topic_id == topic_id:
            return topic
    raise UnknownTopicError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """What a restore brings back of one partition: offsets in [start_offset, end_offset).

    `archived_end` is where the archive ends. `fetched_bytes` includes the part of the last
    segment that is cut off after it was fetched.
    """

    partition: int
    start_offset: Offset
    end_offset: Offset
    archived_end: Offset
    segments: int
    fetched_bytes: int


def explain_partition(source: PartitionArchive, to_timestamp_ms: int | None) -> RestoredPartition:
    """What restoring would do to one partition. Changes nothing."""
    start, end = source.state().start, restored_end(source, to_timestamp_ms)
    fetched = [copy for copy in source.manifest.segments if start < end > copy.base_offset]
    return RestoredPartition(
        partition=source.place.partition,
        start_offset=start,
        end_offset=Offset(max(start, end)),
        archived_end=source.manifest.end,
        segments=len(fetched),
        fetched_bytes=sum(file.size for copy in fetched for file in copy.files),
    )


class TopicRestore:
    """Restores topics from one object store into one store."""

    def __init__(
        self,
        objects: ObjectStore,
        parts: ArchiveParts,
        store: ArchivableStore,
        should_stop: Callable[[], bool],
        progress: WorkProgress,
    ) -> None:
        """`should_stop` is asked between pieces; a restore that stops leaves nothing behind."""
        self._objects = objects
        self._parts = parts
        self._fs = parts.fs
        self._store = store
        self._should_stop = should_stop
        self._progress = progress

    def run(self, archived: ArchivedTopic, wanted: WantedTopic) -> Topic:
        to_timestamp_ms = wanted.to_timestamp_ms
        is_same = wanted.new_name is None or wanted.new_name == archived.topic
        if wanted.take_over and (to_timestamp_ms is not None or not is_same):
            raise _cannot_continue(wanted, "only the whole topic, with its name, can take it over")
        staged = self._store.registry.stage(
            wanted.new_name or archived.topic,
            archived.topic_id if is_same else wanted.new_id or new_topic_id(),
            archived.partitions,
        )
        try:
            sources = [
                self._source(archived, number, partition.path)
                for number, partition in enumerate(staged.partitions)
            ]
            for source in sources:
                source.refresh()
            continues = wanted.take_over or (
                is_same and to_timestamp_ms is None and self._owns(archived, sources)
            )
            texts = _config_texts(archived, wanted, continues=continues)
            if is_same and not continues and texts["archive.url"] == wanted.url:
                raise _cannot_continue(wanted, "it belongs to another store or holds more records")
            TopicConfig.parse(texts)  # raises before anything is fetched
            self._progress.expect(
                sum(f.size for source in sources for s in source.manifest.segments for f in s.files)
            )
            for partition, source in zip(staged.partitions, sources, strict=True):
                self._fill(partition, source, to_timestamp_ms)
            if is_same:
                if texts["archive.url"] == wanted.url:
                    for source in sources:
                        source.take_over()
                self._commit_groups(archived, staged, to_timestamp_ms)
            topic = self._store.registry.install(staged, texts)
        except BaseException:
            staged.discard(self._fs)
            raise
        logger.info("restored topic %s from %s", topic.name, self._objects.url)
        return topic

    def _owns(self, archived: ArchivedTopic, sources: Iterable[PartitionArchive]) -> bool:
        """Whether this store owns the archive: the topic's object, and every manifest."""
        owners = {archived.owner, *(source.manifest.owner for source in sources)}
        return owners == {self._store.writer_id}

    def _source(self, archived: ArchivedTopic, number: int, directory: str) -> PartitionArchive:
        place = ArchivePlace(
            topic=archived.topic,
            topic_id=archived.topic_id,
            partition=number,
            directory=directory,
            config=TopicConfig(),
            allows_gaps=False,
            owner=self._store.writer_id,
        )
        return PartitionArchive(self._objects, place, self._parts)

    # --- one partition -----------------------------------------------------------------------

    def _fill(
        self, partition: IncomingPartition, source: PartitionArchive, to_timestamp_ms: int | None
    ) -> None:
        """Fetch the wanted segments. Durable, except for the names in the directory."""
        manifest = source.manifest
        end = restored_end(source, to_timestamp_ms)
        partition.start = source.state().start
        partition.end = Offset(max(end, partition.start))
        partition.allows_gaps = manifest.allows_gaps
        if end <= partition.start:
            return  # nothing can be read: the log continues, empty, at its start
        for copy in manifest.segments:
            if copy.base_offset < end:
                self._fetch_segment(partition.path, source, copy, end)
        epochs = [entry for entry in manifest.epochs if entry.start_offset < end]
        write_epoch_checkpoint(self._fs, partition.path, epochs)
        if end < manifest.end:
            self._cut_last(partition.path, manifest, end)
            self._save_producers(partition, manifest, end)

    def _fetch_segment(
        self, directory: str, source: PartitionArchive, copy: SegmentCopy, end: Offset
    ) -> None:
        for file in copy.files:
            named_by = copy.next_offset if file.kind is FileKind.SNAPSHOT else copy.base_offset
            if named_by > end:
                continue  # the producers' state after the cut
            path = os.path.join(directory, segment_file_name(named_by, file.kind))
            key = source.key_of(copy, file.kind)
            digest = hashlib.sha256()
            try:
                pieces = self._watched(self._pieces(source, copy, file), key)
                copy_into(self._fs, path, pieces, size=file.size, note=digest.update, sync=True)
                if digest.hexdigest() != file.sha256:
                    raise FormatError("its SHA-256 differs from the manifest")
            except FormatError as error:
                reason = f"{self._objects.url}/{key} is damaged: {error.reason}"
                raise StorageError(reason) from error
            # Retention counts from the last append; a restore does not change that.
            self._fs.set_modified_ms(path, copy.modified_ms)

    def _pieces(
        self, source: PartitionArchive, copy: SegmentCopy, file: ArchivedFile
    ) -> Iterator[bytes]:
        key = source.key_of(copy, file.kind)
        if file.position is None:
            return read_ahead(self._parts.threads, self._objects, key, file.size)
        return read_part(self._objects, key, file.position, file.size, whole=copy.packed_size)

    def _watched(self, pieces: Iterable[bytes], key: str) -> Iterator[bytes]:
        for piece in pieces:
            if self._should_stop():
                raise LogClosedError(f"the store that restores {key}")
            self._progress.add(len(piece))
            yield piece

    def _cut_last(self, directory: str, manifest: Manifest, end: Offset) -> None:
        """Cut the segment that holds `end`, and its indexes, at this batch boundary."""
        copy = next(s for s in manifest.segments if s.base_offset < end <= s.next_offset)
        if copy.next_offset == end:
            return
        segment = self._open_segment(
            directory, manifest, copy, size=copy.size, end=copy.next_offset
        )
        position = segment.reader().locate(end, segment.hint(end))
        assert position is not None, (copy, end)
        segment.activate(now_ms=copy.modified_ms)
        segment.writer.truncate_to(position, end)
        segment.sync_log()
        segment.indexes.sync()
        segment.close()
        self._fs.set_modified_ms(segment.path(FileKind.LOG), copy.modified_ms)

    def _save_producers(
        self, partition: IncomingPartition, manifest: Manifest, end: Offset
    ) -> None:
        """Write the producers' state at the cut: it tells which transactions are open there."""
        found = find_segments(self._fs, partition.path)
        copies = [copy for copy in manifest.segments if copy.base_offset < end]
        segments = SegmentList(
            [
                self._open_segment(partition.path, manifest, copy, size=segment.size, end=end)
                for copy, segment in zip(copies, found, strict=True)
            ]
        )
        states = load_newest(
            self._fs,
            partition.path,
            find_snapshots(self._fs, partition.path),
            log_start=partition.start,
            log_end=end,
            now_ms=TimestampMs(0),  # none of them has expired
        )
        replay(states, segments, end)
        write_snapshot(self._fs, partition.path, states, sync=True)
        for segment in segments:
            segment.close()

    def _open_segment(
        self, directory: str, manifest: Manifest, copy: SegmentCopy, *, size: int, end: Offset
    ) -> Segment:
        return Segment.open_sealed(
            self._fs,
            directory,
            copy.base_offset,
            size=size,
            next_offset=min(copy.next_offset, end),
            handles=self._parts.handles,
            limits=SegmentLimits(
                index_bytes_max=INT64_MAX,
                index_interval_bytes=0,
                is_dense=not manifest.allows_gaps,
            ),
        )

    # --- groups ------------------------------------------------------------------------------

    def _commit_groups(
        self, archived: ArchivedTopic, staged: IncomingTopic, to_timestamp_ms: int | None
    ) -> None:
        """Commit the groups' offsets of that time, limited to the restored offsets.

        A group that this store already knows keeps its offset, unless it lies past the end.
        """
        wanted: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
        moment = archived.moment_at(to_timestamp_ms)
        for offset in () if moment is None else moment.offsets:
            place = (archived.topic, offset.partition)
            wanted.setdefault(offset.group, {})[place] = (offset.offset, offset.metadata)
        for group in self._store.groups():
            for place, known in self._store.group(group).details().items():
                if place[0] == archived.topic:
                    wanted.setdefault(group, {})[place] = (known.offset, known.metadata)
        for group, offsets in wanted.items():
            clamped: dict[tuple[str, int], int | tuple[int, str]] = {
                place: (_within(staged.partitions[place[1]], offset), metadata)
                for place, (offset, metadata) in offsets.items()
                if place[1] < len(staged.partitions)
            }
            self._store.group(group).commit(clamped)


def _config_texts(
    archived: ArchivedTopic, wanted: WantedTopic, *, continues: bool
) -> dict[str, object]:
    """The configuration of the restored topic. It has an `archive.url`, which may be empty."""
    url = wanted.url if continues else ""
    return {**archived.config, "archive.url": url, **wanted.config}


def _cannot_continue(wanted: WantedTopic, reason: str) -> ConfigError:
    return ConfigError(
        "archive.url",
        shown_url(wanted.url),
        f"the restored topic {wanted.name} cannot continue this archive: {reason}; choose another "
        "archive.url or none, or take the archive over with the whole topic (take_over, "
        "--take-over)",
    )


def restored_end(source: PartitionArchive, to_timestamp_ms: int | None) -> Offset:
    """Where a partition ends after a restore, up to a point in time or whole."""
    return source.manifest.end if to_timestamp_ms is None else _cut_at(source, to_timestamp_ms)


def _cut_at(source: PartitionArchive, to_timestamp_ms: int) -> Offset:
    """The offset at which the batch begins that holds the first record after that time."""
    manifest = source.manifest
    place = source.place
    log = ArchivedLog(place.topic, place.partition, source, allows_gaps=manifest.allows_gaps)
    match = find_time(log.source, to_timestamp_ms + 1)
    if match is None:
        return manifest.end
    segments = log.view().segments
    segment = segments[segments.floor(match.offset)]
    reader = segment.reader()
    found = reader.locate(match.offset, segment.hint(match.offset))
    assert found is not None, match
    return Offset(min(match.offset, reader.next_offset))


def _within(partition: IncomingPartition, offset: int) -> int:
    return min(max(offset, partition.start), partition.end)
